"""What initialize found: every choice of weights, judged, as text, page, JSON and CSV."""

import csv
import dataclasses
import io
import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from torch import nn

from mindgap.core import Advice, Chart, Line, Mark
from mindgap.core.chart.numbers import number
from mindgap.diagnoses.training import bad_initialization as bad
from mindgap.diagnoses.training.exploding_gradients import ExplodingGradients
from mindgap.diagnoses.training.vanishing_gradients import VanishingGradients
from mindgap.ops.initialization.propagation import LayerVariance, Propagation, curve
from mindgap.ops.initialization.reinitialize import kept_notice
from mindgap.ops.signal.depth import BLOWN, LOST, Profile
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
class Weights:
    """What becomes of signals and gradients with one choice of weights.

    Args:
        name: A scheme, or "initial" or "as it is" for the network's own.
        state: "healthy", or what is wrong.
        sentences: What is wrong, in words.
        forward: Factor per layer of the mean square of what leaves a layer; None if unknown.
        backward: The same of gradients, from the last layer to the first.
        signal: Orders of magnitude by which the signal's variance changes at worst.
        signal_from: The layer from which on it vanishes or explodes.
        gradient: Orders of magnitude by which the gradient's norm changes at worst.
        gradient_from: The layer where it vanishes or explodes.
        steps: Whether only that is wrong, and only along the steps of a sequence.
        share: The larger of both as a share of its limit: above one, something is wrong.
        signals: The signal's variance at every layer, divided by that at the first.
        gradients: The gradient's norm at every layer, divided by that at the last.
        layers: Predicted and measured second moments.
        refused: Places without a prediction, and why.
        approximated: Places where the prediction is approximate, and how.
    """

    name: str
    state: str
    sentences: tuple[str, ...]
    forward: float | None
    backward: float | None
    signal: float | None
    signal_from: str
    gradient: float | None
    gradient_from: str
    steps: bool
    share: float
    signals: dict[str, float]
    gradients: dict[str, float]
    layers: tuple[LayerVariance, ...]
    refused: dict[str, str]
    approximated: dict[str, str]

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table of schemes."""
        growth = (_number(self.forward), _number(self.backward))
        worst = (_decades(self.signal), _decades(self.gradient))
        return (self.name, *growth, *worst, self.signal_from or self.gradient_from, self.state)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The table of layers."""
        return [
            (
                row.name or "(model)",
                *map(_short, (row.forward, row.predicted_forward, row.signal)),
                *map(_short, (row.backward, row.predicted_backward)),
            )
            for row in self.layers
        ]


def weights_of(name: str, where: str, found: Propagation) -> Weights:
    """Judge signals and gradients by the limits of the diagnoses of both.

    Args:
        name: Of the weights.
        where: In which network, for the sentences.
        found: Its second moments.
    """
    course, trace = bad.signal_course(found), found.gradients
    troubles, blamed, steps = list[tuple[str, str]](), "", False
    if course is None:
        first = found.layers[0]
        what = "The same for every sample" if math.isfinite(first.signal) else "No finite number"
        troubles.append(("no signal", f"{what} leaves layer {first.name!r} {where}."))
    elif course.verb:
        state = "vanishing signals" if course.verb == "vanish" else "exploding signals"
        troubles.append((state, course.told(where)))
    if trace is None:
        troubles.append(("no gradient", f"No finite gradient reaches the layers {where}."))
    else:
        for diagnosis in (ExplodingGradients, VanishingGradients):
            wrong = diagnosis.blamed(trace)
            if wrong is not None:
                blamed, steps = wrong[0], not troubles and wrong[2] != "layer"
                troubles.append((f"{diagnosis.state} gradient", diagnosis.told(*wrong)))
    profiles = [] if trace is None else [trace.profile, *map(Profile, trace.times.values())]
    changes = [size for one in profiles for size in (_log(one.least), _log(one.most))]
    gradient = max(changes, key=abs, default=None)
    limit = bad.GAINED if course is not None and course.worst > 0 else bad.LOST
    return Weights(
        name=name,
        state=troubles[0][0] if troubles else "healthy",
        sentences=tuple(sentence for _, sentence in troubles),
        forward=_finite(found.forward_growth),
        backward=_finite(found.backward_growth),
        signal=None if course is None else course.worst,
        signal_from=course.begins if course is not None and course.verb else "",
        gradient=gradient,
        gradient_from=blamed,
        steps=steps,
        share=max(
            math.inf if course is None else abs(course.worst) / limit,
            math.inf if gradient is None else abs(gradient) / _log(BLOWN),
        ),
        signals={} if course is None else _relative(course.names, course.signals, 0),
        gradients={} if trace is None else _relative(trace.layers, [*trace.layers.values()], -1),
        layers=found.layers,
        refused=dict(found.refused),
        approximated=dict(found.approximated),
    )


def _relative(names: Iterable[str], values: Sequence[float], to: int) -> dict[str, float]:
    return {name: value / (values[to] or 1.0) for name, value in zip(names, values, strict=True)}


def _log(ratio: float) -> float:
    return math.log10(max(ratio, 10**-bad.ENDLESS))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


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
        return tuple(f"{limit:g}" for limit in (bad.LOST, bad.GAINED, _log(BLOWN)))

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
        caption="Dotted lines: beyond them networks do not train.",
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
        better = "No scheme does better." if own.share <= best.share else _changes(best)
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
        f"{where} the signal's variance changes by a factor of 10^{_decades(row.signal)} at worst, and "
        f"the gradient's norm by 10^{_decades(row.gradient)}."
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


def _number(value: float | None) -> str:
    return number(value, 3)


def _short(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}"


def _decades(value: float | None) -> str:
    if value is None:
        return "—"
    if abs(value) >= bad.ENDLESS:
        return "∞" if value > 0 else "−∞"
    return f"{value:.1f}".replace("-", "−")
