"""Approximation, estimation and optimization error by samples, width, time and tolerance."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch

from mindgap.core import Claim, Line, Recipe, Record, Series, Study, Table, Trial, option
from mindgap.data.sources import source
from mindgap.nets import MLP
from mindgap.training.decomposition.runs import Decomposed, Plan, decomposed
from mindgap.training.decomposition.terms import Term, excess_risk, total

EXCESS = ("approximation", "estimation", "optimization")
WHOLE = ("generalization", "optimization", "statistical", "approximation")
TOLERANCES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
NOTES = (
    "y = sin(πx) + (3 + 2x)/5 · ε/2: the best predictor is known and has the risk 31/300. A network "
    "1-h-1 with tanh is trained by Adam (batch size 20, rate 0.01). Errors are squared.",
    "Excess risk = approximation + estimation + optimization: R(f_F) − R(f*), R(f_n) − R(f_F), "
    "R(f̃_n) − R(f_n). Risk = generalization + optimization + statistical + approximation: R(f̃_n) − "
    "R_n(f̃_n), R_n(f̃_n) − R_n(f_F), R_n(f_F) − R(f_F), R(f_F).",
    "f_F is the best network that was found on a large sample: its risk is an upper estimate of the "
    "class's best, so the approximation error is one as well. f_n is the network with the lowest "
    "training loss that was found; the estimation error is its own, not that of another minimum.",
    "The optimization error in the excess risk is negative where a run that stops early is better "
    "than the empirical minimizer.",
    "Intervals are 95 %, over training sets with their seeds, samples of the pool, and references.",
)


class ErrorDecomposition(Study):
    r"""Split the risk of a network into its terms, by samples, width, time and tolerance.

    Formula: $R(\tilde f_n) - R(f^*) = [R(f_F) - R(f^*)] + [R(f_n) - R(f_F)] + [R(\tilde f_n) -
    R(f_n)]$ and $R(\tilde f_n) = [R - R_n](\tilde f_n) + [R_n(\tilde f_n) - R_n(f_F)] + [R_n -
    R](f_F) + R(f_F)$

    Reading: The slides expect the approximation error to fall with the width, the estimation error
    to fall with the samples and to grow with the width, and the optimization error to fall with
    time and to grow with the tolerance. The notes say which of these were seen.

    Assumes: A source whose best predictor is known. Minima are those that were found: the
    approximation error is an upper estimate.

    >>> [trial["axis"] for trial in ErrorDecomposition(widths=(2, 4)).trials()]
    ['samples', 'width', 'width']
    """

    method = ("E1", "S7")
    cites = ("bottou2008tradeoffs",)
    reproduces = ("expressivity: Error decomposition", "stability: Error decomposition")

    sizes: tuple[int, ...] = option(
        (25, 50, 100, 200, 400), help="numbers of training samples", low=2
    )
    widths: tuple[int, ...] = option((1, 2, 4, 8, 16, 32), help="widths of the network", low=1)
    size: int = option(100, help="training samples where the width varies", low=2)
    width: int = option(8, help="width where the number of samples varies", low=1)
    epochs: int = option(300, help="passes of the actual run", low=1)
    draws: int = option(10, help="training sets per setting", low=2)
    references: int = option(3, help="large samples per width", low=1)
    large: int = option(5000, help="samples in each of them, and in the pool", low=10)
    steps: int = option(2000, help="steps of Adam in a search for a minimum", low=1)
    polish: int = option(100, help="iterations of L-BFGS after them", low=0)
    restarts: int = option(4, help="starts of a search", low=1)

    def trials(self) -> Sequence[Trial]:
        """One trial for all numbers of samples, and one per width."""
        by_width = [Trial(parameters={"axis": "width", "width": width}) for width in self.widths]
        return [Trial(parameters={"axis": "samples", "width": self.width}), *by_width]

    def run(self, trial: Trial) -> Record:
        """Decompose the risk at one width."""
        sizes = self.sizes if trial["axis"] == "samples" else (self.size,)
        plan = Plan(
            draws=self.draws,
            references=self.references,
            large=self.large,
            pool=self.large,
            steps=self.steps,
            polish=self.polish,
            restarts=self.restarts,
        )
        found = decomposed(self._recipe(trial["width"]), source("heteroscedastic"), sizes, plan)
        return {"rows": [_plain(row) for row in found]}

    def _recipe(self, width: int) -> Recipe:
        return Recipe(
            model=lambda: MLP((1, width, 1), activation="tanh"),
            train=(torch.zeros(2, 1), torch.zeros(2, 1)),
            loss="mse",
            epochs=self.epochs,
            batch_size=20,
            learning_rate=0.01,
        )

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per setting, and the four figures."""
        rows = [(trial, row) for trial, record in records for row in record["rows"]]
        by = {
            axis: [(trial, row) for trial, row in rows if trial["axis"] == axis]
            for axis in ("samples", "width")
        }
        middle = _middle(by["width"], self.width)
        return Table(
            title="Where the risk comes from: terms by samples and width",
            columns=(
                *("along", "samples", "width", "risk", "excess risk"),
                *(f"{name} (excess)" for name in EXCESS),
                *(f"{name} (risk)" for name in WHOLE),
                *("training loss above the minimum", "sum − risk"),
            ),
            rows=tuple(_row(trial, row) for trial, row in rows),
            notes=(*_judged(by), *NOTES),
            claims=_claims(by),
            charts=(
                *(
                    _chart(axis, key, names, found)
                    for axis, found in by.items()
                    for key, names in (("excess", EXCESS), ("whole", WHOLE))
                    if found
                ),
                *([] if middle is None else [_time(middle), _tolerance(middle)]),
            ),
        )

    def tiny(self) -> Self:
        """Use two sizes, one width, two training sets and few steps."""
        few = {"sizes": (10, 20), "widths": (2,), "size": 20, "width": 2, "epochs": 5, "draws": 2}
        return self.replace(**few, references=2, large=100, steps=20, polish=3, restarts=2)


