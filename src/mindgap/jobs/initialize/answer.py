"""What initialize found: every choice of weights, judged, as text, page, JSON and CSV."""

import csv
import dataclasses
import io
import json
import math
import textwrap
from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

from mindgap.core import Advice, Chart, Line, Mark
from mindgap.diagnoses.training import bad_initialization as bad
from mindgap.diagnoses.training.vanishing_gradients import VanishingGradients
from mindgap.jobs.initialize.weights import Weights, decades
from mindgap.ops.initialization.propagation import LayerVariance, curve
from mindgap.ops.initialization.reinitialize import kept_notice
from mindgap.ops.signal.depth import BLOWN, LOST
from mindgap.report.parts import Answer, Tone, Verdict

Origin = Literal["initial", "recipe", "model"]
ORIGINS: dict[Origin, str] = {
    "initial": "The weights are those from before training, which the subject keeps.",
    "recipe": "The weights are those that the recipe begins with.",
    "model": "The weights from before training are unknown: these are the model's own, trained or "
    "not.",
}
PLACES: dict[Origin, str] = {
    "initial": "in the initial network",
    "recipe": "in the initial network",
    "model": "in the network as it is",
}
LIMITS = (
    f"{bad.WITHIN} Of their gradient, at least {100 * LOST:g} % is left at every layer, and it grows "
    f"less than {BLOWN:,.0f} times."
)
SHOWN = 24  # layers in the terminal
LEGEND = (
    "forward, backward: factor of the mean square per layer. signal, gradient: orders of magnitude "
    "of the signal's variance and of the gradient's norm, at worst."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Initialization(Answer):
    """How signals and gradients pass a network; ``print`` shows the verdict and the tables.

    Args:
        name: The subject's name.
        origin: Whether the network's own weights are the subject's "initial" ones, those that its
            "recipe" begins with, or the "model"'s as they are.
        samples: How many training samples were followed.
        fan: Of the schemes.
        gain: Of the schemes; None if it followed from the pass.
        seed: Of the draws.
        weights: The network's own weights, then those of every scheme.
        suggested: The scheme that stays furthest from the limits.
        kept: Weights that no scheme changes, because no rule is known for them.
        model: A copy with the suggested weights.
        charts: Signals and gradients by scheme, and both second moments with their predictions.
    """

    template = "initialize.html"

    name: str
    origin: Origin
    samples: int
    fan: str
    gain: float | None
    seed: int
    weights: tuple[Weights, ...]
    suggested: str
    kept: tuple[str, ...]
    model: nn.Module = dataclasses.field(repr=False, compare=False)
    charts: tuple[Chart, ...]

    @property
    def own(self) -> Weights:
        """The network's own weights."""
        return self.weights[0]

    @property
    def best(self) -> Weights:
        """Those of the suggested scheme."""
        return next(row for row in self.weights[1:] if row.name == self.suggested)

    @property
    def verdict(self) -> Verdict:
        """The result in words."""
        return _verdict(self)

    @property
    def limits(self) -> tuple[str, ...]:
        """Orders of magnitude that signals may lose and gain, and gradients may change."""
        return tuple(f"{limit:g}" for limit in (bad.LOST, bad.GAINED, math.log10(BLOWN)))

    def mark(self, row: Weights) -> str:
        """Return an asterisk for the suggested scheme.

        Args:
            row: Any of the weights.
        """
        return "*" if row is self.best else ""

    def further(self) -> dict[str, Any]:
        """Return the verdict in short."""
        return {"verdict": self.verdict.kind, "headline": self.verdict.headline}

    def drawn(self) -> dict[str, Sequence[Chart]]:
        """Show the schemes, then the layers."""
        return {"depth": self.charts[:2], "layers_charts": self.charts[2:]}

    def text(self) -> str:
        """Write the verdict, the schemes and the layers."""
        from mindgap.report import text as terminal

        room = terminal.room_of(None)
        head = ("weights", "forward", "backward", "signal", "gradient", "from layer", "state")
        rows = [(f"{row.name}{self.mark(row)}", *row.cells[1:]) for row in self.weights]
        blocks = [terminal.verdict(self.verdict, room), terminal.table(head, rows, room)]
        blocks[1] += ["", *textwrap.wrap(f"* suggested. {LEGEND}", room)]
        columns = ("layer", "forward", "predicted", "signal", "backward", "predicted")
        for row in (self.own, self.best):
            shown = [*row.rows]
            if len(shown) > SHOWN:
                left = len(shown) - SHOWN
                shown[SHOWN // 2 : -SHOWN // 2] = [(f"… {left} more", "", "", "", "", "")]
            blocks.append([f"{row.name}:", *terminal.table(columns, shown, room)])
        return "\n\n".join("\n".join(block) for block in blocks)

    def csv(self) -> str:
        """Return one line per layer, of the network's own weights and of every scheme."""
        file = io.StringIO()
        fields = [field.name for field in dataclasses.fields(LayerVariance)]
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["weights", "layer", *fields[1:]])
        for row in self.weights:
            writer.writerows([row.name, *dataclasses.astuple(layer)] for layer in row.layers)
        return file.getvalue()


def told(
    name: str,
    origin: Origin,
    weights: Sequence[Weights],
    **settings: Any,
) -> Initialization:
    """Put what was found into plain data and charts.

    Args:
        name: The subject's name.
        origin: Where the network's own weights are from.
        weights: Those, then those of the schemes.
        **settings: The other fields.
    """
    best = next(row for row in weights[1:] if row.name == settings["suggested"])
    return Initialization(
        name=name,
        origin=origin,
        weights=tuple(weights),
        charts=(
            _depth(weights, "signals", (10**-bad.LOST, 10**bad.GAINED)),
            _depth(weights, "gradients", (LOST, BLOWN)),
            *(_layers((weights[0], best), what) for what in ("forward", "backward")),
        ),
        **settings,
    )


def _depth(weights: Sequence[Weights], what: str, limits: tuple[float, float]) -> Line:
    title, end = {
        "signals": ("Variance of the signal over depth", "first"),
        "gradients": ("Norm of the gradient over depth", "last"),
    }[what]
    series = [curve(row.name, [*getattr(row, what).values()]) for row in weights]
    return Line(
        title=title,
        x_label="layer",
        y_label=f"relative to the {end} layer",
        y_scale="log",
        series=[each for each in series if each.x],
        marks=[Mark(name="beyond healthy networks", y=limit) for limit in limits],
        caption="Healthy networks stay between the dotted lines.",
    )


def _layers(pair: Sequence[Weights], what: str) -> Line:
    series = [
        curve(f"{row.name}, {kind}", [getattr(layer, key) for layer in row.layers])
        for row in pair
        for kind, key in (("measured", what), ("predicted", f"predicted_{what}"))
    ]
    return Line(
        title=f"Second moments by depth, {what}",
        x_label="layer",
        y_label="mean square of the gradient" if what == "backward" else "mean square",
        y_scale="log",
        series=[each for each in series if each.x],
    )


def _verdict(found: Initialization) -> Verdict:
    own, best, where = found.own, found.best, PLACES[found.origin]
    healthy = own.state == "healthy"
    if healthy:
        headline = f"Signals and gradients are healthy {where}."
        none = f"No scheme does better; {best.name} comes nearest."
        better = none if own.share <= best.share else _changes(best)
        sentences = [_changes(own), better]
    else:
        headline, *more = own.sentences
        nearest = f"No scheme keeps both healthy; {best.name} comes nearest."
        sentences = [*more, *([_changes(best)] if best.state == "healthy" else [nearest])]
    kept = [kept_notice(found.kept)] if found.kept else []
    tone: Tone = "good" if healthy else "warn" if own.steps else "bad"
    return Verdict(
        kind=own.state,
        label=own.state.capitalize(),
        tone=tone,
        headline=headline,
        sentences=(*sentences, LIMITS, ORIGINS[found.origin], *kept),
        advice=() if healthy else tuple(_advice(found)),
    )


def _changes(row: Weights) -> str:
    where = "Here" if row.name in ("initial", "as it is") else f"With {row.name}"
    return (
        f"{where} the signal's variance changes by a factor of 10^{decades(row.signal)} at worst, and "
        f"the gradient's norm by 10^{decades(row.gradient)}."
    )


def _advice(found: Initialization) -> list[Advice]:
    instead = VanishingGradients.advice[0] if "gradient" in found.own.state else bad.INSTEAD
    if found.best.state != "healthy":
        text = instead.text.removeprefix("Or ")
        return [Advice(text=text[0].upper() + text[1:])]
    given = {"fan": found.fan, "gain": found.gain, "seed": found.seed}
    usual = {"fan": "in", "gain": None, "seed": 0}
    more = "".join(f", {k}={json.dumps(v)}" for k, v in given.items() if v != usual[k])
    lost = "; what these weights have learned is lost" if found.origin == "model" else ""
    code = f"model = mindgap.reinitialized(model, inputs, scheme={json.dumps(found.suggested)}{more})  # a copy"
    return [
        Advice(text=f"Initialize with {found.suggested}, then train{lost}.", code=code),
        instead,
    ]
