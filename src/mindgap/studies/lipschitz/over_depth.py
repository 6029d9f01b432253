"""How far certified bounds are above the slopes that exist, over depth."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Self

from mindgap.core import Claim, Line, Recipe, Record, Series, Study, Table, Trial, option
from mindgap.core.stats.comparisons import mean_interval
from mindgap.data import digits
from mindgap.nets import MLP
from mindgap.ops.lipschitz.lower import lipschitz_lower
from mindgap.ops.lipschitz.upper import certified_upper
from mindgap.training.fit import fit


class LipschitzOverDepth(Study):
    r"""Ratio of two certified upper bounds to the largest slope found, over depth.

    Formula: $\frac{\prod_l \lVert W_l \rVert_2}{\max_t \sigma_{\max}(J(x_t))}, \quad \frac{L_{tight}}{\max_t
    \sigma_{\max}(J(x_t))}$

    Reading: The product of layer norms assumes that one input stretches every layer at once. How far
    that is from the truth grows with depth. The tight bound knows how layers meet. Both ratios are
    at least one; the truth may be steeper than what was found.

    Assumes: MLPs of width 48 on the 8×8 digits, trained with Adam, and the same untrained.

    >>> len(LipschitzOverDepth(seeds=1, depths=(1, 2)).trials())
    4
    """

    method = ("S5", "E9")
    cites = ("fazlyab2019efficient", "virmaux2018lipschitz")
    reproduces = ("stability: Depth",)

    seeds: int = option(3, help="networks per depth and state", low=1)
    depths: tuple[int, ...] = option((1, 2, 4, 8), help="numbers of hidden layers", low=1)
    width: int = option(48, help="units of a hidden layer", low=2)
    epochs: int = option(20, help="passes over the training data", low=0)
    steps: int = option(100, help="steps of both searches", low=1)

    def trials(self) -> Sequence[Trial]:
        """One trial per depth, state and seed."""
        return [
            Trial(parameters={"depth": depth, "trained": trained}, seed=seed)
            for depth in self.depths
            for trained in (False, True)
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Bound one network from below and above."""
        data = digits().subset(500, seed=trial.seed)
        widths = (64, *[self.width] * int(trial["depth"]), 10)
        recipe = Recipe(
            model=lambda: MLP(widths=widths, activation="relu"),
            train=data.train,
            epochs=self.epochs if trial["trained"] else 0,
            batch_size=50,
            learning_rate=0.003,
        )
        model = fit(recipe, seed=trial.seed, evaluate_every=0).model
        inputs = data.train[0].float()
        upper = certified_upper(model, inputs[0], steps=self.steps)
        lower = lipschitz_lower(model, inputs, steps=self.steps)
        return {
            "lower": lower.lower,
            "data": lower.data,
            "tight": upper.upper,
            "product": upper.product,
            "closed_form": upper.steps[0],
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per state and depth, with the ratios."""
        rows, series = list[tuple[object, ...]](), list[Series]()
        for trained in (False, True):
            word = "trained" if trained else "untrained"
            kept: dict[str, list[float]] = {"product": [], "tight": []}
            for depth in self.depths:
                own = [
                    record
                    for trial, record in records
                    if trial["depth"] == depth and trial["trained"] == trained
                ]
                if not own:
                    continue
                ratios = {
                    key: [record[key] / record["lower"] for record in own]
                    for key in ("product", "closed_form", "tight", "data")
                }
                rows.append((word, depth, *(_told(ratios[key]) for key in ratios)))
                for key, means in kept.items():
                    means.append(math.fsum(ratios[key]) / len(own))
            for key, means in kept.items():
                series.append(
                    Series(name=f"{key}, {word}", x=list(self.depths)[: len(means)], y=means)
                )
        return Table(
            notes=_notes(series),
            title="Certified bounds over the largest slope found",
            columns=("state", "hidden layers", "product", "closed form", "tight", "slope at data"),
            rows=tuple(rows),
            claims=tuple(
                Claim.shown(
                    f"The product of layer norms overstates more with every depth ({one.name}).",
                    all(before < after for before, after in pairwise(one.y)),  # type: ignore[operator]
                )
                for one in series
                if one.name.startswith("product") and len(one.y) > 1
            ),
            charts=(
                Line(
                    title="Upper bound over lower bound",
                    x_label="hidden layers",
                    y_label="ratio",
                    y_scale="log",
                    series=series,
                ),
            ),
        )

    def tiny(self) -> Self:
        """Use two shallow networks and few steps."""
        return self.replace(seeds=1, depths=(1, 2), width=6, epochs=1, steps=5)


def _notes(series: Sequence[Series]) -> tuple[str, ...]:
    """Say how each ratio grows from the smallest depth to the largest."""
    return tuple(
        f"Bound over slope, {row.name}: {row.y[0]:.3g} with {row.x[0]} and {row.y[-1]:.3g} with "
        f"{row.x[-1]} hidden layers."
        for row in series
        if len(row.y) > 1
    )


def _told(values: Sequence[float]) -> str:
    mean = math.fsum(values) / len(values)
    return f"{mean:.4g} {mean_interval(values)}" if len(values) > 1 else f"{mean:.4g}"
