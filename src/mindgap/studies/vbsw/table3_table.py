"""The table of VBSW, Table 3: paired tests over splits and over seeds, and the verdict against permuted weights.

The parts of a split of RTE, STS-B or MRPC, and the weights of its fit part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mindgap.core import (
    Bar,
    Paired,
    Record,
    Series,
    Table,
    Trial,
    holm,
    paired,
    paired_nested,
    standard_error,
)
from mindgap.data import standardize, stratified_split
from mindgap.ops.variance.by_k import VarianceByK
from mindgap.ops.variance.weights import scale_weights

METRICS = {"RTE": ("accuracy",), "STS-B": ("Spearman", "Pearson"), "MRPC": ("accuracy", "F1")}
TRAININGS = {"exact": "exact optimum", "adam": "ADAM"}
CONTROLS = {
    "VBSW as published": "permuted as published",
    "VBSW chosen on validation": "permuted chosen on validation",
    "VBSW": "permuted",
}
PAPER = {"no weights": "no weights", "VBSW as published": "VBSW", "VBSW": "VBSW"}
COLUMNS = (
    *(
        "data",
        "metric",
        "training",
        "arm",
        "paper",
        "ours",
        "se",
        "minus no weights",
        "low",
        "high",
        "p (Holm)",
    ),
    *("seeds: low", "high", "p (Holm)", "minus permuted", "low", "high", "p (Holm)", "GLUE dev"),
)
Row = tuple[Any, ...]
Tables = dict[str, np.ndarray[Any, np.dtype[np.float64]]]  # splits × seeds by arm


def summary(
    records: Sequence[tuple[Trial, Record]],
    expected: Mapping[str, float],
    encoder: str,
    epochs: int,
) -> Table:
    """Rows of every data set of which two splits are done."""
    rows: list[Row] = []
    verdicts: list[Paired] = []
    for name, metrics in METRICS.items():
        drawn, official = (
            [r for t, r in records if t["data"] == name and t["judge"] == j]
            for j in ("drawn", "GLUE dev")
        )
        for metric, training in (
            (metric, training) for metric in metrics for training in TRAININGS
        ):
            if len(drawn) > 1:
                tables = _tables(drawn, training, metric)
                single = _tables(official, training, metric) if official else {}
                beside = {arm: expected[f"{name}, {metric}, {PAPER[arm]}"] for arm in PAPER}
                rows += _rows((name, metric, TRAININGS[training]), tables, single, beside)
                verdicts += [
                    _versus(tables[arm], tables[CONTROLS[arm]]) for arm in tables if arm in CONTROLS
                ]
    return Table(
        title="VBSW, Table 3: scores in percent, mean over splits of the mean over seeds",
        columns=COLUMNS,
        rows=tuple(_with_verdicts(rows, verdicts)),
        notes=(*_notes(records, encoder, epochs), _verdict(verdicts)),
        charts=tuple(
            _chart(name, metric, rows) for name, metrics in METRICS.items() for metric in metrics
        ),
    )


def _tables(records: Sequence[Record], training: str, metric: str) -> Tables:
    arms = records[0][training]["scores"]
    return {
        arm: np.array([record[training]["scores"][arm][metric] for record in records])
        for arm in arms
    }


def _versus(treated: np.ndarray[Any, Any], control: np.ndarray[Any, Any]) -> Paired:
    """Paired over splits, seeds averaged."""
    return paired(treated.mean(1), control.mean(1))


def _rows(head: Row, tables: Tables, official: Tables, paper: Mapping[str, float]) -> list[Row]:
    plain, others = tables["no weights"], [arm for arm in tables if arm != "no weights"]
    over_splits = {arm: _versus(tables[arm], plain) for arm in others}
    over_seeds = {arm: _nested(tables[arm], plain) for arm in others if tables[arm].shape[1] > 1}
    p_splits = dict(
        zip(over_splits, holm([test.p_value for test in over_splits.values()]), strict=True)
    )
    p_seeds = dict(
        zip(over_seeds, holm([test.p_value for test in over_seeds.values()]), strict=True)
    )
    rows = []
    for arm, table in tables.items():
        middle: Row = (None,) * 7
        if arm in over_splits:
            first, second = over_splits[arm], over_seeds.get(arm)
            ends: Row = (
                (second.interval.low, second.interval.high, p_seeds[arm]) if second else (None,) * 3
            )
            middle = (
                first.difference,
                first.interval.low,
                first.interval.high,
                p_splits[arm],
                *ends,
            )
        mean, error = float(table.mean()), standard_error(table.mean(1))
        dev = float(official[arm].mean()) if arm in official else None
        rows.append((*head, arm, paper.get(arm), mean, error, *middle, None, None, None, None, dev))
    return rows


def _nested(treated: np.ndarray[Any, Any], control: np.ndarray[Any, Any]) -> Any:
    return paired_nested(treated, np.broadcast_to(control, treated.shape))


def _with_verdicts(rows: Sequence[Row], verdicts: Sequence[Paired]) -> list[Row]:
    """VBSW against its permuted weights, the p-values corrected over the whole table."""
    corrected = iter(zip(verdicts, holm([test.p_value for test in verdicts]), strict=True))
    full = []
    for row in rows:
        if row[3] not in CONTROLS:
            full.append(row)
            continue
        test, p_value = next(corrected)
        full.append(
            (*row[:14], test.difference, test.interval.low, test.interval.high, p_value, row[-1])
        )
    return full


def _notes(records: Sequence[tuple[Trial, Record]], encoder: str, epochs: int) -> list[str]:
    notes = [
        f"Features: {encoder}; the paper's are tiny BERT's. ADAM runs {epochs:,} epochs; the "
        "paper's runs 10,000.",
        "Differences are paired over splits that draw their test samples too, with 95 % intervals "
        "and Student's "
        "p-values by Holm; the splits share samples, so the intervals are rather too narrow. "
        "Intervals over seeds "
        "speak about these very splits alone. GLUE dev is a single split without an interval.",
    ]
    for name in METRICS:
        found = [
            record
            for trial, record in records
            if trial["data"] == name and trial["judge"] == "drawn"
        ]
        if found:
            mean = sum(record["mean_weight"] for record in found) / len(found)
            middle = sorted(record["exact"]["l2"] for record in found)[len(found) // 2]
            whole = sum(record["exact"]["converged"] for record in found)
            notes.append(
                f"{name}: mean published weight {mean:.2f}, median λ {middle:g}, converged on "
                f"{whole} of {len(found)}."
            )
    return notes


def _verdict(verdicts: Sequence[Paired]) -> str:
    corrected = holm([test.p_value for test in verdicts])
    sure = [
        test.difference for test, p_value in zip(verdicts, corrected, strict=True) if p_value < 0.05
    ]
    better, worse = sum(change > 0 for change in sure), sum(change < 0 for change in sure)
    return (
        f"Against its own weights on other samples VBSW is better in {better} and worse in "
        f"{worse} of "
        f"{len(verdicts)} comparisons (p < 0.05, Holm over all of them)."
    )


def _chart(name: str, metric: str, rows: Sequence[Row]) -> Bar:
    chosen = [row for row in rows if row[:2] == (name, metric) and row[7] is not None]
    series = [(word, [row for row in chosen if row[2] == word]) for word in TRAININGS.values()]
    return Bar(
        title=f"{name}: difference from no weights, mean and 95 % interval over splits",
        x_label="arm",
        y_label=f"{metric}, percent",
        series=[
            Series(
                name=word,
                x=[row[3] for row in found],
                y=[row[7] for row in found],
                low=[row[8] for row in found],
                high=[row[9] for row in found],
            )
            for word, found in series
        ],
    )


SETTINGS = tuple((m, k) for k in (5, 10, 20, 40) for m in (2.0, 5.0, 10.0, 40.0))  # to choose from
PARTS = (0.6, 0.2, 0.2)  # fit, choose, judge
PUBLISHED = {
    "RTE": (20.0, 10, 8),
    "STS-B": (30.0, 30, 8),
    "MRPC": (75.0, 25, 16),
}  # m, k, batch size in Table 6


@dataclasses.dataclass(frozen=True)
class Parts:
    """Features and targets to fit, to choose and to judge."""

    name: str
    kind: Any
    fit: tuple[Tensor, Tensor]
    choose: tuple[Tensor, Tensor]
    judge: tuple[Tensor, Tensor]

    @classmethod
    def of(
        cls, name: str, features: Tensor, target: Tensor, rows: Sequence[Tensor], components: int
    ) -> Parts:
        """Standardized features, turned to the first principal components; both are learned on the fit part."""
        fit, *others = standardize(*(features[part] for part in rows))
        directions = torch.linalg.eigh(fit.T @ fit).eigenvectors[:, -components:]
        turned = [
            (part @ directions, target[places])
            for part, places in zip((fit, *others), rows, strict=True)
        ]
        return cls(name, "squares" if target.is_floating_point() else "logistic", *turned)


class Weights:
    """Weights of the published setting and of every setting to choose from, from the fit part alone."""

    def __init__(self, parts: Parts) -> None:
        task: Any = "regression" if parts.kind == "squares" else "classification"
        by_k = VarianceByK(*parts.fit, max(k for _, k in SETTINGS), task=task)
        self.grid = torch.stack([scale_weights(by_k(k), m) for m, k in SETTINGS])
        m, k, _ = PUBLISHED[parts.name]
        self.published = scale_weights(by_k(k), m)


def rows_of(target: Tensor, official: Tensor | None, seed: int) -> tuple[Tensor, ...]:
    """Rows to fit, to choose and to judge; where the official part judges, the others share the rest in their ratio."""
    if official is None:
        return stratified_split(target, PARTS, seed)
    rest, shares = (
        torch.nonzero(~official)[:, 0],
        (PARTS[0] / sum(PARTS[:2]), PARTS[1] / sum(PARTS[:2])),
    )
    fit, choose = (rest[part] for part in stratified_split(target[rest], shares, seed))
    return fit, choose, torch.nonzero(official)[:, 0]
