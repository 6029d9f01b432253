"""What attack found: the curve, the signs of masking, the samples, as text, page, JSON and CSV."""

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from mindgap.core import (
    Advice,
    Chart,
    Gallery,
    Interval,
    Line,
    Mark,
    Sample,
    Series,
    Subject,
    Which,
    proportion_interval,
)
from mindgap.core.chart.numbers import decimals, percent, round_up
from mindgap.ops.attacks.descent import Attacked
from mindgap.ops.attacks.masking import Sign
from mindgap.ops.attacks.robustness import Level
from mindgap.ops.attacks.scene import Scene
from mindgap.ops.images import as_images, channels_first
from mindgap.ops.samples import as_shown, in_words
from mindgap.report.parts import Answer, Tone, Verdict

SHOWN = 6  # samples in the gallery, three images each
WEAK = 0.5  # share of the right predictions that an attack may break before the page warns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """The accuracy at one radius.

    Args:
        epsilon: The radius.
        accuracy: The share of predictions that no attack broke.
        interval: Its 95 % interval.
        noise: The accuracy under random changes.
        black_box: The accuracy under attacks on a surrogate; None without one.
        reached: The share of the samples of other classes that were driven to the goal; None
            without one.
    """

    epsilon: float
    accuracy: float
    interval: Interval
    noise: float
    black_box: float | None
    reached: float | None = None


@dataclasses.dataclass(frozen=True)
class Found:
    """What the attacks found, before it is put into words.

    Args:
        levels: One per radius.
        headline: The level of the headline.
        signs: What was looked for to tell a hidden gradient.
        clean: The answers to the samples themselves.
        goals: The class that each sample was driven to; None without a goal.
        goal: The goal in words.
        sizes: The smallest change that broke each prediction; None if it was not searched.
        shares: Whether radii are shares of the training inputs' range.
    """

    levels: tuple[Level, ...]
    headline: Level
    signs: tuple[Sign, ...]
    clean: Attacked
    goals: Tensor | None = None
    goal: str = ""
    sizes: Tensor | None = None
    shares: bool = True

    def reached(self, level: Level, targets: Tensor) -> float | None:
        """The share of the samples of other classes that arrive at the goal at a radius."""
        if self.goals is None or level.towards is None:
            return None
        return float(level.towards.broken[targets != self.goals].double().mean())

    def first(self, name: Literal["found", "towards"]) -> list[float | str]:
        """The smallest radius at which an attack succeeds, sample by sample."""
        rows = [getattr(level, name).broken.tolist() for level in self.levels]
        return [
            next(
                (level.epsilon for level, row in zip(self.levels, rows, strict=True) if row[k]), ""
            )
            for k in range(len(self.clean.broken))
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Robustness(Answer):
    """How many predictions hold under attack; ``print`` shows the curve.

    Args:
        name: The subject's name.
        norm: The norm of the changes.
        split: The split that was attacked.
        shares: Whether a radius is a share of the training inputs' range, as it is by default.
        tolerance: In a regression, how far from its target a right prediction may be.
        clean: The accuracy without an attack.
        headline: The radius of the headline.
        rows: One per radius.
        signs: What was looked for to tell a hidden gradient; nothing if the model has none.
        goal: The class that predictions were driven to, in words; empty without one.
        typical: The size of change that breaks half of the right predictions; None if it was not
            searched, or if fewer break.
        samples: One dict per sample: its place, target, predictions, the smallest radius that
            broke it, and what else was asked for.
        charts: The curve, and samples to look at.
    """

    template = "attack.html"

    name: str
    norm: str
    split: str
    shares: bool
    tolerance: float | None
    clean: float
    headline: float
    rows: tuple[Row, ...]
    signs: tuple[Sign, ...]
    goal: str
    typical: float | None
    samples: tuple[dict[str, Any], ...]
    charts: tuple[Chart, ...]

    @property
    def masked(self) -> bool:
        """Whether a sign of a hidden gradient was found."""
        return any(sign.found for sign in self.signs)

    @property
    def robust_accuracy(self) -> float:
        """The accuracy under attack at the headline's radius: an upper bound."""
        return self.row.accuracy

    @property
    def row(self) -> Row:
        """The row of the headline's radius."""
        return next(row for row in self.rows if row.epsilon == self.headline)

    @property
    def verdict(self) -> Verdict:
        """The result in words."""
        return _verdict(self)

    def further(self) -> dict[str, Any]:
        """Return whether the gradient seems hidden."""
        return {"masked": self.masked}

    @property
    def table(self) -> tuple[tuple[str, ...], ...]:
        """The curve as a table with a head: columns of what was not done are left out."""
        black, goal = self.rows[0].black_box is not None, bool(self.goal)
        head = ("Radius", "Attacked", "95 % interval", "Noise")
        rows = [
            (
                f"{row.epsilon:.4g}",
                percent(row.accuracy),
                f"{percent(row.interval.low)} to {percent(row.interval.high)}",
                percent(row.noise),
                *([percent(row.black_box)] if row.black_box is not None else ()),
                *([percent(row.reached)] if row.reached is not None else ()),
            )
            for row in self.rows
        ]
        return ((*head, *("Black box",) * black, *(f"To {self.goal}",) * goal), *rows)

    def text(self) -> str:
        """Write the verdict and the curve as a table."""
        widths = [max(map(len, column)) for column in zip(*self.table, strict=True)]
        lines = [self.verdict.headline, *self.verdict.sentences, ""]
        lines += [
            "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in self.table
        ]
        if self.shares:
            lines += ["", "  A radius is a share of the range of the training inputs."]
        return "\n".join(lines)

    def csv(self) -> str:
        """Return one line per sample."""
        file = io.StringIO()
        names = list(self.samples[0]) if self.samples else []
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.samples)
        return file.getvalue()

    def drawn(self) -> dict[str, Sequence[Chart]]:
        """Show the curves, then the samples."""
        lines = [chart for chart in self.charts if isinstance(chart, Line)]
        return {"curve": lines, "samples": self.charts[len(lines) :]}


