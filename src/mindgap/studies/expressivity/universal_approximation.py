"""Universal approximation: error against width, constructed with a known rate, and trained."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from mindgap.core import (
    Chart,
    Claim,
    Line,
    Recipe,
    Record,
    Series,
    Study,
    Table,
    Trial,
    mean_interval,
    option,
)
from mindgap.nets.mlp import MLP
from mindgap.nets.tents import Rect, Tri
from mindgap.remedies import Annealing
from mindgap.training.ensemble import ensemble

SAMPLES = 512  # training inputs, evenly spaced
DENSE = 20_001  # places at which the largest error is looked for
EDGE = 1e-6  # the first rectangle rises from zero within 1e-7 of the left end


class Target(NamedTuple):
    """A function on [0, 1] with the largest slope and curvature that its bounds need.

    Args:
        words: What it is.
        function: The function.
        slope: The largest absolute first derivative.
        curvature: The largest absolute second derivative.
    """

    words: str
    function: Callable[[Tensor], Tensor]
    slope: float
    curvature: float


TARGETS = {
    "sine": Target("sin 2πx", lambda x: torch.sin(2 * math.pi * x), 2 * math.pi, 4 * math.pi**2),
    "square": Target("x²", lambda x: x**2, 2.0, 2.0),
}
KINDS = {
    "rectangles": "rectangles, one layer",
    "interpolant": "interpolant, one layer",
    "tents": "sum of tents, deep",
    "trained": "trained, one layer",
}
NOTES = (
    "Published claim: networks with one hidden layer approximate every continuous function (slides; "
    "Sonoda and Murata for ReLU). The theorem names no width, and no way to find the weights.",
    "Rectangles: m of them have 4m units and an error of at most max|f′|/(2m). Interpolant: h units "
    "join h + 1 points of the function; error at most max|f″|/(8h²).",
    "Sum of tents (Yarotsky, 2017): x² − its sum to the k-th tent is at most 4⁻ᵏ⁻¹, with 2k units in "
    "k layers and skip connections to the output. The error falls exponentially with the units.",
    f"The error is the largest of {DENSE:,} places. Trained networks minimize the mean squared error "
    f"of {SAMPLES} places, with Adam; their error is a geometric mean over seeds.",
)


class UniversalApproximation(Study):
    r"""Largest error of approximation against the number of units.

    Formula: $\sup_{x \in [0, 1]} \left| f(x) - \sum_{i=1}^{h} v_i\, \mathrm{relu}(w_i x + b_i)
    \right|$

    Reading: Constructions show what a width can represent; their errors fall with a known rate. The
    distance from there to the trained networks is what optimization loses. A deep network of tents
    needs far fewer units for x².

    Assumes: One input. Trained networks are judged by the geometric mean over seeds; nothing is selected.

    >>> trials = UniversalApproximation(units=(8, 16)).trials()
    >>> [trial["approximant"] for trial in trials[-4:]]
    ['tents', 'tents', 'trained', 'trained']
    """

    method = ("E2",)
    cites = ("ollion2018learning", "sonoda2017neural", "yarotsky2017error")

    units: tuple[int, ...] = option(
        (4, 8, 16, 32, 64, 128, 256), help="numbers of units, multiples of 4", low=4, high=4096
    )
    seeds: int = option(10, help="trained networks per width", low=2)
    epochs: int = option(4_000, help="steps of training, each on all inputs", low=1)
    learning_rate: float = option(0.01, help="first learning rate of Adam", above=0)

    def trials(self) -> Sequence[Trial]:
        """Every target with every approximant and width; tents for the square alone."""
        return [
            Trial(parameters={"target": target, "approximant": kind, "units": units})
            for target in TARGETS
            for kind in KINDS
            for units in self.units
            if kind != "tents" or (target == "square" and units <= 20)  # then rounding begins
        ]

    def run(self, trial: Trial) -> Record:
        """Build or train, and look for the largest error."""
        target, units = TARGETS[trial["target"]], int(trial["units"])
        if trial["approximant"] == "trained":
            errors = [largest_error(model, target) for model in self._trained(target, units)]
            return {"errors": errors, "bound": None}
        model = BUILDERS[trial["approximant"]](target, units)
        return {
            "errors": [largest_error(model, target)],
            "bound": bound(trial["approximant"], target, units),
        }

    def _trained(self, target: Target, units: int) -> list[nn.Module]:
        inputs = torch.linspace(0, 1, SAMPLES)[:, None]
        recipe = Recipe(
            model=lambda: MLP((1, units, 1)),
            train=(2 * inputs - 1, target.function(inputs)),  # centered, which training prefers
            loss="mse",
            epochs=self.epochs,
            batch_size=SAMPLES,
            learning_rate=self.learning_rate,
        )
        members = ensemble(recipe, range(self.seeds), remedies=[Annealing()], keep_history=False)
        return [nn.Sequential(_centered(), member.model) for member in members]

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per target, approximant and width."""
        return Table(
            title="Largest error of approximation against units",
            columns=("target", "approximant", "units", "bound", "error", "low", "high"),
            rows=tuple(_row(trial, record) for trial, record in records),
            notes=(*NOTES, *_judged(records)),
            charts=tuple(_chart(name, records) for name in TARGETS),
            claims=_claims(records),
        )

    def tiny(self) -> Self:
        """Two widths and few steps."""
        return self.replace(units=(4, 8), seeds=2, epochs=3)


