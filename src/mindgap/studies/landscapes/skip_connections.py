"""Loss surfaces of residual networks with and without their skip connections."""

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from mindgap.core import (
    Bar,
    Chart,
    Claim,
    Paired,
    Recipe,
    Record,
    Series,
    Study,
    Subject,
    Surface,
    Table,
    Trial,
    holm,
    mean_interval,
    option,
    paired,
)
from mindgap.data import cifar10
from mindgap.nets import ResNet
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.landscape.convexity import curvature_ratios, share_above_envelope
from mindgap.ops.landscape.directions import random_directions
from mindgap.ops.landscape.points import surface
from mindgap.training.fit import fit

ARMS = {True: "with skips", False: "without skips"}
RATIO = 0.01  # negative over largest curvature, above which a point counts as not convex
LOW = 10.0  # losses below it count as low; the largest loss that is drawn
NOTES = (
    "Published claim (Li et al., 2018): without skips, surfaces stay benign at depth 20 and turn "
    "chaotic at depth 56; with skips they stay nearly convex at both. Their networks are 16 channels "
    "wide and trained for 300 epochs on all images.",
    "'Not convex' is the share of the grid's inner points that lie above the chord of their two "
    "neighbors in a row, a column or a diagonal, by a curvature of at least 1 % of the largest there. "
    "Such a point proves that the loss is not convex; its absence proves nothing.",
    "'Above envelope' is the share of all points whose loss is more than a tenth above the largest "
    f"convex function below the surface. 'Low' is the share with a loss below {LOW:g}.",
    "Directions are random and filter-normalized; batch normalization keeps its running statistics, "
    "and its gains, shifts and all biases do not move. Intervals cover initial weights, batches and "
    "directions.",
)
Groups = Mapping[tuple[int, bool], Mapping[int, Record]]
COMPARED = {"not_convex": "not convex", "highest": "log₁₀ of the highest loss"}


