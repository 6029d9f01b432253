"""What attack found: the curve, the signs of masking, the samples, as text, page, JSON and CSV."""

import csv
import dataclasses
import io
from collections.abc import Sequence
from typing import Any

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
    """

    epsilon: float
    accuracy: float
    interval: Interval
    noise: float
    black_box: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Robustness(Answer):
    """How many predictions hold under attack; ``print`` shows the curve.

    Args:
        name: The subject's name.
        norm: The norm of the changes.
        split: The split that was attacked.
        clean: The accuracy without an attack.
        headline: The radius of the headline.
        rows: One per radius.
        signs: What was looked for to tell a hidden gradient.
        samples: One dict per sample: its place, target, predictions, and the smallest radius
            that broke it.
        charts: The curve, and samples to look at.
    """

    name: str
    norm: str
    split: str
    clean: float
    headline: float
    rows: tuple[Row, ...]
    signs: tuple[Sign, ...]
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

    def text(self) -> str:
        """Write the verdict and the curve as a table."""
        rows = [
            f"  {row.epsilon:>9.4g}  {percent(row.accuracy):>8}  {percent(row.interval.low):>7} to "
            f"{percent(row.interval.high):<7}  {percent(row.noise):>8}  "
            + ("" if row.black_box is None else f"{percent(row.black_box):>9}")
            for row in self.rows
        ]
        head = f"  {'radius':>9}  {'attacked':>8}  {'95 % interval':>18}  {'noise':>8}  black box"
        lines = [self.verdict.headline, *self.verdict.sentences, "", head, *rows]
        return "\n".join(line.rstrip() for line in lines)

    def csv(self) -> str:
        """Return one line per sample."""
        file = io.StringIO()
        names = list(self.samples[0]) if self.samples else []
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.samples)
        return file.getvalue()

    def page(self) -> str:
        """Write the answer as a whole page."""
        from mindgap.report.pages.attack import attack_page

        return attack_page(self)


def told(
    subject: Subject,
    which: Which,
    scene: Scene,
    found: Sequence[Level],
    headline: Level,
    seen: Sequence[Sign],
    clean: Attacked,
) -> Robustness:
    """Put what the attacks found into plain data and charts."""
    rows = tuple(_row(level) for level in found)
    accuracy = clean.robust_accuracy
    return Robustness(
        name=subject.name,
        norm=scene.threat.norm,
        split=which,
        clean=accuracy,
        headline=headline.epsilon,
        rows=rows,
        signs=tuple(seen),
        samples=tuple(_samples(subject, scene, found, headline, clean)),
        charts=(
            _curve(rows, accuracy, headline.epsilon),
            *_gallery(subject, scene, headline, clean),
        ),
    )


def _row(level: Level) -> Row:
    black = None if level.black_box is None else level.black_box.robust_accuracy
    return Row(
        epsilon=level.epsilon,
        accuracy=level.accuracy,
        interval=level.interval,
        noise=level.noise.robust_accuracy,
        black_box=black,
    )


def _samples(
    subject: Subject, scene: Scene, found: Sequence[Level], headline: Level, clean: Attacked
) -> list[dict[str, Any]]:
    before, after = (_predicted(subject, made.outputs) for made in (clean, headline.found))
    broken = [level.found.broken.tolist() for level in found]
    wrong = clean.broken.tolist()
    smallest = [
        next((level.epsilon for level, row in zip(found, broken, strict=True) if row[k]), "")
        for k in range(len(wrong))
    ]
    return [
        {
            "sample": place,
            "target": in_words(subject, scene.targets[k]),
            "prediction": before[k],
            "attacked": after[k],
            "smallest radius": 0.0 if wrong[k] else smallest[k],
        }
        for k, place in enumerate(scene.places.tolist())
    ]


def _predicted(subject: Subject, outputs: Tensor) -> list[str]:
    decided = {"classification": lambda x: x.argmax(1), "multilabel": lambda x: (x > 0).to(x)}
    return [in_words(subject, row) for row in decided.get(subject.task, lambda x: x)(outputs)]


def _curve(rows: Sequence[Row], clean: float, headline: float) -> Chart:
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
    return Line(
        title="Accuracy under attack",
        x_label="radius",
        y_label="predictions that hold",
        percent=True,
        series=series,
        marks=[Mark(name="headline", x=headline)],
        caption="An upper bound: a stronger attack may break more. The band is a 95 % interval.",
    )


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
        f"Without an attack {percent(found.clean)} of the {found.split} predictions are right; random "
        f"changes of the same size leave {percent(row.noise)}.",
        "It is an upper bound: a stronger attack may break more.",
    ]
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
    return (hidden,) * found.masked + (trained,) * (kept < WEAK)
