"""What monitor found: the verdict in words, layers and units as rows, charts, page and JSON."""

import dataclasses
from typing import Any

from mindgap.core import Advice, Chart
from mindgap.report.parts import Answer, Verdict
from mindgap.training.monitor.judge import Judgement, Layer

CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), {limit:g})  # before optimizer.step()"
KAIMING = """for module in model.modules():
    if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):
        torch.nn.init.{call}
        if module.bias is not None:
            torch.nn.init.zeros_(module.bias)"""
RELU = "kaiming_normal_(module.weight, nonlinearity='relu')"
TANH = "xavier_normal_(module.weight, gain=torch.nn.init.calculate_gain('tanh'))"
ORTHOGONAL = """for name, weight in model.named_parameters():
    if "recurrent" in name or "weight_hh" in name:
        if weight.ndim == 2:
            torch.nn.init.orthogonal_(weight)"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watched(Judgement, Answer):
    """What the log of a training says; ``print`` shows it.

    Args:
        name: The class of the model.
        steps: The last step.
        every: Steps between two readings.
        loss: The last loss; None if none was noted.
        charts: Loss, gradient, depth, updates and units.
    """

    template = "monitor.html"

    name: str
    steps: int
    every: int
    loss: float | None
    charts: tuple[Chart, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return self.kind in ("healthy", "nothing")

    @property
    def verdict(self) -> Verdict:
        """The result in words."""
        return _verdict(self)

    def further(self) -> dict[str, Any]:
        """Return the verdict in short."""
        return {
            "verdict": self.verdict.kind,
            "headline": self.verdict.headline,
            "layer": self.layer,
        }

    def text(self) -> str:
        """Write the verdict, the layers and the units."""
        return _text(self)


def _verdict(found: Watched) -> Verdict:
    kind = found.kind
    label, tone = {
        "not finite": ("Not finite", "bad"),
        "dead": ("Dead units", "bad"),
        "saturated": ("Saturated units", "bad"),
        "exploding": ("Exploding gradient", "bad"),
        "vanishing": ("Vanishing gradient", "bad"),
        "spikes": ("Loss spikes", "warn"),
        "healthy": ("Healthy", "good"),
        "nothing": ("Nothing to judge yet", "neutral"),
    }[kind]
    return Verdict(
        kind=kind,
        label=label,
        tone=tone,  # type: ignore[arg-type]
        headline=_headline(found, kind),
        sentences=tuple(_sentences(found, kind)),
        advice=tuple(_advice(found, kind)),
    )


def _headline(found: Watched, kind: str) -> str:
    if kind == "not finite":
        return f"{found.trouble['what'].capitalize()} is no finite number at step {found.trouble['step']:,}."
    units = found.worst_units
    if units is not None and kind in ("dead", "saturated"):
        verb = "never fire" if kind == "dead" else "are saturated for nearly all samples"
        count = round(max(units.dead, units.saturated) * units.units)
        return f"Of the {units.units} units of layer {units.place!r}, {count} {verb}."
    if found.first is not None:
        return _depth_headline(found, kind)
    if kind == "spikes":
        first = found.spikes[0]
        times = "once" if len(found.spikes) == 1 else f"{len(found.spikes)} times"
        return (
            f"The loss jumped up {times}, first at step {first.step:,}: from {first.before:.3g} to "
            f"{first.loss:.3g}."
        )
    if kind == "nothing":
        return "The log holds no reading yet."
    return "Gradients, updates and activations are within what healthy networks show."


def _depth_headline(found: Watched, kind: str) -> str:
    timed = [layer for layer in found.layers if layer.over_time and layer.name == found.layer]
    if timed:
        return (
            f"The gradient {_verb(kind)} over the {timed[0].steps} steps of layer "
            f"{found.layer!r}, by a factor of {timed[0].rate or 0:.2g} per step."
        )
    if found.culprit:
        return f"The gradient {_verb(kind)} at layer {found.culprit!r}."
    pace = "" if found.rate is None else f", by a factor of {found.rate:.2g} per layer"
    return f"The gradient {_verb(kind)} with depth{pace}: from layer {found.layer!r} to the input."


def _verb(kind: str) -> str:
    return "vanishes" if kind == "vanishing" else "explodes"


def _sentences(found: Watched, kind: str) -> list[str]:
    told = [f"{found.steps:,} steps, {found.readings:,} readings."]
    if kind in ("vanishing", "exploding"):
        bad = [layer for layer in found.layers if layer.state == kind]
        told.insert(0, _extent(kind, bad))
    if kind == "not finite":
        names = found.trouble.get("gradients") or []
        if found.culprit:
            told.insert(
                0, f"Before, the gradient changed out of bounds at layer {found.culprit!r}."
            )
        if names:
            told.insert(
                0, f"Gradients that are none there, from the output on: {', '.join(names)}."
            )
    if found.rate is not None and "per layer" not in _headline(found, kind):
        told.append(
            f"Per layer the gradient changes by a factor of {found.rate:.2g} on its way back."
        )
    if found.skipped:
        told.append(f"A gradient scaler left out {found.skipped} steps.")
    if found.spikes and kind != "spikes":
        told.append(f"The loss jumped up at {len(found.spikes)} steps.")
    return told


def _extent(kind: str, bad: list[Layer]) -> str:
    if kind == "vanishing":
        least = min(layer.reach or 0.0 for layer in bad)
        return (
            f"At {len(bad)} of the layers less than 0.01 % of it is left; the least is {least:.1e}."
        )
    most = max(layer.growth or 0.0 for layer in bad)
    return (
        f"At {len(bad)} of the layers it has grown more than 10,000 times; the most is {most:.1e}."
    )


def _advice(found: Watched, kind: str) -> list[Advice]:
    recurrent = any(layer.steps for layer in found.layers if layer.state == kind)
    call = RELU if any("relu" in row.function for row in found.units) else TANH
    initialize = Advice(
        text="Initialize so that the variance stays constant from layer to layer.",
        code=KAIMING.format(call=call),
    )
    orthogonal = Advice(
        text="Begin with an orthogonal recurrent matrix, or use a GRU or an LSTM.", code=ORTHOGONAL
    )
    normalize = Advice(
        text="Or put LayerNorm or BatchNorm before the activations, or add skip connections."
    )
    clip = Advice(
        text=f"Clip the gradient at {found.clip or 1:g}, which nine of ten steps stay below.",
        code=CLIP.format(limit=found.clip or 1),
        remedy="gradient-clipping",
    )
    relu = Advice(text="Use ReLU: the slope of a sigmoid is at most a quarter.")
    squashed = [relu] * any(row.function == "sigmoid" for row in found.units)
    smaller = Advice(text="Use a smaller learning rate, with a warm-up over the first steps.")
    start = orthogonal if recurrent else initialize
    return {
        "not finite": [clip, smaller],
        "dead": [initialize, Advice(text="Or use LeakyReLU or GELU, and a smaller learning rate.")],
        "saturated": [initialize, Advice(text="Scale the inputs to mean 0 and variance 1.")],
        "exploding": [start, clip, normalize],
        "vanishing": [*squashed, start, normalize],
        "spikes": [clip, smaller],
    }.get(kind, [])


def _text(found: Watched) -> str:
    verdict = found.verdict
    advice = [f"- {row.text}" for row in verdict.advice]
    lines = [f"{verdict.label}: {verdict.headline}", *verdict.sentences, *advice]
    if found.layers:
        head = (
            "layer",
            "gradient",
            "weight",
            "grad/weight",
            "update/weight",
            "output",
            "left",
            "state",
        )
        lines += ["", *_table([head, *map(_row, found.layers)])]
    if found.units:
        rows = [
            (row.place, row.function, str(row.units), f"{row.dead:.0%}", f"{row.saturated:.0%}")
            for row in found.units
        ]
        lines += ["", *_table([("activation", "function", "units", "dead", "saturated"), *rows])]
    return "\n".join(lines)


def _row(layer: Layer) -> tuple[str, ...]:
    numbers = (
        layer.gradient,
        layer.weight,
        layer.gradient_to_weight,
        layer.update_to_weight,
        layer.activation,
        layer.reach,
    )
    return (
        layer.name or "(model)",
        *("—" if n is None else f"{n:.2g}" for n in numbers),
        layer.state,
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