class SkipConnectionsLandscape(Study):
    r"""Draw the loss around trained residual networks, with and without skips.

    Formula: $L(w + a d_1 + b d_2), \quad \frac{1}{|G|} \sum_{p \in G} 1\{\min_u c_u(p) < -0.01
    \max_u |c_u(p)|\}, \quad c_u(p) = \frac{L(p + u) - 2 L(p) + L(p - u)}{\lVert u \rVert^2}$

    Reading: Li et al. find that skip connections keep the loss of deep networks nearly convex
    around a minimum. A larger share means a less convex surface; a higher largest loss, a steeper
    one.

    Assumes: Short training of narrow networks on a subset of CIFAR-10, so the claim is judged for
    these only.

    >>> len(SkipConnectionsLandscape().trials())
    12
    """

    method = ("E3",)
    cites = ("li2018visualizing", "he2016deep")
    reproduces = ("expressivity: Geometry of the loss",)

    seeds: int = option(3, help="number of paired seeds", low=2)
    depths: tuple[int, ...] = option((20, 56), help="weighted layers, 6n + 2 each", low=8)
    width: int = option(8, help="channels of the first stage; 16 in the paper", low=1)
    samples: int = option(1_000, help="images to train on", low=20)
    test_samples: int = option(1_000, help="images of the official test part", low=10, high=10_000)
    epochs: int = option(10, help="passes over the training images", low=1)
    images: int = option(128, help="training images on which the surface is computed", low=2)
    points: int = option(13, help="points of the grid in each direction", low=5)
    span: float = option(1.0, help="how far the grid reaches in each direction", above=0)

    def trials(self) -> Sequence[Trial]:
        """Every depth, with and without skips, with every seed."""
        return [
            Trial(parameters={"depth": depth, "skips": skips}, seed=seed)
            for depth in self.depths
            for skips in ARMS
            for seed in range(self.seeds)
        ]

    def prepare(self) -> None:
        """Read the images once."""
        cifar10(10, 10)

    def run(self, trial: Trial) -> Record:
        """Train one network and compute its surface."""
        data = cifar10(self.samples, self.test_samples)
        mean, scale = data.inputs.mean((0, 2, 3), keepdim=True), data.inputs.std()
        assert data.test is not None
        train, test = (((x - mean) / scale, y) for x, y in (data.train, data.test))
        recipe = Recipe(
            model=lambda: network(trial["depth"], self.width, trial["skips"]),
            train=train,
            test=test,
            epochs=self.epochs,
            batch_size=32,
            learning_rate=2e-3,
        )
        subject = fit(recipe, seed=trial.seed, evaluate_every=0).subject()
        shown = tuple(part[: self.images] for part in train)
        flat = FlatLoss(Subject(subject.model, recipe.loss, shown))
        return {
            "train_loss": subject.mean_loss("train"),
            "test_error": subject.mean_error("test"),
            "losses": self._surface(flat, trial.seed),
        }

    def _surface(self, flat: FlatLoss, seed: int) -> list[list[float]]:
        axis = torch.linspace(-self.span, self.span, self.points, dtype=torch.float64)
        losses = surface(flat, random_directions(flat.named, seed=seed), axis, axis)
        return [[round(value, 5) for value in row] for row in losses.tolist()]

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per depth and arm, with paired tests in the notes."""
        groups: dict[tuple[int, bool], dict[int, Record]] = {}
        for trial, record in records:
            shape = {**record, **shape_of(record["losses"])}
            groups.setdefault((trial["depth"], trial["skips"]), {})[trial.seed] = shape
        columns = (
            *("depth", "skips", "training loss", "test error", "not convex", "from", "to"),
            *("above envelope", "low", "highest loss"),
        )
        return Table(
            title="Loss surfaces of residual networks with and without skips (CIFAR-10 subset)",
            columns=columns,
            rows=tuple(_row(depth, skips, found) for (depth, skips), found in groups.items()),
            notes=(*NOTES, *_compared(groups)),
            claims=_claims(groups),
            charts=(*_bars(groups), *self._surfaces(groups)),
        )

    def _surfaces(self, groups: Groups) -> list[Chart]:
        axis = np.linspace(-self.span, self.span, self.points).tolist()
        return [
            Surface(
                title=f"Depth {depth}, {ARMS[skips]}, seed {min(found)}",
                x=axis,
                y=axis,
                z=found[min(found)]["losses"],
                top=LOW,
                x_label="first direction",
                y_label="second direction",
                z_label="training loss",
            )
            for (depth, skips), found in groups.items()
            if min(map(min, found[min(found)]["losses"])) < LOW
        ]

    def tiny(self) -> Self:
        """Use one small network, few images and a coarse grid."""
        return self.replace(
            seeds=2, depths=(8,), width=2, samples=20, test_samples=10, epochs=1, images=4, points=5
        )


class _Nothing(nn.Module):
    """What is left of a skip connection that is cut."""

    def forward(self, maps: Tensor) -> float:  # noqa: ARG002
        """Add nothing."""
        return 0.0


def network(depth: int, width: int, skips: bool) -> nn.Module:
    """Make a residual network, or the plain one with the same layers and weights.

    >>> plain, residual = network(8, 2, False), network(8, 2, True)
    >>> sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in residual.parameters())
    True
    """
    model = ResNet(depth=depth, width=width)
    for block in model.stages.modules():
        if not skips and hasattr(block, "shortcut"):
            block.shortcut = _Nothing()
    return model


def shape_of(losses: Sequence[Sequence[float]]) -> dict[str, float]:
    """Measure how convex, how low and how steep a surface is.

    Args:
        losses: One row per place on the second axis.

    >>> shape_of([[2.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 2.0]])
    {'not_convex': 0.0, 'above': 0.0, 'low': 1.0, 'highest': 2.0}
    """
    heights = torch.tensor(losses, dtype=torch.float64)
    axis = torch.arange(len(heights), dtype=torch.float64)
    ratios = curvature_ratios(axis, axis, heights)
    return {
        "not_convex": float((ratios > RATIO).double().mean()),
        "above": share_above_envelope(axis, axis, heights),
        "low": float((heights < LOW).double().mean()),
        "highest": float(heights.max()),
    }


def _row(depth: int, skips: bool, found: Mapping[int, Record]) -> tuple[object, ...]:
    columns = {
        name: [record[name] for record in found.values()]
        for name in ("train_loss", "test_error", "not_convex", "above", "low", "highest")
    }
    means = {name: float(np.mean(values)) for name, values in columns.items()}
    spread = mean_interval(columns["not_convex"])
    return (
        depth,
        "yes" if skips else "no",
        means["train_loss"],
        means["test_error"],
        means["not_convex"],
        spread.low,
        spread.high,
        means["above"],
        means["low"],
        float(np.median(columns["highest"])),
    )


def _tests(groups: Groups) -> list[tuple[int, str, Paired, float]]:
    """Compare both arms of every depth, paired over seeds: convexity, and height in decades."""
    tests = []
    for depth in dict.fromkeys(depth for depth, _ in groups):
        with_, without = groups.get((depth, True), {}), groups.get((depth, False), {})
        both = sorted(set(with_) & set(without))
        if len(both) > 1:
            for name in COMPARED:
                arms = [[arm[seed][name] for seed in both] for arm in (without, with_)]
                values = np.log10(arms) if name == "highest" else np.array(arms)
                tests.append((depth, name, paired(*values)))
    corrected = holm([test.p_value for *_, test in tests]) if tests else []
    return [(*one, p) for one, p in zip(tests, corrected, strict=True)]


def _compared(groups: Groups) -> list[str]:
    return [
        f"At depth {depth}, {COMPARED[name]} without skips minus with: {test.difference:+.3f} "
        f"{test.interval}, p = {p:.2g} (paired over {test.pairs} seeds, Holm)."
        for depth, name, test, p in _tests(groups)
    ]


def _claims(groups: Groups) -> tuple[Claim, ...]:
    """Judge the deepest networks: at depth 20 the paper sees little difference."""
    words = {"not_convex": "less convex", "highest": "higher"}
    return tuple(
        Claim.shown(
            f"At depth {depth}, surfaces without skips are {words[name]}.",
            test.difference > 0 and p < 0.05,
        )
        for depth, name, test, p in _tests(groups)
        if depth == max(deep for deep, _ in groups)
    )


def _bars(groups: Groups) -> list[Chart]:
    series = []
    for skips, name in ARMS.items():
        found = {depth: rows for (depth, own), rows in groups.items() if own == skips}
        shares = [[record["not_convex"] for record in rows.values()] for rows in found.values()]
        ends = [mean_interval(row) for row in shares]
        series.append(
            Series(
                name=name,
                x=[f"depth {depth}" for depth in found],
                y=[float(np.mean(row)) for row in shares],
                low=[
                    max(end.low, 0.0) if len(row) > 1 else None
                    for end, row in zip(ends, shares, strict=True)
                ],
                high=[
                    min(end.high, 1.0) if len(row) > 1 else None
                    for end, row in zip(ends, shares, strict=True)
                ],
            )
        )
    return [
        Bar(
            title="Share of the surface that is not convex, mean and 95 % interval over seeds",
            series=series,
            percent=True,
            y_label="share of inner points",
        )
    ]
