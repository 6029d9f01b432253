"""The rate at which the variance of f(x + noise) converges to the Taylor metric."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from mindgap.core import Line, Record, Series, Study, Table, Trial, generator, mean_interval, option
from mindgap.ops.taylor.metric import partial_derivatives, taylor_metric
from mindgap.ops.variance.local import sampled_variance

Function = Callable[[Tensor], Tensor]
FUNCTIONS: dict[str, tuple[int, Function]] = {
    "Runge": (1, lambda x: 1 / (1 + 25 * x[:, 0] ** 2)),
    "tanh": (1, lambda x: torch.tanh(4 * x[:, 0])),
    "sine of two": (2, lambda x: torch.sin(2 * x[:, 0] + x[:, 1])),
    "Gauss of two": (2, lambda x: torch.exp(-x.square().sum(1))),
    "quadratic of two": (2, lambda x: x[:, 0] ** 2 + x[:, 0] * x[:, 1] + 2 * x[:, 1]),
}
QUANTITIES = {
    "first": "variance − Df¹",
    "second": "variance − Df²",
    "complete": "variance − Df² − ε²∇f·∇Δf",
    "published": "limit of eq. (4) − Df²",
}
NODES = 40  # quadrature nodes per input; exact to rounding for these functions and ε


class VarianceAndDerivatives(Study):
    r"""The variance of f(x + noise) against the Taylor metric Df as the noise shrinks.

    Formula: $\mathrm{Var} f(x + \xi) = \epsilon \lVert \nabla f \rVert^2 + \frac{\epsilon^2}{2}
    \lVert H \rVert_F^2 + \epsilon^2 \, \nabla f \cdot \nabla \Delta f + O(\epsilon^3), \qquad \xi
    \sim N(0, \epsilon I)$

    Reading: Each line of the chart falls at its rate, the power of ε in the table. The paper claims
    that the variance equals Df² up to the third power of the length of the noise, which is 1.5 in
    ε. This holds, and the rate is 2. But the second term of Df² has the same order, so it improves
    the approximation only where the third derivatives vanish. Adding the term with the third
    derivatives gives a rate of 3. Eq. (4) of the paper, the mean square of f(x + ξ) − f(x), also
    converges to Df¹, but exceeds the variance by the square of the mean change.

    Assumes: Smooth functions. Gauss–Hermite quadrature computes the variance, so the rates contain
    no sampling noise. The sampled variance has its own rows. Its relative error falls with the
    number of draws at the Monte Carlo rate of −½.

    >>> len(VarianceAndDerivatives().trials())
    5
    """

    method = ("V2", "V3")
    cites = ("novello2020variance",)
    reproduces = ("vbsw: Equation 4",)
    expected: ClassVar[Mapping[str, float]] = {"second": 1.5, "published": 1.5}

    points: int = option(20, help="random points in [-1, 1] per function", low=2)
    smallest: float = option(1e-4, help="smallest variance ε of the noise", above=0)
    largest: float = option(1e-2, help="largest variance ε of the noise", above=0)
    steps: int = option(
        9, help="values of ε from smallest to largest, equally spaced in the logarithm", low=3
    )
    draws: int = option(40_000, help="largest number of draws of the sampled variance", low=100)

    def trials(self) -> Sequence[Trial]:
        """One trial per function."""
        return [Trial(parameters={"function": name}, seed=0) for name in FUNCTIONS]

    def run(self, trial: Trial) -> Record:
        """Compute all differences for all ε at all points."""
        dimension, function = FUNCTIONS[trial["function"]]
        points = (
            2
            * torch.rand(
                self.points, dimension, generator=generator(trial.seed), dtype=torch.float64
            )
            - 1
        )
        found = [_differences(function, points, epsilon) for epsilon in self.epsilons()]
        # Each of shape (ε, points).
        curves = {name: torch.stack([one[name] for one in found]) for name in QUANTITIES}
        noise = math.sqrt(self.smallest * self.largest)
        return {
            "curves": {
                name: values.abs().square().mean(1).sqrt().tolist()
                for name, values in curves.items()
            },
            "rates": {name: _rates(self.epsilons(), values) for name, values in curves.items()},
            "sampled": self._sampled(function, points, noise, trial.seed),
        }

    def epsilons(self) -> list[float]:
        """Return the variances of the noise."""
        low, high = math.log(self.smallest), math.log(self.largest)
        return [
            math.exp(low + (high - low) * step / (self.steps - 1)) for step in range(self.steps)
        ]

    def _counts(self) -> list[int]:
        return [max(self.draws // 4**power, 2) for power in range(5)][::-1]

    def _sampled(
        self, function: Function, points: Tensor, epsilon: float, seed: int
    ) -> list[float]:
        """Return the relative error (RMS) of the sampled variance for each number of draws."""
        limit = _moments(function, points, epsilon)["mean_square"]
        found = [
            sampled_variance(
                function, points, epsilon=epsilon, samples=count, generator=generator(seed)
            )
            for count in self._counts()
        ]
        return [float(((one - limit) / limit).square().mean().sqrt()) for one in found]

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per function and difference: the rate at which it vanishes."""
        rows: list[tuple[Any, ...]] = []
        for trial, record in records:
            for name, words in QUANTITIES.items():
                rates = record["rates"][name]
                paper = self.expected.get(name)
                if len(rates) < 2:
                    rows.append((trial["function"], words, paper, None, None, None, "vanishes"))
                    continue
                interval = mean_interval(rates)
                mean = sum(rates) / len(rates)
                rows.append(
                    (trial["function"], words, paper, mean, interval.low, interval.high, len(rates))
                )
            slope = _slope(self._counts(), record["sampled"])
            rows.append(
                (
                    trial["function"],
                    "sampled − its limit, by draws",
                    None,
                    slope,
                    None,
                    None,
                    self.points,
                )
            )
        return Table(
            title="Rates at which the variance of f(x + noise) converges to the Taylor metric",
            columns=(
                *("function", "difference", "paper (at least)", "rate in ε"),
                *("low", "high", "points"),
            ),
            rows=tuple(rows),
            notes=(
                "The rate is the slope in the log–log plot over the smaller half of ε: mean over "
                "points and its 95 % interval.",
                "The paper states O(|ε|³), where |ε| is the length of the noise, the square root "
                "of its variance. This is a rate of 1.5 in ε.",
                "‘vanishes’: below rounding error at all points, because the third derivatives are "
                "zero.",
            ),
            charts=tuple(self._chart(trial["function"], record) for trial, record in records),
        )

    def _chart(self, name: str, record: Record) -> Line:
        series = [
            Series(name=words, x=self.epsilons(), y=record["curves"][key])
            for key, words in QUANTITIES.items()
            if min(record["curves"][key]) > 0
        ]
        return Line(
            title=f"{name}: remaining difference, root mean square over points",
            x_label="variance ε of the noise",
            y_label="difference",
            x_scale="log",
            y_scale="log",
            series=series,
        )

    def tiny(self) -> Self:
        """Use few points and draws."""
        return self.replace(points=3, steps=3, draws=200)


