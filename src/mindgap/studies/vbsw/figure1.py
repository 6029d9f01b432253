"""Figure 1 of Novello et al. 2020: the weights of the double moon, and the boundaries that they lead to."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import (
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
NEIGHBORS, MAX_WEIGHT = 20, 100  # the paper's Table 6
CELLS = 41


class VbswFigure1(Study):
    r"""Figure 1 of Novello et al. 2020: local variance and boundaries of the double moon.

    Formula: $w_i = 1 + (m - 1) \frac{v_i}{\max_j v_j}$

    Reading: The map shows where labels vary, the lines where a network of four hidden units changes
    its answer. The paper shows the best seed of each method and calls the boundary of VBSW cleaner;
    here it is the seed of median test accuracy, and numbers stand beside the image: the test
    accuracy near the boundary, where the labels of the nearest training samples vary more than at
    the median test sample, and elsewhere. What VBSW gains over its own permuted weights is due to
    the local variance. Tests are paired over draws of the moons, seeds averaged.

    Assumes: The paper's network, k and m, and weights scaled to mean 1, so that all arms take steps
    of one length. The step of 0.1 comes from ``vbsw-table-1``, where it was tried on four of the
    draws with their test accuracy in view, as the published 0.001 ends long before convergence:
    these rows show a direction, not a size.

    >>> len(VbswFigure1().trials())
    20
    """

    method = ("V9",)
    cites = ("novello2020variance",)

    splits: int = option(20, help="number of draws of the moons to pair over", low=2)
    seeds: int = option(10, help="seeds a draw", low=1)
    epochs: int = option(2000, help="passes over the training samples", low=1)
    noise: float = option(0.1, help="noise of the moons, which the paper does not tell", low=0)

    def trials(self) -> Sequence[Trial]:
        """One a draw."""
        return [Trial(parameters={}, seed=split) for split in range(self.splits)]

    def run(self, trial: Trial) -> Record:
        """All arms and seeds on one draw; the first draw is also drawn."""
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
                "Labels must vary around some test sample, got moons that lie apart. Raise noise."
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
        """Accuracy of every arm by place, against baseline and against permuted weights, and the two drawings."""
        found = [record for _, record in records]
        near = sum(record["near"] for record in found) / max(len(found), 1)
        drawings = [record["drawing"] for record in found if "drawing" in record]
        return Table(
            title=(
                "VBSW, Figure 1: test accuracy on the double moon near the boundary and "
                "elsewhere, %"
            ),
            columns=(
                "where",
                "arm",
                "accuracy",
                "se",
                "minus",
                "difference",
                "low",
                "high",
                "p (Holm)",
            ),
            rows=tuple(_rows(found)) if len(found) > 1 else (),
            notes=(
                f"Mean over {len(found)} draws of 300 training samples, of the mean over "
                f"{self.seeds} seeds.",
                f"Near the boundary lie {100 * near:.1f} % of the test samples.",
                "Differences are paired over draws, with 95 % intervals; p-values are Student's, "
                "by Holm.",
                "The drawings are of the first draw; each line is the seed of median test "
                "accuracy.",
            ),
            charts=tuple(chart for drawing in drawings for chart in _charts(drawing)),
        )

    def tiny(self) -> Self:
        """Two draws, two seeds, few epochs."""
        return self.replace(splits=2, seeds=2, epochs=20)


def _accuracy(right: Tensor, near: Tensor) -> dict[str, list[float]]:
    """By place, the mean over seeds of every arm, in percent."""
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
    """The map, the samples, and the boundary of each arm's seed of median accuracy, rounded for a drawing."""
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
            caption="Samples are larger where heavier.",
            z=drawing["variance"],
            z_label="local variance",
            points=moons,
        ),
        dataclasses.replace(
            plane, title="Decision boundaries (test accuracy)", points=plain, contours=contours
        ),
    ]
