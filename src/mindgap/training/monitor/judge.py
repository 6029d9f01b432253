"""What the readings of a monitor mean: layers, units, spikes, and the first number that is none."""

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mindgap.ops.signal.depth import Profile, State, state_of
from mindgap.training.monitor.log import Line

WINDOW = 5  # readings that are judged together, the last ones
BEFORE = 50  # steps whose median loss a spike is compared with
# The largest jump of a loss in 120 healthy recurrent networks was of 1.74 first losses, and 6 jumped by
# more than one (docs/results/benchmarks/monitor-spikes.json). At most 43 % of a layer's units were
# silent for five readings; the diagnosis dead-units has the same limit.
SPIKE, MOST_DEAD = 3.0, 0.85
FEWEST_UNITS = 4  # of a layer; below, shares mean nothing
QUANTILE = 0.9  # of the gradient norms, at which clipping is advised


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer, over the last readings.

    Args:
        name: Its name in the model.
        depth: How many layers with a matrix are between it and the output; None if it has none.
        state: ``"healthy"``, ``"vanishing"`` or ``"exploding"``.
        gradient: The norm of the gradient by its weights.
        weight: The norm of its weights.
        update: The norm of one step's change.
        activation: The root mean square of its outputs; None if it was not called as a module.
        backward: The norm of the gradient by its outputs; None if it is not known.
        reach: The share of the gradient that is left there.
        growth: How many times the gradient has grown there.
        steps: Of a recurrent layer, the steps of a sequence; otherwise 0.
        over_time: Whether its state is that of the gradient over these steps.
        rate: Of a recurrent layer, the factor of the gradient per step.
        gradient_to_weight: The norm of the gradient divided by that of the weights.
        update_to_weight: The norm of the update divided by that of the weights.
    """

    name: str
    depth: int | None
    state: State
    gradient: float
    weight: float
    update: float
    activation: float | None
    backward: float | None
    reach: float | None
    growth: float | None
    steps: int
    over_time: bool
    rate: float | None

    @property
    def gradient_to_weight(self) -> float | None:
        return self.gradient / self.weight if self.weight else None

    @property
    def update_to_weight(self) -> float | None:
        return self.update / self.weight if self.weight else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Units:
    """The units of one activation, over the last readings.

    Args:
        place: The module in which the activation is called.
        function: The name of the activation.
        units: Their number.
        dead: The share that never fired.
        saturated: The share that was saturated for nearly all samples.
        bad: Whether the share is beyond that of healthy networks.
    """

    place: str
    function: str
    units: int
    dead: float
    saturated: float
    bad: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Spike:
    """A step whose loss jumped up.

    Args:
        step: The step.
        loss: Its loss.
        before: The median loss of the steps before.
    """

    step: int
    loss: float
    before: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the readings of a run mean.

    Args:
        rate: The factor c by which the gradient changes per layer, from the output to the input.
        layers: One per layer, in the order of their calls.
        units: One per activation.
        spikes: Steps whose loss jumped up.
        trouble: What was the first to be no number: its step, its name, and the weights whose
            gradients were none; empty if there was nothing.
        skipped: Steps that a gradient scaler left out.
        culprit: The layer that makes most of a vanishing or exploding gradient; empty if many do.
        origin: The layer from which on many do, or over whose steps it happens; empty if one does.
        clip: The norm that nine of ten gradients stay below; None without any.
        readings: How many readings there are.
    """

    rate: float | None
    layers: tuple[Layer, ...]
    units: tuple[Units, ...]
    spikes: tuple[_Spike, ...]
    trouble: Mapping[str, Any]
    skipped: int
    culprit: str
    origin: str
    clip: float | None
    readings: int

    @property
    def kind(self) -> str:
        """What the verdict is about: the cause before what follows from it."""
        if self.trouble:
            return "not finite"
        if self.worst_units is not None:
            dead = self.worst_units.dead >= self.worst_units.saturated
            return "dead" if dead else "saturated"
        states = {layer.state for layer in self.layers}
        for state in ("exploding", "vanishing"):
            if state in states:
                return state
        if self.spikes:
            return "spikes"
        return "healthy" if self.readings else "nothing"

    @property
    def layer(self) -> str:
        """The layer to look at first; empty if no layer is to blame."""
        if self.kind in ("dead", "saturated") and self.worst_units is not None:
            return self.worst_units.place
        return self.culprit or self.origin or ("" if self.first is None else self.first.name)

    @property
    def first(self) -> Layer | None:
        """The vanishing or exploding layer nearest to the output: from there on, all are."""
        bad = [layer for layer in self.layers if layer.state == self.kind != "healthy"]
        known = [layer for layer in bad if layer.depth is not None]
        return min(known, key=lambda layer: layer.depth or 0, default=None)

    @property
    def worst_units(self) -> Units | None:
        """The activation with most inactive units, if they are more than in healthy networks."""
        bad = [row for row in self.units if row.bad]
        return max(bad, key=lambda row: max(row.dead, row.saturated), default=None)