def told(subject: Subject, which: Which, scene: Scene, found: Found) -> Robustness:
    """Put what the attacks found into plain data and charts."""
    rows = tuple(_row(level, found.reached(level, scene.targets)) for level in found.levels)
    accuracy, headline = found.clean.robust_accuracy, found.headline.epsilon
    return Robustness(
        name=subject.name,
        norm=scene.threat.norm,
        split=which,
        shares=found.shares,
        tolerance=scene.victim.tolerance if math.isfinite(scene.victim.tolerance) else None,
        clean=accuracy,
        headline=headline,
        rows=rows,
        signs=found.signs,
        goal=found.goal,
        typical=_typical(found),
        samples=tuple(_samples(subject, scene, found)),
        charts=(
            _curve(rows, accuracy, headline, found),
            *_driven(rows, headline, scene, found),
            *_gallery(subject, scene, found.headline, found.clean),
        ),
    )


def _row(level: Level, reached: float | None) -> Row:
    black = None if level.black_box is None else level.black_box.robust_accuracy
    return Row(
        epsilon=level.epsilon,
        accuracy=level.accuracy,
        interval=level.interval,
        noise=level.noise.robust_accuracy,
        black_box=black,
        reached=reached,
    )


def _typical(found: Found) -> float | None:
    """Return the size of change at which half of the right predictions are broken."""
    if found.sizes is None:
        return None
    sizes = found.sizes[~found.clean.broken].sort().values
    middle = float(sizes[(len(sizes) - 1) // 2]) if len(sizes) else math.inf
    return middle if math.isfinite(middle) else None


def _samples(subject: Subject, scene: Scene, found: Found) -> list[dict[str, Any]]:
    clean, wrong = found.clean.outputs, found.clean.broken.tolist()
    columns: dict[str, list[Any]] = {
        "sample": scene.places.tolist(),
        "target": [in_words(subject, target) for target in scene.targets],
        "prediction": _predicted(subject, clean),
        "attacked": _predicted(subject, found.headline.found.outputs),
        "smallest radius": [
            0.0 if no else radius for no, radius in zip(wrong, found.first("found"), strict=True)
        ],
    }
    if found.sizes is not None:
        sizes = found.sizes.tolist()
        columns["smallest change"] = [size if math.isfinite(size) else "" for size in sizes]
    if found.goals is not None:
        there = (clean.argmax(1) == found.goals).tolist()
        columns["goal"] = [in_words(subject, goal) for goal in found.goals]
        columns["smallest radius to goal"] = [
            0.0 if yes else radius
            for yes, radius in zip(there, found.first("towards"), strict=True)
        ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _predicted(subject: Subject, outputs: Tensor) -> list[str]:
    decided = {"classification": lambda x: x.argmax(1), "multilabel": lambda x: (x > 0).to(x)}
    return [in_words(subject, row) for row in decided.get(subject.task, lambda x: x)(outputs)]


def _curve(rows: Sequence[Row], clean: float, headline: float, found: Found) -> Chart:
    radii = [0.0, *(row.epsilon for row in rows)]
    series = [
        Series(
            name="attack",
            x=radii,
            y=[clean, *(row.accuracy for row in rows)],
            low=[clean, *(row.interval.low for row in rows)],
            high=[clean, *(row.interval.high for row in rows)],
        ),
        Series(name="random noise", x=radii, y=[clean, *(row.noise for row in rows)]),
    ]
    if rows[0].black_box is not None:
        told_black = [clean, *(row.black_box for row in rows)]
        series.append(Series(name="black box", x=radii, y=told_black))
    if found.sizes is not None:
        sizes = found.sizes[~found.clean.broken & torch.isfinite(found.sizes)].sort().values
        left = [clean - k / len(found.sizes) for k in range(len(sizes) + 1)]
        series.append(
            Series(name="smallest changes", x=[0.0, *sizes.tolist()], y=left, mode="lines")
        )
    return Line(
        title="Accuracy under attack",
        x_label="radius",
        y_label="predictions that hold",
        percent=True,
        series=series,
        marks=[Mark(name="headline", x=headline)],
        caption="An upper bound: a stronger attack may break more. The band is a 95 % interval.",
    )


def _driven(rows: Sequence[Row], headline: float, scene: Scene, found: Found) -> list[Chart]:
    if found.goals is None:
        return []
    others = scene.targets != found.goals
    count = int(others.sum())
    there = (found.clean.outputs.argmax(1) == found.goals)[others]
    shares = [float(there.double().mean()), *(row.reached or 0.0 for row in rows)]
    ends = [proportion_interval(round(share * count), count) for share in shares]
    return [
        Line(
            title=f"Predictions driven to {found.goal}",
            x_label="radius",
            y_label="samples of other classes",
            percent=True,
            series=[
                Series(
                    name="attack towards the class",
                    x=[0.0, *(row.epsilon for row in rows)],
                    y=shares,
                    low=[end.low for end in ends],
                    high=[end.high for end in ends],
                )
            ],
            marks=[Mark(name="headline", x=headline)],
            caption="A lower bound: a stronger attack may drive more there. The band is a 95 % "
            "interval.",
        )
    ]


def _gallery(subject: Subject, scene: Scene, level: Level, clean: Attacked) -> list[Chart]:
    rows = (level.found.broken & ~clean.broken).nonzero().flatten()[:SHOWN]
    if not len(rows):
        return []
    before, after = scene.inputs[rows].cpu(), level.found.points[rows].cpu()
    said = [_predicted(subject, made.outputs[rows]) for made in (clean, level.found)]
    trios = _images(before, after)
    samples = list[Sample]()
    for k, place in enumerate(scene.places[rows.cpu()].tolist()):
        if trios:
            words = (f"sample {place}: {said[0][k]}", "the change, enlarged", said[1][k])
            flags = ("", "", "wrong")
            samples += [
                Sample(image=image, caption=text, flag=flag)
                for image, text, flag in zip(trios[k], words, flags, strict=True)
            ]
        else:
            shown = (as_shown(part[k : k + 1])[0].get("inputs", "") for part in (before, after))
            names = ("sample", "prediction", "attacked", "inputs", "changed inputs")
            facts = zip(names, (str(place), said[0][k], said[1][k], *shown), strict=True)
            samples.append(Sample(facts=dict(facts)))
    caption = "Original, change and adversarial input, with the predictions." if trios else ""
    title = f"Predictions broken at radius {level.epsilon:.3g}"
    return [Gallery(title=title, samples=samples, caption=caption)]


def _images(before: Tensor, after: Tensor) -> list[tuple[str, str, str]]:
    """Return original, change and result of every sample, all on one scale."""
    first, last = channels_first(before), channels_first(after)
    count, change = len(first), last - first
    both = as_images(_from_zero_to_one(first, last))
    sizes = change.flatten(1).abs().amax(1).clamp_min(1e-12).reshape(-1, 1, 1, 1)
    middle = as_images(0.5 + 0.5 * change / sizes) if change.ndim == 4 else []
    return list(zip(both[:count], middle, both[count:], strict=True)) if both else []


def _from_zero_to_one(first: Tensor, last: Tensor) -> Tensor:
    whole = torch.cat([first, last])
    low, high = whole.min(), whole.max()
    return whole if low >= 0 and high <= 1 else (whole - low) / (high - low).clamp_min(1e-12)


def _verdict(found: Robustness) -> Verdict:
    row, kept = found.row, found.row.accuracy / max(found.clean, 1e-12)
    kind, label, tone = _case(found, kept)
    most = round_up(row.accuracy, decimals(row.accuracy) + 2)
    sentences = [
        "That is an upper bound: a stronger attack may break more.",
        f"Without an attack {percent(found.clean)} of the {found.split} predictions are right; random "
        f"changes of the same size leave {percent(row.noise)}.",
    ]
    if found.tolerance is not None:
        sentences.append(
            f"A number counts as right within {found.tolerance:.3g} of its target, half a standard "
            "deviation of the targets."
        )
    if not found.signs:
        sentences.append(
            "The model has no gradient, so only attacks that need none were made: random changes"
            + (" and a surrogate." if row.black_box is not None else ".")
        )
    if found.typical is not None:
        sentences.append(
            f"Half of the right predictions break under a change of size {found.typical:.3g} or less."
        )
    if row.reached is not None:
        sentences.append(
            f"Changes of size {row.epsilon:.3g} drive {percent(row.reached)} of the samples of other "
            f"classes to {found.goal}."
        )
    if found.masked:
        signs = "; ".join(sign.sentence for sign in found.signs if sign.found)
        sentences.insert(
            0, f"The model hides its gradient: {signs}. The logits were attacked as well."
        )
    return Verdict(
        kind=kind,
        label=label,
        tone=tone,
        headline=f"At most {percent(most)} of the predictions hold under changes of "
        f"{found.norm.upper().replace('INF', '∞')} size {row.epsilon:.3g}.",
        sentences=tuple(sentences),
        advice=_advice(found, kept),
    )


def _case(found: Robustness, kept: float) -> tuple[str, str, Tone]:
    if found.masked:
        return "masked", "Gradient hidden", "warn"
    return ("weak", "Not robust", "warn") if kept < WEAK else ("holds", "Holds mostly", "neutral")


def _advice(found: Robustness, kept: float) -> tuple[Advice, ...]:
    trained = Advice(
        text="Train on attacked inputs, and compare accuracy with and without attack.",
        remedy="adversarial-training",
    )
    hidden = Advice(
        text="Trust no robustness that rests on a hidden gradient: remove what hides it (a softmax "
        "before the loss, rounding, saturated outputs) and attack again."
    )
    return (hidden,) * found.masked + (trained,) * (kept < WEAK and bool(found.signs))