def _differences(function: Function, points: Tensor, epsilon: float) -> dict[str, Tensor]:
    found = _moments(function, points, epsilon)
    first, second = (
        taylor_metric(function, points, epsilon=epsilon, order=order) for order in (1, 2)
    )
    third = _third(function, points)
    return {
        "first": found["variance"] - first,
        "second": found["variance"] - second,
        "complete": found["variance"] - second - epsilon**2 * third,
        "published": found["mean_square"] - second,
    }


def _moments(function: Function, points: Tensor, epsilon: float) -> dict[str, Tensor]:
    """Return Var f(x + ξ) and the mean square of f(x + ξ) − f(x), by quadrature."""
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(NODES))
    axes = [nodes] * points.shape[1]
    grid = (
        torch.stack([axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij")], 1)
        * epsilon**0.5
    )
    product = torch.stack(
        [w.flatten() for w in torch.meshgrid(*[weights] * points.shape[1], indexing="ij")], 1
    ).prod(1)
    product = product / product.sum()
    moved = function((points[:, None] + grid).flatten(0, 1)).view(len(points), -1)
    change = moved - function(points)[:, None]
    mean = change @ product
    return {
        "variance": (change - mean[:, None]).square() @ product,
        "mean_square": change.square() @ product,
    }


def _third(function: Function, points: Tensor) -> Tensor:
    """Return the gradient times the gradient of the Laplacian."""
    dimension = points.shape[1]
    found = partial_derivatives(function, points, 3)
    unit = torch.eye(dimension, dtype=torch.long)
    total = torch.zeros(len(points), dtype=torch.float64)
    for i in range(dimension):
        slope = sum(found[tuple((unit[i] + 2 * unit[j]).tolist())] for j in range(dimension))
        total += (found[tuple(unit[i].tolist())] * slope).sum(1)
    return total


def _rates(epsilons: Sequence[float], values: Tensor) -> list[float]:
    """Return the slope at each point; points with differences at rounding level are dropped."""
    half = (len(epsilons) + 1) // 2
    chosen = values[:half].abs()
    clear = (chosen > 1e-15).all(0)
    return [_slope(epsilons[:half], column.tolist()) for column in chosen[:, clear].T]


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the least-squares slope in the log–log plot."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
