"""Figure 1 of Novello et al. 2020: sample weights and decision boundaries on the double moon."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import (
    Claim,
    Contour,
    Heatmap,
    InputError,
    Points,
    Recipe,
    Record,
    Study,
    Table,
    Trial,
    generator,
    holm,
    option,
    paired,
    standard_error,
)
from mindgap.data import DataSet, two_moons
from mindgap.nets import MLP
from mindgap.ops.variance.by_k import Grid, grid_over, variance_at
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.ops.variance.weights import permuted
from mindgap.training.ensemble import ensemble
from mindgap.training.fitted import Fitted

ARMS = ("baseline", "VBSW, mean 1", "permuted, mean 1")
WHERE = ("near the boundary", "elsewhere", "everywhere")
NEIGHBORS, MAX_WEIGHT = 20, 100  # Table 6 of the paper
CELLS = 41


class VbswFigure1(Study):
    r"""Figure 1 of Novello et al. 2020: local variance and boundaries of the double moon.

    Formula: $w_i = 1 + (m - 1) \frac{v_i}{\max_j v_j}$

    Reading: The map shows where labels vary. The lines show the decision boundaries of networks
    with four hidden units. The paper shows the best seed of each method and calls the boundary of
    VBSW cleaner. Here the charts show the seed of median test accuracy, and the table reports the
    accuracy near the boundary and elsewhere. A test sample is near the boundary if the labels of
    its nearest training samples vary more than at the median test sample. Only what VBSW gains over
    its permuted weights is due to the local variance. Tests are paired over draws of the moons,
    with seeds averaged.

    Assumes: The paper's network, k and m, with weights scaled to mean 1, so that all arms have the
    same effective learning rate. The learning rate of 0.1 comes from ``vbsw-table-1``, because the
    published 0.001 stops long before convergence. It was tried there on four of the draws with
    their test accuracy visible. The rows show a direction, not a size.

    >>> len(VbswFigure1().trials())
    20
    """

    method = ("V9",)
    cites = ("novello2020variance",)
    reproduces = ("vbsw: Figure 1",)

    splits: int = option(20, help="draws of the moons to pair over", low=2)
    seeds: int = option(10, help="seeds per draw", low=1)
    epochs: int = option(2000, help="passes over the training samples", low=1)
    noise: float = option(0.1, help="noise of the moons, which the paper does not state", low=0)

    def trials(self) -> Sequence[Trial]:
        """One trial per draw."""
        return [Trial(parameters={}, seed=split) for split in range(self.splits)]

    def run(self, trial: Trial) -> Record:
        """Train all arms and seeds on one draw; the first draw also gives the charts."""
        data = two_moons(300, 1000, self.noise, seed=trial.seed)
        fitted = VarianceWeights(k=NEIGHBORS, max_weight=MAX_WEIGHT, normalize="mean").fit(
            data.inputs, data.targets
        )
        weights = torch.from_numpy(fitted.weights_)
        rows = torch.stack(
            [torch.ones_like(weights), weights, permuted(weights, generator(trial.seed))]
        )
        members = ensemble(
            self._recipe(data),
            list(range(self.seeds)) * len(ARMS),
            sample_weights=rows.repeat_interleave(self.seeds, 0),
            keep_history=False,
        )
        assert data.test_inputs is not None
        around = variance_at(data.test_inputs, data.inputs, data.targets, k=NEIGHBORS)
        near = around > around.median()
        if not bool(near.any()):
            raise InputError(
                "Labels must vary around some test sample, got moons that are far apart. Raise "
                "noise."
            )
        right = torch.stack([1 - member.subject().errors("test").double() for member in members])
        right = right.view(len(ARMS), self.seeds, -1)
        record: dict[str, Any] = {
            "accuracy": _accuracy(right, near),
            "near": float(near.double().mean()),
        }
        if trial.seed == 0:
            record["drawing"] = _drawing(data, weights, [*members], right.mean(2))
        return record

    def _recipe(self, data: DataSet) -> Recipe:
        targets = (data.targets[:, None].float(), data.test_targets[:, None].float())  # type: ignore[index]
        return Recipe(
            model=functools.partial(MLP, widths=(2, 4, 1), activation="relu"),
            train=(data.inputs, targets[0]),
            test=(data.test_inputs, targets[1]),
            loss="bce",
            optimizer="sgd",
            learning_rate=0.1,
            batch_size=100,
            epochs=self.epochs,
        )

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """Compare the accuracy of every arm by region with baseline and permuted weights."""
        found = [record for _, record in records]
        near = sum(record["near"] for record in found) / max(len(found), 1)
        drawings = [record["drawing"] for record in found if "drawing" in record]
        return Table(
            title="VBSW, Figure 1: test accuracy on the double moon by region, %",
            columns=(
                *("where", "arm", "accuracy", "se", "minus"),
                *("difference", "low", "high", "p (Holm)"),
            ),
            rows=tuple(_rows(found)) if len(found) > 1 else (),
            notes=(
                f"Means over {len(found)} draws of 300 training samples and {self.seeds} seeds "
                "each.",
                f"{100 * near:.1f} % of the test samples are near the boundary.",
                "Differences are paired over draws, with 95 % intervals. The p-values are those of "
                "Student's t-test, corrected by Holm.",
                "The charts show the first draw; each line is the seed of median test accuracy.",
            ),
            charts=tuple(chart for drawing in drawings for chart in _charts(drawing)),
            claims=tuple(
                Claim.shown(
                    "VBSW has a better decision boundary than unweighted training.",
                    row[5] > 0 and row[8] < 0.05,
                )
                for row in (_rows(found) if len(found) > 1 else ())
                if (row[0], row[1], row[4]) == (WHERE[0], ARMS[1], ARMS[0])
            ),
        )

    def tiny(self) -> Self:
        """Use two draws, two seeds and few epochs."""
        return self.replace(splits=2, seeds=2, epochs=20)


def _accuracy(right: Tensor, near: Tensor) -> dict[str, list[float]]:
    """Return the mean accuracy over seeds by region and arm, in percent."""
    parts = {"near the boundary": near, "elsewhere": ~near, "everywhere": torch.ones_like(near)}
    return {where: (100 * right[..., part].mean((1, 2))).tolist() for where, part in parts.items()}


def _rows(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    values = {
        (w, a): [r["accuracy"][w][k] for r in records] for w in WHERE for k, a in enumerate(ARMS)
    }
    pairs = [
        (where, *pair)
        for where in WHERE
        for pair in ((ARMS[1], ARMS[0]), (ARMS[2], ARMS[0]), (ARMS[1], ARMS[2]))
    ]
    tests = [paired(values[where, arm], values[where, other]) for where, arm, other in pairs]
    corrected = holm([test.p_value for test in tests])
    rows: list[tuple[Any, ...]] = []
    for where in WHERE:
        rows.append((where, ARMS[0], *_level(values[where, ARMS[0]]), None, None, None, None, None))
        for (place, arm, other), test, p in zip(pairs, tests, corrected, strict=True):
            ends = (test.difference, test.interval.low, test.interval.high)
            rows += (
                [(where, arm, *_level(values[where, arm]), other, *ends, p)]
                if place == where
                else []
            )
    return rows


def _level(values: Sequence[float]) -> tuple[float, float]:
    return sum(values) / len(values), standard_error(values)


def _drawing(
    data: DataSet, weights: Tensor, members: Sequence[Fitted], accuracy: Tensor
) -> dict[str, Any]:
    """Return the map, the samples and the median seed's boundary of each arm, rounded."""
    grid = grid_over(data.inputs, CELLS)
    middle = accuracy.argsort(dim=1, stable=True)[:, accuracy.shape[1] // 2].tolist()
    chosen = [members[arm * accuracy.shape[1] + seed] for arm, seed in enumerate(middle)]
    return {
        "x": _short(grid.x),
        "y": _short(grid.y),
        "variance": _table(grid, variance_at(grid.nodes, data.inputs, data.targets, k=NEIGHBORS)),
        "points": [
            [_short(place), int(label)]
            for place, label in zip(data.inputs, data.targets, strict=True)
        ],
        "weights": _short(weights),
        "lines": [
            _table(grid, member.subject().forward((grid.nodes,)).detach().flatten())
            for member in chosen
        ],
        "accuracy": [float(100 * accuracy[arm, seed]) for arm, seed in enumerate(middle)],
    }


def _table(grid: Grid, values: Tensor) -> list[list[float]]:
    return [_short(row) for row in grid.rows(values)]


def _short(values: Tensor) -> list[float]:
    return [float(f"{value:.3g}") for value in values.tolist()]


def _charts(drawing: Mapping[str, Any]) -> list[Heatmap]:
    weights, points = drawing["weights"], drawing["points"]
    moons = [
        Points(
            name=f"{name} moon",
            x=[place[0] for place, label in points if label == number],
            y=[place[1] for place, label in points if label == number],
            weights=[
                weight
                for weight, (_, label) in zip(weights, points, strict=True)
                if label == number
            ],
        )
        for number, name in enumerate(("upper", "lower"))
    ]
    plain = [dataclasses.replace(moon, weights=()) for moon in moons]
    contours = [
        Contour(name=f"{arm} ({accuracy:.1f} %)", z=z)
        for arm, accuracy, z in zip(ARMS, drawing["accuracy"], drawing["lines"], strict=True)
    ]
    plane = Heatmap(
        x_label="first feature", y_label="second feature", x=drawing["x"], y=drawing["y"]
    )
    return [
        dataclasses.replace(
            plane,
            title=f"Variance of the labels of the {NEIGHBORS} nearest samples",
            caption="Larger markers have larger weights.",
            z=drawing["variance"],
            z_label="local variance",
            points=moons,
        ),
        dataclasses.replace(
            plane, title="Decision boundaries (test accuracy)", points=plain, contours=contours
        ),
    ]
