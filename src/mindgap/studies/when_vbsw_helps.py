"""When does VBSW help a linear model? Thirteen real data sets, chosen on validation data, against permuted weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core.arguments import generator
from mindgap.core.options import option
from mindgap.core.stats import holm, paired
from mindgap.core.study import Record, Study, Trial
from mindgap.core.table import Table
from mindgap.data import DataSet, load, standardize, stratified_split
from mindgap.ops.convex import solve_heads
from mindgap.ops.variance_by_k import VarianceByK
from mindgap.ops.weights import scale_weights

TABLES = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
NAMES = (*(f"uci-{name}" for name in TABLES), "california", "digits", "mnist", "cifar10")
MAX_WEIGHTS, KS = (2.0, 5.0, 10.0, 40.0), (5, 10, 20, 40)
PARTS = (0.6, 0.2, 0.2)  # fit, choose, judge
COMPONENTS = 50


class WhenVbswHelps(Study):
    r"""Whether weights by local variance help a linear model, on thirteen real data sets.

    Formula: $\frac{\mathrm{err}_{VBSW} - \mathrm{err}_{uniform}}{\mathrm{err}_{uniform}}$

    Reading: Negative is better. VBSW helps on a data set if its interval lies below zero and below that of the permuted
    weights, which are chosen in the same way from as many settings. Errors are mean squared errors for values and error
    rates for classes.

    Assumes: A linear model at its exact optimum on standardised features (pictures: their first 50 principal
    components); m and k are chosen on a fifth of the samples, and another fifth judges once.

    >>> len(WhenVbswHelps(splits=2).trials())
    26
    """

    method = ("V8", "V9")
    cites = ("novello2020variance",)

    splits: int = option(20, help="number of random splits to pair over", low=2)
    samples: int = option(3000, help="samples taken of each data set at most", low=100)
    sets: int = option(len(NAMES), help="number of data sets, in the order of the table", low=1, high=len(NAMES))

    def trials(self) -> Sequence[Trial]:
        """Every split of every data set."""
        names = NAMES[: self.sets]
        return [Trial(parameters={"data": name}, seed=split) for name in names for split in range(self.splits)]

    def run(self, trial: Trial) -> Record:
        """The uniform head, all weighted heads and as many with permuted weights, on one split."""
        features, target, classes = self._table(load(trial["data"]), trial.seed)
        fit, choose, judge = stratified_split(target, PARTS, trial.seed)
        rows = _projected(features, fit, classes)
        weights = _weights(rows[fit], target[fit], classes)
        mixed = weights[:, torch.randperm(len(fit), generator=generator(trial.seed))]
        every = torch.cat([torch.ones_like(weights[:1]), weights, mixed])
        kind: Any = "softmax" if classes else "squares"
        outputs = int(target.max()) + 1 if classes else None
        heads = solve_heads(kind, rows[fit], target[fit], every, outputs=outputs, l2=1e-4 if classes else 1e-8)
        chosen, judged = (_errors(heads.outputs(rows[part]), target[part], classes) for part in (choose, judge))
        return _record(chosen, judged, len(weights))

    def _table(self, data: DataSet, seed: int) -> tuple[Tensor, Tensor, bool]:
        """At most so many samples, features as rows, and whether the targets are classes."""
        classes = data.task == "classification"
        targets = data.targets if classes else data.targets.double().reshape(len(data.targets), -1)
        order = torch.randperm(len(targets), generator=generator(seed))[: self.samples]
        return data.inputs[order].flatten(1).double(), targets[order], classes

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row a data set: the change against uniform weights, with the same for permuted weights."""
        rows, tests = [], []
        for name in NAMES[: self.sets]:
            found = [record for trial, record in records if trial["data"] == name]
            if len(found) > 1:
                own, mixed = (_change(found, arm) for arm in ("weighted", "permuted"))
                tests.append(paired([r["weighted"] for r in found], [r["permuted"] for r in found]))
                uniform = sum(record["uniform"] for record in found) / len(found)
                rows.append((name, uniform, *own, *mixed))
        corrected = holm([test.p_value for test in tests])
        verdicts = [_verdict(test.difference, p_value) for test, p_value in zip(tests, corrected, strict=True)]
        lines = [(*row, p, verdict) for row, p, verdict in zip(rows, corrected, verdicts, strict=True)]
        columns = ("data", "uniform error", "VBSW, %", "low", "high", "permuted, %", "low", "high", "p (Holm)", "VBSW")
        helped = f"helps on {verdicts.count('helps')}, hurts on {verdicts.count('hurts')} of {len(rows)} data sets"
        notes = (
            "Change of the test error against the same model with uniform weights; negative is better.",
            f"Against permuted weights chosen in the same way, paired over splits, VBSW {helped} (p < 0.05, Holm).",
        )
        return Table(title="When does VBSW help a linear model?", columns=columns, rows=tuple(lines), notes=notes)

    def tiny(self) -> Self:
        """One data set, two splits."""
        return self.replace(splits=2, samples=150, sets=1)


def _projected(features: Tensor, fit: Tensor, pictures: bool) -> Tensor:
    if not pictures:
        return torch.cat(standardize(features[fit], features))[len(fit) :]
    centred = features - features[fit].mean(0)
    directions = torch.linalg.svd(centred[fit], full_matrices=False).Vh[:COMPONENTS]
    reduced: Tensor = centred @ directions.T
    return reduced / reduced[fit].std()


def _weights(features: Tensor, target: Tensor, classes: bool) -> Tensor:
    by_k = VarianceByK(features, target, max(KS), task="classification" if classes else "regression")
    return torch.stack([scale_weights(by_k(k), m) for k in KS for m in MAX_WEIGHTS])


def _errors(outputs: Tensor, target: Tensor, classes: bool) -> Tensor:
    if classes:
        return (outputs.argmax(2) != target).double().mean(1)
    return (outputs - target).square().mean((1, 2))


def _record(chosen: Tensor, judged: Tensor, settings: int) -> dict[str, float]:
    own, mixed = slice(1, 1 + settings), slice(1 + settings, None)
    return {
        "uniform": float(judged[0]),
        "weighted": float(judged[own][chosen[own].argmin()]),
        "permuted": float(judged[mixed][chosen[mixed].argmin()]),
    }


def _change(found: Sequence[Record], arm: str) -> tuple[float, float, float]:
    uniform = [record["uniform"] for record in found]
    test = paired([record[arm] for record in found], uniform)
    scale = 100 / max(sum(uniform) / len(uniform), 1e-300)
    return scale * test.difference, scale * test.interval.low, scale * test.interval.high


def _verdict(difference: float, p_value: float) -> str:
    if p_value >= 0.05:
        return "no difference"
    return "helps" if difference < 0 else "hurts"