def judge(lines: Sequence[Line]) -> Judgement:
    """Judge the last run in some lines of a log.

    Args:
        lines: What ``Monitor.lines`` holds, or what was read from its log.
    """
    return Judgement(**judged(last_run(lines)))


def judged(lines: Sequence[Line]) -> dict[str, Any]:
    """Return the fields of a judgement.

    Args:
        lines: Lines of one run.
    """
    depth = _depth_profile(lines)
    profile = Profile(tuple(depth.values()))
    layers = tuple(_judged_layers(lines))
    troubles = [line["trouble"] for line in lines if line.get("trouble")]
    broken = [trouble for trouble in troubles if not trouble["skipped"]]
    return {
        "rate": profile.rate,
        "layers": layers,
        "units": tuple(_judged_units(lines)),
        "spikes": tuple(spikes(lines)),
        "trouble": broken[0] if broken else {},
        "skipped": len(troubles) - len(broken),
        **_blamed(list(depth), profile, layers),
        "clip": clip_at(lines),
        "readings": len(readings(lines)),
    }


def _blamed(names: Sequence[str], profile: Profile, layers: Sequence[Layer]) -> dict[str, str]:
    states: tuple[State, ...] = ("exploding", "vanishing")
    for state in states:
        # What happens over the steps of a layer shows in all its steps together too, as if the layer
        # after it had done it.
        timed = [layer.name for layer in layers if layer.over_time and layer.state == state]
        if timed:
            return {"culprit": "", "origin": timed[-1]}
        if (origin := profile.origin(state)) is not None:
            place = profile.culprit(state)
            if place is None:
                return {"culprit": "", "origin": names[origin]}
            return {"culprit": names[place], "origin": ""}
    return {"culprit": "", "origin": ""}


