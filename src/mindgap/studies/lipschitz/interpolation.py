"""Piecewise-linear interpolation is never steeper than what it interpolates."""

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from mindgap.core import Claim, Line, Record, Series, Study, Table, Trial, generator, option
from mindgap.ops.lipschitz.upper import certified_upper

Target = Callable[[Tensor], Tensor]
# A function on [0, 1] and its Lipschitz constant there.
TARGETS: dict[str, tuple[Target, float]] = {
    "sine": (lambda x: (2 * math.pi * x).sin(), 2 * math.pi),
    "absolute value": (lambda x: (x - 0.3).abs(), 1.0),
    "square": (torch.square, 2.0),
    "steps of tanh": (lambda x: (20 * (x - 0.5)).tanh(), 20.0),
}


class LipschitzInterpolation(Study):
    r"""Lipschitz constant of piecewise-linear interpolation next to that of its target.

    Formula: $L(\hat f) = \max_i \frac{|f(x_{i+1}) - f(x_i)|}{x_{i+1} - x_i} \le L(f)$

    Reading: Every slope of the interpolation is a difference quotient of the target, so that it never
    exceeds the target's constant and approaches it as points are added. A ReLU network with one
    hidden unit per point is that function. Its certified bound is larger, because it does not know
    which units are on together.

    Assumes: Functions of one input with a known constant; points drawn at random on [0, 1], and both
    ends.

    >>> len(LipschitzInterpolation(seeds=1, sizes=(4,)).trials())
    4
    """

    method = ("E9",)
    cites = ("bartlett2017spectrally",)
    reproduces = ("stability: Interpolation",)

    seeds: int = option(5, help="draws of the points", low=1)
    sizes: tuple[int, ...] = option((3, 10, 30, 100), help="numbers of points", low=2)
    steps: int = option(40, help="steps that improve the certified bound", low=0)

    def trials(self) -> Sequence[Trial]:
        """One trial per target, number of points and draw."""
        return [
            Trial(parameters={"target": name, "points": size}, seed=seed)
            for name in TARGETS
            for size in self.sizes
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Interpolate, and compare the network's steepest slope with the target's constant."""
        function, constant = TARGETS[str(trial["target"])]
        inner = torch.rand(int(trial["points"]) - 2, generator=generator(trial.seed)).double()
        points = torch.cat([torch.zeros(1).double(), inner, torch.ones(1).double()]).unique()
        slopes = function(points).diff() / points.diff()
        model = _network(points, function(points)[0], slopes)
        middle = ((points[1:] + points[:-1]) / 2)[:, None].requires_grad_()
        (found,) = torch.autograd.grad(model(middle).sum(), middle)
        return {
            "constant": constant,
            "steepest": float(found.abs().max()),
            "error": float((model(points[:, None])[:, 0] - function(points)).abs().max().detach()),
            "certified": certified_upper(model, points[:1], steps=self.steps).upper,
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per target and number of points: the largest and the mean share of the constant."""
        rows, series = list[tuple[object, ...]](), list[Series]()
        for name in TARGETS:
            means = list[float]()
            for size in self.sizes:
                own = [r for t, r in records if t["target"] == name and t["points"] == size]
                if not own:
                    continue
                shares = [record["steepest"] / record["constant"] for record in own]
                above = [record["certified"] / record["steepest"] for record in own]
                means.append(math.fsum(shares) / len(shares))
                rows.append((name, size, means[-1], max(shares), math.fsum(above) / len(above)))
            series.append(Series(name=name, x=list(self.sizes)[: len(means)], y=means))
        exceeding = sum(r["steepest"] > r["constant"] * (1 + 1e-9) for _, r in records)
        return Table(
            title="Steepest slope of piecewise-linear interpolation, as a share of the target's constant",
            columns=("target", "points", "mean share", "largest share", "certified / steepest"),
            rows=tuple(rows),
            claims=(
                Claim.counted(
                    "Interpolations are no steeper than their target.",
                    len(records) - exceeding,
                    len(records),
                ),
            ),
            notes=(f"{exceeding} of {len(records)} interpolations are steeper than their target.",),
            charts=(
                Line(
                    title="Share of the target's constant",
                    x_label="points",
                    y_label="mean share",
                    x_scale="log",
                    percent=True,
                    series=series,
                ),
            ),
        )

    def tiny(self) -> Self:
        """Use one draw of few points."""
        return self.replace(seeds=1, sizes=(3, 5), steps=5)


def _network(points: Tensor, first: Tensor, slopes: Tensor) -> nn.Sequential:
    """Write the interpolation as f(0) + Σ (change of slope) · relu(x − point)."""
    units = len(slopes)
    one, two = nn.Linear(1, units, dtype=torch.double), nn.Linear(units, 1, dtype=torch.double)
    with torch.no_grad():
        one.weight.fill_(1.0)
        one.bias.copy_(-points[:-1])
        two.weight.copy_(torch.cat([slopes[:1], slopes.diff()])[None])
        two.bias.copy_(first[None])
    return nn.Sequential(one, nn.ReLU(), two)