def rectangles(target: Target, units: int) -> nn.Module:
    """Sum rectangles of four units each, as high as the function in their middle.

    Args:
        target: The function.
        units: Number of units.
    """
    count = units // 4
    middles = (torch.arange(count, dtype=torch.double) + 0.5) / count
    return Rect(target.function(middles).tolist())


def interpolant(target: Target, units: int) -> nn.Module:
    """Join evenly spaced points of the function by lines, with one unit per line.

    Args:
        target: The function.
        units: Number of units.

    >>> net = interpolant(TARGETS["square"], 4)
    >>> net(torch.tensor([[0.0], [0.25], [1.0]], dtype=torch.double)).flatten().tolist()
    [0.0, 0.0625, 1.0]
    """
    nodes = torch.linspace(0, 1, units + 1, dtype=torch.double)
    values = target.function(nodes)
    slopes = values.diff() * units
    hidden, out = nn.Linear(1, units).double(), nn.Linear(units, 1).double()
    hidden.weight.data.fill_(1.0), hidden.bias.data.copy_(-nodes[:-1])
    out.weight.data.copy_(slopes.diff(prepend=slopes.new_zeros(1))[None])
    out.bias.data.copy_(values[:1])
    return nn.Sequential(hidden, nn.ReLU(), out)


class SumOfTents(nn.Module):
    """Yarotsky's network for x² on [0, 1]: x minus tents of growing depth.

    Args:
        depth: Number k of tents, with two units each.

    >>> SumOfTents(2)(torch.tensor([[0.25]], dtype=torch.double)).item()
    0.0625
    """

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.tents = nn.ModuleList(Tri() for _ in range(depth))

    def forward(self, inputs: Tensor) -> Tensor:
        """Subtract every tent as soon as it is there."""
        total = tent = inputs
        for k, layer in enumerate(self.tents, 1):
            tent = layer(tent)
            total = total - tent / 4**k
        return total


