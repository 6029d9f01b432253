"""Figure 5 of Novello et al. 2020: the grid of m and k on Boston housing."""

import functools
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from mindgap.core import (
    Claim,
    Heatmap,
    Recipe,
    Record,
    Study,
    Table,
    Trial,
    generator,
    holm,
    option,
    paired,
)
from mindgap.data import boston, standardize
from mindgap.ops.convex.heads import Heads, solve_heads
from mindgap.ops.variance.by_k import VarianceByK
from mindgap.ops.variance.weights import scale_weights
from mindgap.training.ensemble import ensemble

OVERLAP = 102 / 303  # 102 of 506 houses judge; of the others, a quarter chooses and 303 are fitted
ARMS = {
    "paper": "VBSW, m = 8, k = 35 as published",
    "validation": "VBSW, chosen on validation",
    "test": "VBSW, chosen on test",
    "permuted_validation": "permuted weights, chosen on validation",
    "permuted_test": "permuted weights, chosen on test",
}


class VbswFigure5(Study):
    r"""Figure 5 of Novello et al. 2020: error over a grid of m and k on Boston housing.

    Formula: $\min_{W, b} \frac{\sum_i w_i \lVert W x_i + b - y_i \rVert^2}{\sum_i w_i}, \qquad
    w_i = 1 + (m - 1) \frac{v_i}{\max_j v_j}$

    Reading: Negative cells of the map are settings that do better than no weights, on average over
    splits. The table shows what choosing m and k gains. A choice made on validation data is useful
    if it beats no weights. With a choice made on test data, even permuted weights seem to help.

    Assumes: The linear model is solved to its exact optimum, so the learning rate and the seed have
    no effect. One more trial trains it as in the paper, by Adam from several seeds, on the first
    split and a coarser grid: the mean over seeds is the paper's left map, the minimum its right
    one.

    >>> len(VbswFigure5().trials())
    101
    """

    method = ("V8", "V9")
    cites = ("novello2020variance", "nadeau2003inference")
    reproduces = ("vbsw: Figure 5",)

    splits: int = option(100, help="random splits to pair over", low=2)
    cells: int = option(20, help="values of m and of k in the grid", low=2)
    seeds: int = option(10, help="seeds of Adam; the paper has 10", low=2)
    adam_cells: int = option(8, help="values of m and of k in the grid that Adam trains", low=2)
    epochs: int = option(50_000, help="epochs of Adam; the paper has 50,000", low=1)

    def trials(self) -> Sequence[Trial]:
        """One trial per split, then one for all seeds of Adam."""
        splits = [Trial(parameters={}, seed=split) for split in range(self.splits)]
        return [*splits, Trial(parameters={"solver": "Adam"})]

    def run(self, trial: Trial) -> Record:
        """Fit all settings on one split, with original and with permuted weights, or by Adam."""
        if trial.parameters:
            return self._adam(trial.seed)
        data = boston(seed=trial.seed)
        assert data.test_inputs is not None
        assert data.test_targets is not None
        train, test = standardize(data.inputs, data.test_inputs)
        held = torch.randperm(len(train), generator=generator(trial.seed)) < len(train) // 4
        parts = {"validation": (train[held], data.targets[held]), "test": (test, data.test_targets)}
        table = self._weights(train[~held], data.targets[~held], self.cells)
        mixed = table[:, torch.randperm(table.shape[1], generator=generator(trial.seed))]
        every = torch.cat([torch.ones_like(table[:1]), table, mixed])
        heads = solve_heads("squares", train[~held], data.targets[~held], every, l2=0)
        scores = {name: _errors(heads, *part) for name, part in parts.items()}
        return _record(scores["validation"], scores["test"], self.cells**2 + 1)

    def _adam(self, split: int) -> Record:
        """Train every setting of the coarser grid from every seed, in one vectorized call."""
        data = boston(seed=split)
        assert data.test_inputs is not None
        train, test = standardize(data.inputs, data.test_inputs)
        table = self._weights(train, data.targets, self.adam_cells)[:-1]
        weights = torch.cat([torch.ones_like(table[:1]), table])
        recipe = Recipe(
            model=functools.partial(nn.Linear, train.shape[1], 1),
            train=(train, data.targets),
            test=(test, data.test_targets),
            loss="mse",
            learning_rate=5e-4,
            batch_size=len(train),
            epochs=self.epochs,
        )
        members = ensemble(
            recipe,
            list(range(self.seeds)) * len(weights),
            sample_weights=weights.float().repeat_interleave(self.seeds, 0),
            keep_history=False,
        )
        errors = torch.tensor([member.subject().mean_loss("test") for member in members])
        found = errors.view(len(weights), self.seeds)
        return {"adam": found[1:].tolist(), "baseline": found[0].tolist()}

    def _grid(self, cells: int) -> tuple[list[float], list[int]]:
        """Return equally spaced values of m from 2 to 100 and of k from 10 to 50."""
        ms, ks = torch.linspace(2, 100, cells), torch.linspace(10, 50, cells).round().int()
        return [float(m) for m in ms], [int(k) for k in ks]

    def _weights(self, features: Tensor, targets: Tensor, cells: int) -> Tensor:
        """Return one row of weights per setting, k by k, the published setting last."""
        ms, ks = self._grid(cells)
        by_k = VarianceByK(features, targets, 50, task="regression")
        settings = [*((m, k) for k in ks for m in ms), (8.0, 35)]
        variance = {k: by_k(k) for k in {k for _, k in settings}}
        return torch.stack([scale_weights(variance[k], m) for m, k in settings])

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per way of choosing m and k, and the map."""
        found = [record for trial, record in records if not trial.parameters]
        seeded = [record for trial, record in records if trial.parameters]
        baseline = [record["baseline"] for record in found]
        tests = (
            {
                arm: paired([record[arm] for record in found], baseline, overlap=OVERLAP)
                for arm in ARMS
            }
            if len(found) > 1
            else {}
        )
        corrected = holm([test.p_value for test in tests.values()])
        mean = sum(baseline) / len(baseline)
        rows: list[tuple[Any, ...]] = [("no weights", mean, None, None, None, None, None)]
        for (arm, test), p_value in zip(tests.items(), corrected, strict=True):
            better = sum(record[arm] < record["baseline"] for record in found) / len(found)
            change = (
                100 * end / mean for end in (test.difference, test.interval.low, test.interval.high)
            )
            rows.append((ARMS[arm], mean + test.difference, *change, 100 * better, p_value))
        return Table(
            title="VBSW, Figure 5: what choosing m and k gains on Boston housing",
            columns=(
                *("arm", "test error", "change, %", "low", "high"),
                *("better in % of splits", "p (Holm)"),
            ),
            rows=tuple(rows),
            notes=(
                f"Means over {len(found)} random splits, paired. A quarter of the training part is "
                "validation data. The splits share samples: intervals and p-values are those of the "
                "corrected resampled t-test.",
                *(_seeds_told(record) for record in seeded),
            ),
            charts=(
                self._map(
                    "Change of the test error from no weights, %, mean over splits",
                    torch.tensor([record["map"] for record in found], dtype=torch.float64).mean(0),
                    self.cells,
                ),
                *(chart for record in seeded for chart in self._seed_maps(record)),
            ),
            claims=self._claims(found) if len(found) > 1 else (),
        )

    def _claims(self, records: Sequence[Record]) -> tuple[Claim, ...]:
        """Judge what the paper reads off its map: lower errors for small m, and for k above 40."""
        ms, ks = (torch.tensor(axis) for axis in self._grid(self.cells))
        maps = torch.tensor([record["map"] for record in records], dtype=torch.float64)
        maps = maps.view(len(maps), len(ks), len(ms))
        small, near = ms <= ms.double().median(), ks <= 40
        sides = {
            "The error is lower for small m.": (maps[:, :, small], maps[:, :, ~small]),
            "The error is lower for k above 40.": (maps[:, ~near], maps[:, near]),
        }
        asked = {text: both for text, both in sides.items() if all(one.numel() for one in both)}
        tests = [
            paired(*(one.mean((1, 2)).tolist() for one in both), overlap=OVERLAP)
            for both in asked.values()
        ]
        corrected = holm([test.p_value for test in tests])
        return tuple(
            Claim.shown(text, test.difference < 0 and p_value < 0.05)
            for text, test, p_value in zip(asked, tests, corrected, strict=True)
        )

    def _seed_maps(self, record: Record) -> list[Heatmap]:
        """Map the mean and the minimum over the seeds of Adam, as the paper does."""
        errors = torch.tensor(record["adam"], dtype=torch.float64)
        plain = torch.tensor(record["baseline"], dtype=torch.float64)
        pairs = {
            "mean": (errors.mean(1), plain.mean()),
            "minimum": (errors.amin(1), plain.min()),
        }
        return [
            self._map(
                f"Change of the test error from no weights, %, {name} over seeds of Adam",
                100 * (own / other - 1),
                self.adam_cells,
            )
            for name, (own, other) in pairs.items()
        ]

    def _map(self, title: str, change: Tensor, cells: int) -> Heatmap:
        ms, ks = self._grid(cells)
        return Heatmap(
            title=title,
            x_label="largest weight m",
            y_label="neighbors k",
            x=ms,
            y=ks,
            z=change.view(len(ks), len(ms)).tolist(),
            diverging=True,
        )

    def tiny(self) -> Self:
        """Use two splits, two seeds, and grids of nine and four settings."""
        return self.replace(splits=2, cells=3, seeds=2, adam_cells=2, epochs=20)


def _seeds_told(record: Record) -> str:
    """Say how much the minimum over seeds differs from their mean."""
    errors = torch.tensor(record["adam"], dtype=torch.float64)
    apart = 100 * float((errors.mean(1) / errors.amin(1) - 1).max())
    spread = 100 * float(errors.mean(1).max() / errors.mean(1).min() - 1)
    return (
        f"Adam, {errors.shape[1]} seeds on one split: between mean and minimum over seeds lie at "
        f"most {apart:.2g} % in any setting; between settings up to {spread:.2g} %."
    )


def _errors(heads: Heads, features: Tensor, targets: Tensor) -> Tensor:
    return (heads.outputs(features) - targets.double()).square().mean((1, 2))


def _record(validation: Tensor, test: Tensor, settings: int) -> dict[str, Any]:
    """Read off the arms from heads in the order: unweighted, settings, permuted settings."""
    own, mixed = slice(1, settings), slice(1 + settings, 2 * settings)
    return {
        "baseline": float(test[0]),
        "paper": float(test[settings]),
        "validation": float(test[own][validation[own].argmin()]),
        "test": float(test[own].min()),
        "permuted_validation": float(test[mixed][validation[mixed].argmin()]),
        "permuted_test": float(test[mixed].min()),
        "map": [round(100 * (value / float(test[0]) - 1), 2) for value in test[own].tolist()],
    }
