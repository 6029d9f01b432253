"""The table of heads: every arm with the paper's number, and its difference over splits and over seeds."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mindgap.core import Bar, Nested, Record, Series, Trial, holm, paired_nested, standard_error
from mindgap.studies.vbsw.heads import EXACT, MINIBATCH

Floats = NDArray[np.float64]
BASE, PLAIN, SMALL = "base network", "exact head, no weights", "minibatch, no weights"
PICKED, BEST_VBSW = ("no weights", "VBSW", "permuted"), "best of seeds on test, VBSW"
AGAINST = {
    PLAIN: BASE,
    **{f"exact head, {arm}": PLAIN for arm in EXACT[1:]},
    SMALL: BASE,
    **{f"minibatch, {arm}": SMALL for arm in MINIBATCH[1:]},
    **{f"best of seeds on test, {arm}": BASE for arm in PICKED},
}
COLUMNS = (
    *("data", "arm", "paper", "ours", "se", "against", "change", "low", "high", "p"),
    *("low, seeds", "high, seeds", "p, seeds"),
)
ENDS = ("change", "low", "high")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadTable:
    """The networks of one data set: test accuracies (splits, seeds) of every arm, and the paper's numbers.

    Read it with :func:`head_table`, which leaves out splits that are not finished.
    """

    name: str
    accuracy: Mapping[str, Floats]
    records: Sequence[Record]
    paper: Mapping[str, float]

    def rows(self) -> list[tuple[Any, ...]]:
        """One row per arm, p-values corrected by Holm over the arms."""
        tests = {
            arm: paired_nested(self.accuracy[arm], self.accuracy[other])
            for arm, other in AGAINST.items()
        }
        p_splits = dict(
            zip(tests, holm([test.over_splits.p_value for test in tests.values()]), strict=True)
        )
        p_seeds = dict(zip(tests, holm([test.p_value for test in tests.values()]), strict=True))
        rows = [(*self._head(BASE), *(None,) * 8)]
        for arm, test in tests.items():
            other = "base" if AGAINST[arm] == BASE else "no weights"
            rows.append((*self._head(arm), other, *_ends(test, p_splits[arm], p_seeds[arm])))
        return rows

    def _head(self, arm: str) -> tuple[Any, ...]:
        table, paper = self.accuracy[arm], self.paper.get(f"{self.name}, {arm}")
        return self.name, arm, paper, float(table.mean()), standard_error(table.mean(1))

    def facts(self) -> str:
        """How good the base networks are, how heavy the weights, the gain and the best network beside the paper's."""
        best, paper = [float(self.accuracy[arm].max()) for arm in (BASE, BEST_VBSW)], self._paper()
        gain = float((self.accuracy[BEST_VBSW] - self.accuracy[BASE]).mean())
        keys = ("base_validation", "mean_weight", "converged")
        validation, weight, converged = (
            np.mean([record[key] for record in self.records]) for key in keys
        )
        return (
            f"{self.name}: {len(self.records)} base networks with a mean validation accuracy of "
            f"{validation:.2f} %; "
            f"mean weight {weight:.2f}; {100 * converged:.4g} % of the exact heads at their "
            "optimum; gain as published "
            f"{gain:+.3f} (paper {paper[2]:+.2f}); best base network {best[0]:.2f} (paper "
            f"{paper[0]:.2f}) and best of "
            f"all VBSW heads {best[1]:.2f} (paper {paper[1]:.2f})."
        )

    def _paper(self) -> list[float]:
        keys = (f"{BASE}, best network", f"{BEST_VBSW}, best network", "gain")
        return [self.paper[f"{self.name}, {key}"] for key in keys]

    def contrasts(self) -> str:
        """VBSW against its permuted weights, and the paper's gain of VBSW against that of heads without weights."""
        ways = (("exact head", ""), ("exact head", ", chosen"), ("minibatch", ""))
        pairs = [(f"{way}, VBSW{end}", f"{way}, permuted{end}") for way, end in ways]
        pairs.append((BEST_VBSW, "best of seeds on test, no weights"))
        parts = []
        for arm, other in pairs:
            over = paired_nested(self.accuracy[arm], self.accuracy[other]).over_splits
            ends = f"{over.interval.low:+.3f} to {over.interval.high:+.3f}, p = {over.p_value:.2g}"
            parts.append(f"{arm} minus {other.partition(', ')[2]} {over.difference:+.3f} ({ends})")
        return f"{self.name}, over splits and not corrected: " + "; ".join(parts) + "."

    def charts(self) -> list[Bar]:
        """Differences from the same head without weights, and the paper's kind of gain."""
        rows = self.rows()
        same = [row for row in rows if row[5] == "no weights"]
        best = [row for row in rows if row[1].startswith("best of")]
        return [
            self._chart(same, "difference from the same head without weights"),
            self._chart(
                best, "gain over the base network as the paper counts it, picked on test data"
            ),
        ]

    def _chart(self, rows: Sequence[tuple[Any, ...]], what: str) -> Bar:
        change, low, high = ([row[COLUMNS.index(name)] for row in rows] for name in ENDS)
        arms = [row[1] for row in rows]
        return Bar(
            title=f"{self.name}: {what}; mean and 95 % interval over splits",
            x_label="arm",
            y_label="points of accuracy",
            series=[Series(name=self.name, x=arms, y=change, low=low, high=high)],
        )


def head_table(
    name: str, records: Sequence[tuple[Trial, Record]], paper: Mapping[str, float]
) -> HeadTable | None:
    """The networks of a data set, from the splits of which all networks are there; nothing if these are too few."""
    splits: dict[int, list[Record]] = {}
    for trial, record in records:
        if trial["data"] == name:
            splits.setdefault(trial["split"], []).append(record)
    most = max(map(len, splits.values()), default=0)
    whole = [found for found in splits.values() if len(found) == most]
    if most < 2 or len(whole) < 2:
        return None
    scores = [[_scores(record) for record in found] for found in whole]
    accuracy = {
        arm: np.array([[one[arm] for one in found] for found in scores]) for arm in (BASE, *AGAINST)
    }
    return HeadTable(
        name=name, accuracy=accuracy, records=[one for found in whole for one in found], paper=paper
    )


def _scores(record: Record) -> dict[str, float]:
    exact = {f"exact head, {arm}": value for arm, value in record["exact"].items()}
    small = {
        f"minibatch, {arm}": float(np.mean(values)) for arm, values in record["minibatch"].items()
    }
    best = {f"best of seeds on test, {arm}": max(record["minibatch"][arm]) for arm in PICKED}
    return {BASE: record["base"], **exact, **small, **best}


def _ends(test: Nested, p_splits: float, p_seeds: float) -> tuple[float, ...]:
    over = test.over_splits.interval
    return (
        test.difference,
        over.low,
        over.high,
        p_splits,
        test.interval.low,
        test.interval.high,
        p_seeds,
    )