def _plain(row: Decomposed) -> dict[str, Any]:
    losses = row.losses
    return {
        "size": row.size,
        "risk": _number(losses.risk),
        "excess_risk": excess_risk(losses),
        "excess": [_number(term) for term in losses.excess],
        "whole": [_number(term) for term in losses.whole],
        "above": _number(losses.gap),
        "rest": total(losses.whole) - losses.risk.value,
        "time": [
            [epoch, {name: [value, own.low, own.high] for name, (value, own) in parts.items()}]
            for epoch, parts in row.over_time()
        ],
        "tolerance": [
            [level, found[0], found[1], found[2].low, found[2].high]
            for level in TOLERANCES
            if (found := row.at_tolerance(level)) is not None
        ],
    }


def _number(term: Term) -> list[float]:
    return [term.value, term.interval.low, term.interval.high]


def _row(trial: Trial, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        *(trial["axis"], row["size"], trial["width"], _told(row["risk"]), row["excess_risk"]),
        *(_told(numbers) for numbers in (*row["excess"], *row["whole"])),
        *(_told(row["above"]), row["rest"]),
    )


def _told(numbers: Sequence[float]) -> str:
    value, low, high = numbers
    return f"{value:.4f} [{low:.4f}, {high:.4f}]"


def _judged(by: Mapping[str, Sequence[tuple[Trial, Mapping[str, Any]]]]) -> list[str]:
    """Compare the ends of an axis: a change is seen if the intervals do not overlap."""
    asked = (
        ("width", "approximation", 0, "falls with the width"),
        ("width", "estimation", 1, "changes with the width"),
        ("samples", "estimation", 1, "falls with the samples"),
        ("samples", "optimization", 2, "changes with the samples"),
    )
    told = list[str]()
    for axis, name, place, words in asked:
        found = [row["excess"][place] for _, row in by[axis]]
        if len(found) > 1:
            first, last = found[0], found[-1]
            apart = first[1] > last[2] or last[1] > first[2]
            told.append(
                f"{name.capitalize()} error {words}: {first[0]:.4f} at the smallest, "
                f"{last[0]:.4f} at the largest, {'intervals apart' if apart else 'not shown'}."
            )
    return told


def _claims(by: Mapping[str, Sequence[tuple[Trial, Mapping[str, Any]]]]) -> tuple[Claim, ...]:
    """Compare the ends of an axis: a change is shown if the intervals do not overlap."""
    asked = (
        ("width", 0, "Approximation error falls with the width.", False),
        ("samples", 1, "Estimation error falls with the samples.", False),
        ("width", 1, "Estimation error grows with the width.", True),
    )
    told = list[Claim]()
    for axis, place, text, grows in asked:
        found = [row["excess"][place] for _, row in by[axis]]
        if len(found) > 1:
            low, high = (found[0], found[-1]) if grows else (found[-1], found[0])
            told.append(Claim.shown(text, low[2] < high[1]))
    return tuple(told)


def _chart(
    axis: str, key: str, names: Sequence[str], found: Sequence[tuple[Trial, Mapping[str, Any]]]
) -> Line:
    places = [row["size"] if axis == "samples" else trial["width"] for trial, row in found]
    sums = "excess risk" if key == "excess" else "risk"
    return Line(
        title=f"Terms of the {sums} by {'number of samples' if axis == 'samples' else 'width'}",
        x_label="training samples" if axis == "samples" else "hidden units",
        y_label="squared error",
        x_scale="log",
        caption="Bands are 95 % intervals over training sets, samples and references.",
        series=[
            Series(name=name, x=places, **_ends([row[key][k] for _, row in found]))
            for k, name in enumerate(names)
        ],
    )


def _ends(numbers: Sequence[Sequence[float]]) -> dict[str, Any]:
    return {name: [row[k] for row in numbers] for k, name in enumerate(("y", "low", "high"))}


def _middle(
    found: Sequence[tuple[Trial, Mapping[str, Any]]], width: int
) -> Mapping[str, Any] | None:
    rows = [row for trial, row in found if trial["width"] == width] or [row for _, row in found]
    return rows[0] if rows else None


def _time(row: Mapping[str, Any]) -> Line:
    epochs, names = [epoch for epoch, _ in row["time"]], ("generalization", "optimization")
    return Line(
        title=f"Over training time, {row['size']} samples",
        x_label="epoch",
        y_label="squared error",
        x_scale="log",
        caption="Optimization: R(f̃_n) − R(f_n). Below zero, the run beats the empirical minimizer.",
        series=[
            Series(name=name, x=epochs, **_ends([parts[name] for _, parts in row["time"]]))
            for name in names
        ],
    )


def _tolerance(row: Mapping[str, Any]) -> Line:
    found = row["tolerance"]
    return Line(
        title="Optimization error in the risk against the tolerance of training",
        x_label="tolerance ρ of the training loss",
        y_label="squared error",
        x_scale="log",
        series=[
            Series(
                name="optimization", x=[one[0] for one in found], **_ends([o[2:] for o in found])
            )
        ],
    )
