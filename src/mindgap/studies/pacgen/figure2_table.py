"""The table and the charts of Figures 2 to 5 of the pacGen paper."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mindgap.core import Record, Table, Trial, mean_interval, spearman

Rows = list[tuple[Trial, Record]]
SWEEPS = ("batch size", "learning rate")
BUDGETS = {"epochs": "after the same epochs", "loss": "at the same training loss"}
RIVALS = {
    "squared-gradient": "Ψ, squared gradients",
    "gauss-newton": "Ψ, true diagonal",
    "hutchinson": "Ψ, Hutchinson",
    "rho-only": "Ψ, ρ alone",
    "null": "Ψ, Hessian zero",
    "norm": "weight norm",
    "train_loss": "training loss",
}
CLAIM = (
    "The paper (Figures 2 to 5, no numbers given): gap and Ψ both grow with the batch size and as "
    "the learning rate "
    "shrinks, 'the exact same trend', so rank correlations of +1 are claimed for Ψ with squared "
    "gradients."
)
READ = (
    "Cells are Spearman's rank correlation with the gap in the loss over the settings of a sweep, "
    "mean over seeds and "
    "95 % interval. 'ρ alone' sets the diagonal to zero and keeps its Lipschitz constant; "
    "'Hessian zero' drops both "
    "and reads the weights alone."
)


def table(
    records: Sequence[tuple[Trial, Record]],
    epochs: int,
    rates: Mapping[str, float],
    targets: Mapping[str, float],
    middle: int,
) -> Table:
    """One row per data set, sweep and quantity."""
    good = [(trial, record) for trial, record in records if not record["stopped"]]
    rows = tuple(
        row
        for data in rates
        for sweep in SWEEPS
        for row in _rows(data, sweep, _chosen(good, data, sweep, rates, middle))
    )
    return Table(
        title=(
            "Figures 2 to 5 of the pacGen paper: what ranks the gap over batch sizes and "
            "learning rates"
        ),
        columns=("data", "sweep", "the gap against", *BUDGETS.values()),
        rows=rows,
        notes=(CLAIM, READ, *_facts(records, good, epochs, targets)),
        charts=tuple(
            _chart(good, data, sweep, quantity, rates, middle)
            for data in rates
            for sweep in SWEEPS
            for quantity in ("gap", "squared-gradient", "null")
        ),
    )


def _chosen(rows: Rows, data: str, sweep: str, rates: Mapping[str, float], middle: int) -> Rows:
    mine = [(trial, record) for trial, record in rows if trial["data"] == data]
    if sweep == "batch size":
        return [(trial, record) for trial, record in mine if trial["learning_rate"] == rates[data]]
    return [(trial, record) for trial, record in mine if trial["batch_size"] == middle]


def _rows(data: str, sweep: str, rows: Rows) -> list[tuple[object, ...]]:
    kept = {
        "epochs": rows,
        "loss": [(trial, record) for trial, record in rows if record["reached"]],
    }
    quantities: dict[str, Any] = {f"the {sweep} itself": lambda trial, _: trial[_field(sweep)]}
    quantities |= {words: lambda _, found, name=name: found[name] for name, words in RIVALS.items()}
    return [
        (data, sweep, words, *(_ranked(kept[budget], budget, of) for budget in BUDGETS))
        for words, of in quantities.items()
    ]


def _field(sweep: str) -> str:
    return sweep.replace(" ", "_")


def _ranked(rows: Rows, budget: str, of: Any) -> str:
    """Spearman's correlation with the gap over settings, seed by seed."""
    values = []
    for seed in sorted({trial.seed for trial, _ in rows}):
        mine = [(trial, record[budget]) for trial, record in rows if trial.seed == seed]
        gaps = [gap(found) for _, found in mine]
        others = [float(of(trial, found)) for trial, found in mine]
        if len(set(gaps)) > 1 and len(set(others)) > 1:
            values.append(spearman(others, gaps))
    if not values:
        return "—"
    if len(values) == 1:
        return f"{values[0]:+.2f}"
    spread = mean_interval(values)
    return (
        f"{sum(values) / len(values):+.2f} [{max(spread.low, -1):.2f}, {min(spread.high, 1):.2f}]"
    )


def gap(found: Mapping[str, float]) -> float:
    """Test loss minus training loss, as the paper has it."""
    return found["test_loss"] - found["train_loss"]


def _facts(
    records: Sequence[tuple[Trial, Record]], good: Rows, epochs: int, targets: Mapping[str, float]
) -> list[str]:
    notes = []
    for data, wanted in targets.items():
        mine = [record for trial, record in good if trial["data"] == data]
        kept = [record["loss"]["train_loss"] for record in mine if record["reached"]]
        ends = [record["epochs"] for record in mine]
        if not kept or not ends:
            continue
        notes.append(
            f"{data}: after {epochs} epochs training losses lie from "
            f"{min(e['train_loss'] for e in ends):.3g} to "
            f"{max(e['train_loss'] for e in ends):.3g}. {len(kept)} of {len(mine)} runs were "
            "compared at a training loss "
            f"of about {wanted:g} (the epoch that ended nearest): {min(kept):.3g} to "
            f"{max(kept):.3g}."
        )
        closeness = max(
            abs(e["gauss-newton"] - e["rho-only"]) / abs(e["gauss-newton"]) for e in ends
        )
        notes.append(
            f"{data}: with the paper's γ = ε = 0.1, ρ is from {min(e['rho'] for e in ends):.3g} to "
            f"{max(e['rho'] for e in ends):.3g}; Ψ with the true diagonal and Ψ with ρ alone "
            "differ by at most "
            f"{100 * closeness:.2g} % of Ψ. Capped weights: {100 * _mean(ends, 'capped'):.2g} %; "
            "clipped at zero by "
            f"Hutchinson's noise: {100 * _mean(ends, 'clipped'):.2g} %."
        )
    stopped = len(records) - len(good)
    return [*notes, *([f"Diverged and left out: {stopped}."] if stopped else [])]


def _mean(rows: Sequence[Mapping[str, float]], name: str) -> float:
    return math.fsum(row[name] for row in rows) / len(rows)


def _chart(
    rows: Rows, data: str, sweep: str, quantity: str, rates: Mapping[str, float], middle: int
) -> dict[str, object]:
    """One line per setting over the epochs, mean and interval over seeds."""
    chosen, series = _chosen(rows, data, sweep, rates, middle), []
    for value in sorted({trial[_field(sweep)] for trial, _ in chosen}):
        runs = [record["along"] for trial, record in chosen if trial[_field(sweep)] == value]
        points = [_point(list(column), quantity) for column in zip(*runs, strict=True)]
        names = ("x", "y", "low", "high")
        lists = {name: [point[place] for point in points] for place, name in enumerate(names)}
        series.append({"name": f"{sweep} {value:g}", **lists})
    what = {
        "gap": "test loss − training loss",
        "squared-gradient": "Ψ, squared gradients",
        "null": "Ψ, Hessian zero",
    }
    return {
        "kind": "line",
        "title": f"{data}: {what[quantity]} by {sweep}, mean and 95 % interval over seeds",
        "x_label": "epoch",
        "y_label": what[quantity],
        "x_scale": "log",
        "series": series,
    }


def _point(column: list[Mapping[str, float]], quantity: str) -> tuple[float, float, float, float]:
    values = [gap(found) if quantity == "gap" else found[quantity] for found in column]
    middle = sum(values) / len(values)
    spread = mean_interval(values) if len(values) > 1 else None
    return (
        column[0]["epoch"],
        middle,
        spread.low if spread else middle,
        spread.high if spread else middle,
    )