def last_run(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of the last run that begins at step 0, with all that resume it."""
    starts = [k for k, line in enumerate(lines) if "format" in line and not line.get("step")]
    return list(lines[starts[-1] if starts else 0 :])


def course(lines: Sequence[Line], key: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of what was noted at every step.

    Args:
        lines: Lines of a log.
        key: ``"losses"`` or ``"gradient"``.
    """
    pairs: dict[int, float] = {}
    for line in lines:
        values = line.get(key) or []
        pairs |= {line["first"] + k: value for k, value in enumerate(values) if value is not None}
    return list(pairs), list(pairs.values())


def readings(lines: Sequence[Line]) -> list[Line]:
    """Return the lines that tell of layers."""
    return [line for line in lines if line.get("layers")]


def signals(layers: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the gradient at the layers with a matrix, from the first called to the last.

    By the layers' outputs, or by their weights where outputs were not seen, as in a compiled
    network.
    """
    known = {name: row for name, row in layers.items() if row["matrix"]}
    outputs = {
        name: row["backward"] for name, row in known.items() if row.get("backward") is not None
    }
    if outputs:
        return outputs
    return {name: row["gradient"] for name, row in known.items()}


def _judged_layers(lines: Sequence[Line]) -> list[Layer]:
    """Judge every layer by the last readings that are numbers, in the order of the layers.

    Args:
        lines: Lines of one run.
    """
    found = [line for line in readings(lines) if _is_finite(line)][-WINDOW:]
    if not found:
        return []
    profile = _depth_profile(lines)
    names = list(profile)
    joint = Profile(tuple(profile.values()))
    states = dict(
        zip(names, zip(joint.states, joint.reach, joint.growth, strict=True), strict=True)
    )
    rows = found[-1]["layers"]
    return [_layer(name, names, states, [line["layers"] for line in found]) for name in rows]


def _depth_profile(lines: Sequence[Line]) -> dict[str, float]:
    """Return the gradient along the depth, in units of its largest; medians of the last readings.

    Args:
        lines: Lines of one run.
    """
    found = [signals(line["layers"]) for line in readings(lines) if _is_finite(line)][-WINDOW:]
    if not found:
        return {}
    scales = [max(row.values(), default=0.0) or 1.0 for row in found]
    return {
        name: statistics.median(
            row[name] / scale for row, scale in zip(found, scales, strict=True) if name in row
        )
        for name in found[-1]
    }


def _layer(
    name: str,
    names: Sequence[str],
    states: Mapping[str, tuple[State, float, float]],
    found: Sequence[Mapping[str, Mapping[str, Any]]],
) -> Layer:
    rows = [layers[name] for layers in found if name in layers]
    unknown: tuple[State, float | None, float | None] = ("healthy", None, None)
    state, reach, growth = states.get(name, unknown)
    times = [row["time"] for row in rows if row.get("time")]
    over_time = False
    if times:
        through = statistics.median(time["reach"] for time in times)
        grown = statistics.median(time["growth"] for time in times)
        over_time = state_of(through, grown) != "healthy"
        if over_time:
            state, reach, growth = state_of(through, grown), through, grown
    return Layer(
        name=name,
        depth=len(names) - 1 - names.index(name) if name in names else None,
        state=state,
        reach=reach,
        growth=growth,
        steps=times[-1]["steps"] if times else 0,
        over_time=over_time,
        rate=times[-1]["rate"] if times else None,
        gradient=_median(rows, "gradient") or 0.0,
        weight=_median(rows, "weight") or 0.0,
        update=_median(rows, "update") or 0.0,
        activation=_median(rows, "activation"),
        backward=_median(rows, "backward"),
    )


def _median(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    values = [row[key] for row in rows if row.get(key) is not None]
    return statistics.median(values) if values else None


def _judged_units(lines: Sequence[Line]) -> list[Units]:
    """Judge every activation by the last reading.

    Args:
        lines: Lines of one run.
    """
    found = readings(lines)
    return [_units(place, row) for place, row in (found[-1]["units"] if found else {}).items()]


def _units(place: str, row: Mapping[str, Any]) -> Units:
    dead, saturated = row.get("dead", 0.0), row.get("saturated", 0.0)
    bad = row["units"] >= FEWEST_UNITS and max(dead, saturated) > MOST_DEAD
    return Units(
        place=place,
        function=row["function"],
        units=row["units"],
        dead=dead,
        saturated=saturated,
        bad=bad,
    )


def spikes(lines: Sequence[Line]) -> list[_Spike]:
    """Return the steps whose loss jumped up by more than healthy networks show.

    A jump is measured in units of the first losses: where a network fits nearly all samples, a
    single hard one multiplies the loss of a batch.

    Args:
        lines: Lines of one run.
    """
    steps, losses = course(lines, "losses")
    return [
        _Spike(step=steps[k], loss=losses[k], before=b)
        for k, b, jump in jumps(losses)
        if jump > SPIKE
    ]


def jumps(losses: Sequence[float]) -> Iterator[tuple[int, float, float]]:
    """Return for every step its place, the median loss before it, and by how much it jumped.

    Args:
        losses: The losses of all steps.
    """
    finite = [loss for loss in losses[:10] if math.isfinite(loss)]
    unit = abs(statistics.median(finite)) if finite else 0.0
    for k in range(BEFORE, len(losses)):
        before = statistics.median(losses[k - BEFORE : k])
        if unit and math.isfinite(losses[k]) and math.isfinite(before):
            yield k, before, (losses[k] - before) / unit


def clip_at(lines: Sequence[Line]) -> float | None:
    """Return the norm at which to clip: what nine of ten steps stay below.

    Args:
        lines: Lines of one run.
    """
    norms = sorted(value for value in course(lines, "gradient")[1] if math.isfinite(value))
    place = min(len(norms) - 1, int(QUANTILE * len(norms)))
    return float(f"{norms[place]:.2g}") if norms else None


def _is_finite(line: Line) -> bool:
    return all(math.isfinite(value) for value in signals(line["layers"]).values())
