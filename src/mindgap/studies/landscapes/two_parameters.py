"""The loss surface of a network with two weights, on all samples and on mini-batches."""

import itertools
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from mindgap.core import (
    Chart,
    Claim,
    Contour,
    Heatmap,
    Record,
    Study,
    Subject,
    Surface,
    Table,
    Trial,
    option,
)
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.landscape.points import surface

SAMPLES = 30
NOTES = (
    "The slides' data: RandomState(42), x = |N + 1|, y = 2x + 0.5 N, 30 samples, squared loss. Their "
    "loop calls sq_loss and mlp with other arguments than they take; the surface is the one they "
    "evidently mean.",
    "All inputs are positive. So the loss is constant where w₁ ≤ 0, and its gradient is zero there. "
    "Where w₁ > 0 it depends on w₁·w₂ alone, and its minima are the hyperbola w₁·w₂ = Σxy / Σx².",
    "'Predicted' is the standard deviation of a mean over samples drawn without replacement. It is "
    "computed per grid point from the losses of single samples.",
)


class TwoParameterSurface(Study):
    r"""Draw the loss of a network with two weights, on all samples and on mini-batches.

    Formula: $L_B(w_1, w_2) = \frac{1}{|B|} \sum_{i \in B} (y_i - w_2 \max(w_1 x_i, 0))^2$

    Reading: The surface is not convex: a plateau, a cliff and a curved valley. Every mini-batch has
    a valley of its own, and the fewer samples, the farther it lies from that of all samples.

    Assumes: The data of the slides.

    >>> len(TwoParameterSurface().trials())
    4
    """

    method = ("E3",)
    cites = ("ollion2018learning",)
    reproduces = ("expressivity: Loss of an MLP",)

    points: int = option(41, help="points of the grid in each direction", low=5)
    span: float = option(3.0, help="largest weight of the grid", above=0)
    batches: int = option(2_000, help="mini-batches of each size", low=2)
    batch_sizes: tuple[int, ...] = option((30, 10, 3, 1), help="batch sizes; 30 is all", low=1)

    def trials(self) -> Sequence[Trial]:
        """One per batch size; the size of the data set has one batch."""
        return [Trial(parameters={"batch_size": size}) for size in self.batch_sizes]

    def run(self, trial: Trial) -> Record:
        """Compute the surfaces of many batches."""
        x, y = slide_data()
        size = min(trial["batch_size"], SAMPLES)
        random = np.random.default_rng([trial.seed, size])
        count = 1 if size == SAMPLES else self.batches
        batches = [np.sort(random.permutation(SAMPLES)[:size]) for _ in range(count)]
        axis = torch.linspace(-self.span, self.span, self.points, dtype=torch.float64)
        surfaces = np.stack([surface_of(x[b], y[b], axis) for b in batches])
        single = np.stack([surface_of(x[[i]], y[[i]], axis) for i in range(SAMPLES)])
        slopes = [float(x[b] @ y[b] / (x[b] @ x[b])) for b in batches]
        share = (SAMPLES - size) / (size * (SAMPLES - 1))  # a sample is drawn only once
        return {
            "batches": count,
            "slopes": slopes,
            "spread": float(surfaces.std(0, ddof=1).mean()) if count > 1 else 0.0,
            "predicted": float(np.sqrt(share * single.var(0)).mean()),
            "plateau": float(surfaces[0][:, 0].mean()),
            "surface": surfaces[0].round(5).tolist(),
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per batch size."""
        columns = (
            *("batch size", "batches", "mean slope of the valley", "its standard deviation"),
            *("standard deviation of the loss", "predicted"),
        )
        return Table(
            title="Loss of w₂ · relu(w₁ x): all samples and mini-batches",
            columns=columns,
            rows=tuple(_row(trial, record) for trial, record in records),
            notes=NOTES,
            charts=tuple(self._charts(records)),
            claims=_claims(records),
        )

    def _charts(self, records: Sequence[tuple[Trial, Record]]) -> list[Chart]:
        axis = np.linspace(-self.span, self.span, self.points)
        charts: list[Chart] = []
        for trial, record in records:
            size, heights = trial["batch_size"], np.array(record["surface"])
            words: dict[str, Any] = {"x_label": "w₁", "y_label": "w₂", "x": axis, "y": axis}
            name = "All samples" if size >= SAMPLES else f"One batch of {size}"
            top = float(2.5 * record["plateau"])
            charts.append(
                Surface(
                    title=name, z=heights.tolist(), z_label="loss", top=top, wide=False, **words
                )
            )
            if size >= SAMPLES:
                levels = np.geomspace(1.5 * heights.min(), heights.max() / 2, 8)
                charts.append(
                    Heatmap(
                        title="All samples, contours",
                        z=np.log10(heights),
                        z_label="log₁₀ loss",
                        contours=[Contour(name="equal loss", z=heights - k) for k in levels],
                        wide=False,
                        **words,
                    )
                )
        return charts

    def tiny(self) -> Self:
        """Use a coarse grid and few batches."""
        return self.replace(points=7, batches=4)


def slide_data() -> tuple[Any, Any]:
    """Draw the slides' inputs and targets.

    >>> x, y = slide_data()
    >>> len(x), round(float(x @ y / (x @ x)), 4)
    (30, 1.9487)
    """
    random = np.random.RandomState(42)
    x = np.abs(random.randn(SAMPLES) + 1)
    return x, 2 * x + 0.5 * random.randn(SAMPLES)


def surface_of(x: Any, y: Any, axis: torch.Tensor) -> Any:
    """Compute the loss on a square grid: one row per w₂, one column per w₁."""
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    data = tuple(torch.from_numpy(np.array(part))[:, None] for part in (x, y))
    flat = FlatLoss(Subject(model.double(), "mse", data))
    directions = torch.eye(2, dtype=torch.float64)
    return surface(flat, directions, axis, axis, center=torch.zeros(2)).numpy()


def _claims(records: Sequence[tuple[Trial, Record]]) -> tuple[Claim, ...]:
    """Judge what the figure of the slides shows."""
    whole = [np.array(r["surface"]) for trial, r in records if trial["batch_size"] >= SAMPLES]
    spreads = [r["spread"] for _, r in sorted(records, key=lambda row: -row[0]["batch_size"])]
    return (
        *(Claim.shown("The loss is not convex.", _bends_down(heights)) for heights in whole),
        Claim.shown(
            "The fewer samples in a batch, the more its surface differs from that of the others.",
            all(a < b for a, b in itertools.pairwise(spreads)),
        ),
    )


def _bends_down(heights: Any) -> bool:
    """Tell whether a point of the grid lies above the chord of its neighbors, beyond rounding.

    >>> _bends_down(np.array([[0.0, 1.0, 0.0]])), _bends_down(np.array([[1.0, 0.0, 1.0]]))
    (True, False)
    """
    bends = [np.diff(heights, n=2, axis=axis) for axis in (0, 1)]
    return any(bool((found < -1e-3).any()) for found in bends)


def _row(trial: Trial, record: Record) -> tuple[object, ...]:
    slopes = np.array(record["slopes"])
    spread = float(slopes.std(ddof=1)) if len(slopes) > 1 else 0.0
    return (
        trial["batch_size"],
        record["batches"],
        float(slopes.mean()),
        spread,
        record["spread"],
        record["predicted"],
    )