BUILDERS: dict[str, Callable[[Target, int], nn.Module]] = {
    "rectangles": rectangles,
    "interpolant": interpolant,
    "tents": lambda _, units: SumOfTents(units // 2),
}


def bound(kind: str, target: Target, units: int) -> float:
    """Give the largest error that a construction can have.

    Args:
        kind: The construction.
        target: The function; tents know the square only.
        units: Number of units.

    >>> bound("interpolant", TARGETS["square"], 4), bound("tents", TARGETS["square"], 4)
    (0.015625, 0.015625)
    """
    if kind == "rectangles":
        return target.slope / (2 * (units // 4))
    return target.curvature / (8 * units**2) if kind == "interpolant" else 4.0 ** -(units // 2 + 1)


@torch.no_grad()
def largest_error(model: nn.Module, target: Target) -> float:
    """Look for the largest error on a dense grid, in double precision."""
    places = torch.linspace(EDGE, 1, DENSE, dtype=torch.double)[:, None]
    return float((model.double()(places) - target.function(places)).abs().max())


def _centered() -> nn.Linear:
    """Map [0, 1] to [−1, 1], where the networks were trained."""
    layer = nn.Linear(1, 1)
    layer.weight.data.fill_(2.0), layer.bias.data.fill_(-1.0)
    return layer


def _row(trial: Trial, record: Record) -> tuple[object, ...]:
    head = (TARGETS[trial["target"]].words, KINDS[trial["approximant"]], trial["units"])
    errors = record["errors"]
    ends = spread(errors) if len(errors) > 1 else (None, None)
    return (*head, record["bound"], typical(errors), *ends)


def typical(errors: Sequence[float]) -> float:
    """Compute the geometric mean.

    >>> round(typical([0.1, 10.0]), 12)
    1.0
    """
    return math.exp(math.fsum(map(math.log, errors)) / len(errors))


def spread(errors: Sequence[float]) -> tuple[float, float]:
    """Compute the interval of the geometric mean: Student's, of the logarithms."""
    found = mean_interval([math.log(error) for error in errors])
    return math.exp(found.low), math.exp(found.high)


def rate(units: Sequence[float], errors: Sequence[float]) -> float:
    """Fit the power of the units with which the error falls, by least squares of logarithms.

    >>> round(rate([1, 2, 4], [1.0, 0.25, 0.0625]), 6)
    -2.0
    """
    x, y = torch.tensor(units).double().log(), torch.tensor(errors).double().log()
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())


def _curves(target: str, records: Sequence[tuple[Trial, Record]]) -> dict[str, dict[int, Any]]:
    found: dict[str, dict[int, Any]] = {}
    for trial, record in records:
        if trial["target"] == target:
            found.setdefault(trial["approximant"], {})[trial["units"]] = record["errors"]
    return found


def _held(records: Sequence[tuple[Trial, Record]]) -> list[bool]:
    """Tell of every construction whether its error is within its bound, up to rounding."""
    known = [record for _, record in records if record["bound"]]
    return [max(row["errors"]) <= row["bound"] * (1 + 1e-6) + 1e-8 for row in known]


def _claims(records: Sequence[tuple[Trial, Record]]) -> tuple[Claim, ...]:
    held = _held(records)
    text = "Some network of this size is within the error that its theorem promises."
    return (Claim.counted(text, sum(held), len(held)),) if held else ()


def _judged(records: Sequence[tuple[Trial, Record]]) -> list[str]:
    held = _held(records)
    told = [f"{sum(held)} of {len(held)} constructions are within their bound."]
    for target in TARGETS:
        rates = [
            f"{KINDS[kind]} {_power(own)}"
            for kind, own in _curves(target, records).items()
            if kind != "tents" and len(own) > 1
        ]
        if rates:
            words = TARGETS[target].words
            told.append(f"Power of the units in the error for {words}: {', '.join(rates)}.")
    return told


def _power(curve: dict[int, list[float]]) -> str:
    runs = list(zip(*curve.values(), strict=True))
    powers = [rate(list(curve), run) for run in runs]
    mean = math.fsum(powers) / len(powers)
    return f"{mean:.2f} {mean_interval(powers)}" if len(powers) > 1 else f"{mean:.2f}"


def _chart(target: str, records: Sequence[tuple[Trial, Record]]) -> Chart:
    series = list[Series]()
    for kind, own in _curves(target, records).items():
        means = [typical(errors) for errors in own.values()]
        ends = [spread(errors) for errors in own.values()] if kind == "trained" else []
        low, high = [one[0] for one in ends], [one[1] for one in ends]
        series.append(Series(name=KINDS[kind], x=list(own), y=means, low=low, high=high))
    return Line(
        title=f"Largest error against units: {TARGETS[target].words}",
        x_label="units",
        y_label="largest error",
        x_scale="log",
        y_scale="log",
        series=series,
        caption="Band: 95 % interval of the geometric mean over seeds.",
    )
