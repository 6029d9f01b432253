"""What lipschitz found: both bounds, the layers and certified radii, as text, page, JSON and CSV."""

import csv
import dataclasses
import io
import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from mindgap.core import (
    Advice,
    Bar,
    Chart,
    Line,
    Scatter,
    Series,
    Subject,
    Which,
    proportion_interval,
)
from mindgap.jobs.lipschitz.around import Nearby, nearby_charts, nearby_sentence
from mindgap.ops.lipschitz.lower import Lower
from mindgap.ops.lipschitz.upper import Part, Upper
from mindgap.ops.norms.layer_norms import LayerNorm
from mindgap.report.parts import Answer, Tone, Verdict

WIDE = 2.0  # ratio of the bounds above which they say little
SHOWN = 12  # samples with a ball in the terminal
METHODS = {
    "tight": "one certificate for the whole network",
    "parts": "a product of certificates of its parts",
    "product": "the product and sums of layer norms",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lipschitz(Answer):
    """The Lipschitz constant from below and above; ``print`` shows both.

    Args:
        name: The subject's name.
        split: The split whose predictions were certified.
        lower: The largest slope that was found.
        upper: The certified bound; None if the model has none.
        method: How the upper bound was made: ``"tight"``, ``"parts"`` or ``"product"``.
        product: The product and sums of layer norms; None if there is none.
        data: The largest slope at the training samples.
        reason: Why the network was not bounded at once.
        pairs: Whether a radius uses the constant of each pair of outputs instead of √2 times that
            of all.
        parts: What was bounded on its own.
        layers: The constant of every layer.
        radii: The Euclidean radii of the curve.
        accuracy: The certified accuracy at each.
        clean: The accuracy without any change; None if the task is no classification.
        samples: One dict per sample: its place and certified radius.
        local: What is certain in balls around some samples.
        charts: The curve, the bounds, the layers and the balls.
    """

    template = "lipschitz.html"

    name: str
    split: str
    lower: float
    upper: float | None
    method: str
    product: float | None
    data: float
    reason: str
    pairs: bool
    parts: tuple[Part, ...]
    layers: tuple[LayerNorm, ...]
    radii: tuple[float, ...]
    accuracy: tuple[float, ...]
    clean: float | None
    samples: tuple[dict[str, Any], ...]
    local: tuple[Nearby, ...]
    charts: tuple[Chart, ...]

    @property
    def ratio(self) -> float | None:
        """The upper bound over the lower; the truth lies between them."""
        return None if self.upper is None or self.lower <= 0 else self.upper / self.lower

    @property
    def verdict(self) -> Verdict:
        """The result in words."""
        return _verdict(self)

    @property
    def how(self) -> str:
        """How the upper bound was made, in words."""
        return METHODS[self.method]

    @property
    def balls(self) -> tuple[tuple[str, ...], ...]:
        """What is certain around samples, in words: bounds are never rounded in their favor."""
        return tuple(
            (
                str(row.sample),
                _down(row.ball),
                _down(row.slope),
                _up(row.constant),
                f"{math.floor(100 * row.fixed)} %",
                "—" if row.radius is None else _down(row.radius),
                "—" if row.wide is None else _down(row.wide),
            )
            for row in self.local
        )

    def further(self) -> dict[str, Any]:
        """Return how far apart the bounds are."""
        return {"ratio": self.ratio}

    def text(self) -> str:
        """Write the verdict and both bounds."""
        rows = [
            ("certified upper bound", _up(self.upper)),
            ("product of layer norms", _up(self.product)),
            ("largest slope found", _down(self.lower)),
            ("largest slope at the data", _down(self.data)),
        ]
        lines = [self.verdict.headline, *self.verdict.sentences, ""]
        lines += [f"  {name:<26}{value:>10}" for name, value in rows]
        if self.clean is not None and self.upper is not None:
            lines += ["", f"  {'radius':>9}  certified accuracy"]
            step = max(1, len(self.radii) // 8)
            shown = list(zip(self.radii, self.accuracy, strict=True))[::step]
            lines += [f"  {radius:>9.4g}  {share:>8.1%}" for radius, share in shown]
        if self.local:
            table = [("sample", "ball", "slope", "constant", "fixed", "radius"), *self.balls]
            lines += [
                "",
                *("  " + "".join(f"{cell:>10}" for cell in row[:6]) for row in table[: SHOWN + 1]),
            ]
        return "\n".join(lines)

    def csv(self) -> str:
        """Return one line per sample; what is only known of some is empty for the others."""
        file = io.StringIO()
        near = {row.sample: _columns(row) for row in self.local}
        own = {row["sample"]: row for row in self.samples}
        names = ["sample", "certified radius", *next(iter(near.values()), {})]
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        for sample in sorted({*own, *near}):
            writer.writerow({"sample": sample, **own.get(sample, {}), **near.get(sample, {})})
        return file.getvalue()

    def drawn(self) -> dict[str, Sequence[Chart]]:
        """Show the curve, both bounds, the layers and the balls."""
        others = [chart for chart in self.charts if not isinstance(chart, Line | Scatter)]
        return {
            "curve": [chart for chart in self.charts if isinstance(chart, Line)],
            "bounds": others[:1],
            "layers": others[1:],
            "local": [chart for chart in self.charts if isinstance(chart, Scatter)],
        }


def told(
    subject: Subject,
    which: Which,
    places: Tensor,
    upper: Upper,
    lower: Lower,
    layers: Sequence[LayerNorm],
    certified: Tensor | None,
    radii: Sequence[float],
    local: tuple[Nearby, ...],
) -> Lipschitz:
    """Put what was found into plain data and charts."""
    bound = upper.upper if math.isfinite(upper.upper) else None
    known = certified if bound is not None else None
    accuracy = () if known is None else tuple(float((known > r).double().mean()) for r in radii)
    wrong = subject.errors(which).cpu()[places]
    clean = None if certified is None else 1 - float(wrong.double().mean())
    samples = [] if known is None else list(zip(places.tolist(), known.tolist(), strict=True))
    return Lipschitz(
        name=subject.name,
        split=which,
        lower=lower.lower,
        upper=bound,
        method=upper.method,
        product=upper.product if math.isfinite(upper.product) else None,
        data=lower.data,
        reason=upper.reason,
        pairs=upper.outputs is not None,
        parts=upper.parts,
        layers=tuple(layers),
        radii=tuple(radii) if known is not None else (),
        accuracy=accuracy,
        clean=clean,
        samples=tuple({"sample": k, "certified radius": radius} for k, radius in samples),
        local=local,
        charts=(
            *_charts(upper, lower, layers, radii, accuracy, len(places)),
            *(nearby_charts(local, upper.upper) if local else ()),
        ),
    )


def _charts(
    upper: Upper,
    lower: Lower,
    layers: Sequence[LayerNorm],
    radii: Sequence[float],
    accuracy: Sequence[float],
    count: int,
) -> tuple[Chart, ...]:
    rows = {
        "product of layer norms": upper.product,
        "certified upper bound": upper.upper,
        "largest slope found": lower.lower,
        "largest slope at the data": lower.data,
    }
    finite = {name: value for name, value in rows.items() if math.isfinite(value)}
    bounds = Bar.of(
        finite,
        title="The Lipschitz constant, from above and from below",
        caption="The constant lies between the certified bound and the largest slope found.",
    )
    weighted = {
        row.name or row.kind: row.upper
        for row in layers
        if row.kind not in ("shape", "activation") and math.isfinite(row.upper)
    }
    charts: list[Chart] = [bounds]
    if weighted:
        charts.append(Bar.of(weighted, title="The constant of every layer"))
    return (*([_curve(radii, accuracy, count)] if accuracy else []), *charts)


def _curve(radii: Sequence[float], accuracy: Sequence[float], count: int) -> Chart:
    ends = [proportion_interval(round(share * count), count) for share in accuracy]
    return Line(
        title="Certified accuracy over radius",
        x_label="Euclidean radius",
        y_label="predictions that are certainly right",
        percent=True,
        series=[
            Series(
                name="certified",
                x=list(radii),
                y=list(accuracy),
                low=[end.low for end in ends],
                high=[end.high for end in ends],
            )
        ],
        caption="A lower bound of the accuracy under any attack of this size. The band is a 95 % "
        "interval for the samples that were not drawn.",
    )


def _verdict(found: Lipschitz) -> Verdict:
    kind, label, tone = _case(found)
    sentences = [
        f"The model has a slope of {_down(found.lower)} somewhere; at the training samples the largest "
        f"is {_down(found.data)}.",
    ]
    if found.upper is None:
        headline = f"No upper bound: {found.reason}."
    else:
        headline = f"The Lipschitz constant is between {_down(found.lower)} and {_up(found.upper)}."
        sentences.append(f"The upper bound is proved for all inputs, by {found.how}.")
        if found.method != "tight" and found.reason:
            sentences.append(f"The network was not bounded at once: {found.reason}.")
    if found.samples:
        middle = sorted(row["certified radius"] for row in found.samples)[len(found.samples) // 2]
        sentences.append(
            f"Half of the {found.split} predictions hold under every change of Euclidean size up to "
            f"{_down(middle)}."
        )
    if found.local:
        sentences.append(nearby_sentence(found.local))
    return Verdict(
        kind=kind,
        label=label,
        tone=tone,
        headline=headline,
        sentences=tuple(sentences),
        advice=_advice(found),
    )


def _case(found: Lipschitz) -> tuple[str, str, Tone]:
    if found.upper is None:
        return "unbounded", "No bound", "warn"
    if found.ratio is not None and found.ratio <= WIDE:
        return "known", "Known closely", "neutral"
    return "wide", "Known roughly", "neutral"


def _advice(found: Lipschitz) -> tuple[Advice, ...]:
    if found.upper is None or found.ratio is None or found.ratio <= WIDE:
        return ()
    return (
        Advice(
            text="The bounds are far apart. Attack the model to see how many predictions really "
            "break.",
            code="mindgap.attack(subject, norm='l2')",
        ),
    )


def _columns(row: Nearby) -> dict[str, Any]:
    return {
        "ball": row.ball,
        "slope": row.slope,
        "local constant": row.constant,
        "fixed activations": row.fixed,
        "local radius": "" if row.radius is None else row.radius,
    }


def _up(value: float | None) -> str:
    """Write four digits; an upper bound is never rounded down."""
    return "none" if value is None else _digits(value, math.ceil)


def _down(value: float) -> str:
    return _digits(value, math.floor)


def _digits(value: float, towards: Callable[[float], int]) -> str:
    if not value > 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{towards(value / unit) * unit:.4g}"
