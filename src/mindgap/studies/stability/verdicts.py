"""What the monitor says of healthy networks, and of networks with a planted fault."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import (
    InputError,
    Recipe,
    Record,
    Study,
    Table,
    Trial,
    option,
    proportion_interval,
)
from mindgap.core.chart.numbers import round_down, round_up
from mindgap.nets import Elman
from mindgap.ops.signal.depth import BLOWN, LOST, Profile
from mindgap.ops.signal.trace import gradient_trace
from mindgap.studies.diagnoses.healthy import HEALTHY, digits_convolution, teacher_table, waves
from mindgap.training.fit import fit
from mindgap.training.monitor.judge import MOST_DEAD, SPIKE, judge, jumps, readings, signals
from mindgap.training.monitor.monitor import Monitor

WAYS = ("", " with depth", " in convolutions", " over time")  # in which a gradient is lost
PLANTS = (*(f"{kind}{way}" for kind in ("vanishing", "exploding") for way in WAYS), "dead units")
WIDTH, DEPTH = 32, 8
SMALL, LARGE = 1e-6, 1e6
DEEP, CHANNELS = 20, 8
# Kaiming's weights keep the gradient; these change it by about four, or almost three, per layer.
KAIMING, SIGMOID, TOO_LARGE = 2**0.5, 1.0, 4.0
RECURRENT = {"vanishing": 0.3, "exploding": 4.0}  # factor of an orthogonal matrix


class MonitorVerdicts(Study):
    r"""What the training monitor says of healthy networks and of planted faults.

    Formula: $P(\text{verdict} \ne \text{healthy} \mid \text{healthy}), \qquad P(\text{layer named}
    \mid \text{planted})$

    Reading: Healthy networks of several kinds are trained well, so every verdict but "healthy" is a
    false alarm. The extremes of their readings are what the limits were set by. A planted fault
    counts as named if kind and layer are right. Faults with depth have no single layer: the network
    is healthy from the output to some layer, and from this layer on, which counts as right, all
    weights are too large, or all activations are sigmoids.

    Assumes: Limits were set on seeds below 7000, and are tried on seeds from there on.

    >>> {trial["what"] for trial in MonitorVerdicts(seeds=1).trials()} >= set(PLANTS)
    True
    """

    method = ("S1",)
    cites = ("pascanu2013difficulty", "lu2020dying")

    seeds: int = option(20, help="networks per source, and per planted fault", low=1)
    first: int = option(7000, help="first seed; limits were set on seeds below 7000", low=0)
    sources: str = option(
        "all", help="healthy sources, separated by a semicolon and a space, or all"
    )

    epochs: int = option(100, help="epochs of every training at most", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = [name for name in self._sources() if name not in HEALTHY]
        if wrong:
            raise InputError(
                f"sources must be names of {', '.join(HEALTHY)}, got {wrong[0]!r}. Write all."
            )

    def _sources(self) -> list[str]:
        return list(HEALTHY) if self.sources == "all" else self.sources.split("; ")

    def trials(self) -> Sequence[Trial]:
        """Healthy networks of every source, and every fault."""
        return [
            Trial(parameters={"what": what}, seed=self.first + k)
            for what in (*self._sources(), *PLANTS)
            for k in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train with a monitor, and note what it says."""
        if trial["what"] in PLANTS:
            return _planted(trial["what"], trial.seed, min(2, self.epochs))
        monitor = Monitor(every=20)
        recipe = HEALTHY[trial["what"]](trial.seed)
        recipe = recipe.replace(epochs=min(recipe.epochs, self.epochs))
        fitted = fit(recipe, seed=trial.seed, monitor=monitor, evaluate_every=0)
        found = judge(monitor.lines)
        trace = gradient_trace(fitted.subject())
        own = {} if trace is None else _trace_extremes(trace.profile, trace.times.values())
        return {"kind": found.kind, "layer": found.layer, **_extremes(monitor), **own}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per source and fault."""
        groups: dict[str, list[Record]] = {}
        for trial, record in records:
            groups.setdefault(trial["what"], []).append(record)
        healthy = [record for what, rows in groups.items() if what not in PLANTS for record in rows]
        rows = [_row(what, found) for what, found in groups.items()]
        if healthy:
            rows.append(_row("all healthy", healthy))
        return Table(
            title="What the monitor says of healthy and of faulty networks",
            columns=(
                *("networks", "count", "right", "exact layer", "next layer", "instead"),
                *("least left", "most grown"),
                *("least left in time", "most grown in time", "most inactive", "largest jump"),
            ),
            rows=tuple(rows),
            notes=(
                *_found(groups),
                *_false_alarms(healthy),
                f"The limits: less than {LOST:g} of the gradient left, grown {BLOWN:,.0f} times, "
                f"{MOST_DEAD:.0%} of a layer's units inactive, a jump of the loss by {SPIKE:g} "
                "first losses. The columns are extremes over all networks and readings; a verdict "
                "takes medians of five readings.",
                "Left and grown: the gradient by the outputs of layers, or over the steps of a "
                "sequence. Of the trained networks in evaluation mode, as the diagnoses see them, "
                f"the least left is {_best(healthy, 'trace_reach', min)} and the most grown "
                f"{_best(healthy, 'trace_growth', max)}.",
            ),
        )

    def tiny(self) -> Self:
        """Use one seed of one source and every fault, for an epoch."""
        return self.replace(seeds=1, sources="table, perceptron", epochs=1)


class _Chain(nn.Module):
    """A perceptron whose activations are functions, with a fault in one layer."""

    def __init__(self, sizes: Sequence[int], fault: str, place: int) -> None:
        super().__init__()
        pairs = enumerate(itertools.pairwise(sizes))
        self.layers = nn.ModuleList(_Layer(*pair, fault * (k == place)) for k, pair in pairs)

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers:
            inputs = layer(inputs)
        return inputs


class _Layer(nn.Module):
    """A linear layer and a ReLU; a fault is a constant that no training can mend."""

    def __init__(self, before: int, after: int, fault: str) -> None:
        super().__init__()
        self.linear, self.hidden = nn.Linear(before, after), after == WIDTH
        nn.init.kaiming_normal_(self.linear.weight, nonlinearity="relu")
        self.factor = {"vanishing": SMALL, "exploding": LARGE}.get(fault, 1.0)
        self.shift = torch.zeros(after)
        if fault == "dead units":
            self.shift[2:] = -1e4

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(self.factor * inputs) + self.shift
        return F.relu(outputs) if self.hidden else outputs


def _planted(what: str, seed: int, epochs: int) -> Record:
    kind, way = what.split()[0], what[len(what.split()[0]) :]
    names, wanted, recipe = {
        " with depth": _deep,
        " in convolutions": _convolutional,
        " over time": _recurrent,
    }.get(way, _one_layer)(what if kind == "dead" else kind, seed)
    monitor = Monitor(every=10)
    fit(
        recipe.replace(epochs=epochs, learning_rate=1e-4),
        seed=seed,
        monitor=monitor,
        evaluate_every=0,
    )
    found = judge(monitor.lines)
    known = found.layer in names and found.kind == kind
    return {
        "kind": found.kind,
        "layer": found.layer,
        "wanted": names[wanted],
        "away": abs(names.index(found.layer) - wanted) if known else None,
        "right": known and found.layer == names[wanted],
        **_extremes(monitor),
    }


_Plant = tuple[list[str], int, Recipe]  # names of layers, the place of the faulty one, the recipe


def _one_layer(fault: str, seed: int) -> _Plant:
    recipe, place = teacher_table(seed), 1 + seed % (DEPTH - 2)
    inputs, outputs = _widths(recipe)
    sizes = (inputs, *[WIDTH] * DEPTH, outputs)
    # Functions are seen in the module that calls them, layers under their own name.
    end = "" if fault == "dead units" else ".linear"
    names = [f"layers.{k}{end}" for k in range(DEPTH + 1)]
    return names, place, recipe.replace(model=lambda: _Chain(sizes, fault, place))


def _widths(recipe: Recipe) -> tuple[int, int]:
    return recipe.train[0].shape[1], int(recipe.train[1].max()) + 1


def _deep(kind: str, seed: int) -> _Plant:
    recipe, place = teacher_table(seed), _place(seed)
    inputs, outputs = _widths(recipe)
    sizes = (inputs, *[WIDTH] * DEEP, outputs)

    def model() -> nn.Module:
        return _faulty([nn.Linear(*pair) for pair in itertools.pairwise(sizes)], kind, place)

    return [str(2 * k) for k in range(DEEP + 1)], place, recipe.replace(model=model)


def _convolutional(kind: str, seed: int) -> _Plant:
    recipe, place = digits_convolution(seed), _place(seed)
    sizes = (1, *[CHANNELS] * DEEP)

    def model() -> nn.Module:
        layers = [nn.Conv2d(*pair, 3, padding=1) for pair in itertools.pairwise(sizes)]
        head = nn.Linear(CHANNELS * recipe.train[0][0].numel(), 10)
        return _faulty([*layers, nn.Sequential(nn.Flatten(), head)], kind, place)

    names = [*(str(2 * k) for k in range(DEEP)), f"{2 * DEEP}.1"]
    return names, place, recipe.replace(model=model)


def _place(seed: int) -> int:
    """From which layer on a deep network is faulty: at least twelve are."""
    return DEEP - seed % (DEEP - 11)


def _faulty(layers: Sequence[nn.Module], kind: str, place: int) -> nn.Module:
    """Put activations between layers, of which those up to a place lose or blow up the gradient."""
    parts: list[nn.Module] = []
    for k, layer in enumerate(layers):
        weight = next(layer.parameters())
        gain = KAIMING if k > place else SIGMOID if kind == "vanishing" else TOO_LARGE
        nn.init.normal_(weight, 0, gain / weight[0].numel() ** 0.5)
        squashed = kind == "vanishing" and k < place
        parts += [layer, nn.Sigmoid() if squashed else nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def _recurrent(kind: str, seed: int) -> _Plant:
    recipe = waves(seed)
    activation = "tanh" if kind == "vanishing" else "relu"

    def model() -> nn.Module:
        net = Elman(2, WIDTH, 3, activation=activation, start="orthogonal")
        net.recurrent.weight.data.mul_(RECURRENT[kind])
        return net

    return ["input", "recurrent", "head"], 1, recipe.replace(model=model)


def _extremes(monitor: Monitor) -> dict[str, float | None]:
    """The most extreme of single readings."""
    rows = readings(monitor.lines)
    profiles = [Profile(tuple(signals(line["layers"]).values())) for line in rows]
    profiles = [row for row in profiles if all(map(math.isfinite, row.signals))]
    times = [row["time"] for line in rows for row in line["layers"].values() if row.get("time")]
    units = [
        max(row.get("dead", 0.0), row.get("saturated", 0.0))
        for line in rows
        for row in line["units"].values()
        if row["readings"] > 4
    ]
    losses = [value for line in monitor.lines for value in line.get("losses", ())]
    return {
        "reach": min((min(row.reach) for row in profiles), default=None),
        "growth": max((max(row.growth) for row in profiles), default=None),
        "time_reach": min((time["reach"] for time in times), default=None),
        "time_growth": max((time["growth"] for time in times), default=None),
        "inactive": max(units, default=None),
        "jump": max((jump for *_, jump in jumps(losses)), default=None),
    }


def _trace_extremes(profile: Profile, times: Any) -> dict[str, float]:
    every = [profile, *(Profile(tuple(norms)) for norms in times)]
    return {
        "trace_reach": min(min(row.reach) for row in every),
        "trace_growth": max(max(row.growth) for row in every),
    }


def _row(what: str, records: Sequence[Record]) -> tuple[Any, ...]:
    wrong = [record for record in records if not _right([record])]
    instead = sorted({f"{record['kind']} {record['layer']}".strip() for record in wrong})
    return (
        *(what, len(records), _right(records), *_distances(records), ", ".join(instead) or "—"),
        *(_best(records, "reach", min), _best(records, "growth", max)),
        *(_best(records, "time_reach", min), _best(records, "time_growth", max)),
        *(_best(records, "inactive", max), _best(records, "jump", max)),
    )


def _distances(records: Sequence[Record]) -> tuple[int | None, int | None]:
    """Count the faults whose layer was named exactly, and those where the next one was."""
    if "away" not in records[0]:
        return None, None
    every = [record["away"] for record in records]
    return every.count(0), every.count(1)


def _best(records: Sequence[Record], key: str, choose: Any) -> str:
    values = [record[key] for record in records if record.get(key) is not None]
    return f"{choose(values):.3g}" if values else "—"


def _found(groups: Mapping[str, Sequence[Record]]) -> list[str]:
    records = [record for what in PLANTS for record in groups.get(what, ())]
    if not records:
        return []
    _, near = _distances(records)
    low = round_down(100 * proportion_interval(_right(records), len(records)).low, 1)
    return [
        f"Planted faults: {_right(records)} of {len(records)} are named with kind and layer, at "
        f"least {low:.1f} % with confidence 95 %. In {near} more it is the layer next to it."
    ]


def _right(records: Sequence[Record]) -> int:
    return sum(record.get("right", record["kind"] == "healthy") for record in records)


def _false_alarms(healthy: Sequence[Record]) -> list[str]:
    if not healthy:
        return []
    count = sum(record["kind"] != "healthy" for record in healthy)
    high = round_up(100 * proportion_interval(count, len(healthy)).high, 1)
    return [
        f"False alarms: {count} of {len(healthy)} healthy networks, at most {high:.1f} % with "
        "confidence 95 %."
    ]
