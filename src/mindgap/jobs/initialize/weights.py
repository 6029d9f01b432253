"""What becomes of signals and gradients with one choice of weights, judged as the diagnoses do."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from mindgap.core.chart.numbers import number
from mindgap.diagnoses.training.bad_initialization import ENDLESS, GAINED, LOST, signal_course
from mindgap.diagnoses.training.exploding_gradients import ExplodingGradients
from mindgap.diagnoses.training.vanishing_gradients import VanishingGradients
from mindgap.ops.initialization.propagation import LayerVariance, Propagation
from mindgap.ops.signal.depth import BLOWN, Profile


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
        worst = (decades(self.signal), decades(self.gradient))
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
    course, trace = signal_course(found), found.gradients
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
                blamed, steps = wrong.name, not troubles and wrong.per != "layer"
                troubles.append((f"{diagnosis.state} gradient", diagnosis.told(wrong)))
    profiles = [] if trace is None else [trace.profile, *map(Profile, trace.times.values())]
    changes = [size for one in profiles for size in (_log(one.least), _log(one.most))]
    gradient = max(changes, key=abs, default=None)
    limit = GAINED if course is not None and course.worst > 0 else LOST
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
    return math.log10(max(ratio, 10**-ENDLESS))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> str:
    return number(value, 3)


def _short(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}"


def decades(value: float | None) -> str:
    """Write an order of magnitude.

    Args:
        value: The logarithm; None if it is unknown.

    >>> decades(-1.25), decades(-0.01), decades(1e3), decades(None)
    ('−1.2', '0.0', '∞', '—')
    """
    if value is None:
        return "—"
    if abs(value) >= ENDLESS:
        return "∞" if value > 0 else "−∞"
    return f"{round(value, 1) + 0.0:.1f}".replace("-", "−")  # zero has no sign
