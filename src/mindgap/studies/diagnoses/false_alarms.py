"""How often healthy subjects are accused."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any, Self

from mindgap.core import (
    Bar,
    Record,
    Series,
    Study,
    Table,
    Trial,
    choice,
    option,
    proportion_interval,
)
from mindgap.core.chart.numbers import round_down, round_up
from mindgap.diagnoses.diagnose import Diagnosed, diagnose
from mindgap.studies.diagnoses.healthy import HEALTHY
from mindgap.training.fit import fit


class FalseAlarms(Study):
    r"""How often the diagnoses accuse a healthy subject: several data sets, nets and both tasks.

    Formula: $P\left( \exists\, d : \text{finding of } d \text{ is wrong} \mid \text{healthy}
    \right) \le 0.05$

    Reading: Every subject is trained well on a random split of clean data, so each finding of
    severity "wrong" is false. At most 5 % of the subjects may get one. Suspicions and notes are
    counted as well. Thresholds were set on other seeds.

    Assumes: The data sets hold no real problem. Random splits of some tables do; they are not used.

    >>> len(FalseAlarms(seeds=2).trials()) == 2 * len(HEALTHY)
    True
    """

    method = ("E5",)
    cites = ("holm1979simple",)

    seeds: int = option(20, help="subjects per source", low=1)
    first: int = option(1000, help="first seed; thresholds were set on seeds below 1000", low=0)
    sources: str = option("all", help="sources, separated by a semicolon and a space, or all")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self._names():
            choice("sources", name, HEALTHY)

    def _names(self) -> list[str]:
        return list(HEALTHY) if self.sources == "all" else self.sources.split("; ")

    def trials(self) -> Sequence[Trial]:
        """One subject per source and seed."""
        return [
            Trial(parameters={"source": name}, seed=self.first + seed)
            for name in self._names()
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train one subject and diagnose it."""
        subject = fit(HEALTHY[trial["source"]](trial.seed), seed=trial.seed).subject()
        found = diagnose(subject)
        return {
            "train_error": subject.mean_error("train"),
            "test_error": subject.mean_error("test"),
            "findings": told(found),
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per source, and one for all."""
        sources: dict[str, list[Record]] = {}
        for trial, record in records:
            sources.setdefault(trial["source"], []).append(record)
        rows = [_row(name, kept) for name, kept in sources.items()]
        every = [record for _, record in records]
        return Table(
            title="Healthy subjects that the diagnoses accuse",
            columns=(
                *("source", "subjects", "accused", "95 % interval", "suspected", "noted"),
                "of what",
            ),
            rows=(*rows, _row("all", every)),
            notes=(
                "Accused: at least one finding of severity “wrong”. Suspected and noted: at least "
                "one finding of severity “suspect” or “note”, and none above it.",
            ),
            charts=(_chart(sources),),
        )

    def tiny(self) -> Self:
        """Use one subject, of a source that needs no file."""
        return self.replace(seeds=1, sources="digits, perceptron")


def told(found: Diagnosed) -> list[dict[str, Any]]:
    """Return findings as plain data for a record, in order."""
    return [
        {
            "name": finding.name,
            "severity": finding.severity,
            "p_value": finding.p_value,
            "explained_by": finding.explained_by,
            "sentence": finding.sentence,
        }
        for finding in found.findings
    ]


def _worst(record: Record) -> str:
    """The severest finding of a subject that nothing explains, or an empty string."""
    found = {row["severity"] for row in record["findings"] if not row["explained_by"]}
    return next((word for word in ("wrong", "suspect", "note") if word in found), "")


def _row(name: str, records: Sequence[Record]) -> tuple[Any, ...]:
    counts = collections.Counter(map(_worst, records))
    interval = proportion_interval(counts["wrong"], len(records))
    low, high = round_down(100 * interval.low, 1), round_up(100 * interval.high, 1)
    return (
        name,
        len(records),
        counts["wrong"],
        f"[{low:.1f}, {high:.1f}] %",
        counts["suspect"],
        counts["note"],
        _named(records) or "—",
    )


def _named(records: Sequence[Record]) -> str:
    names = collections.Counter(
        f"{row['name']} ({row['severity']})"
        for record in records
        for row in record["findings"]
        if not row["explained_by"]
    )
    return ", ".join(f"{name} {count}" for name, count in names.most_common())


def _chart(sources: Mapping[str, Sequence[Record]]) -> Bar:
    shares = {
        word: [sum(_worst(r) == word for r in kept) / len(kept) for kept in sources.values()]
        for word in ("wrong", "suspect", "note")
    }
    return Bar(
        title="Share of healthy subjects by their severest finding",
        x_label="source",
        y_label="share of the subjects",
        percent=True,
        stacked=True,
        series=[Series(name=word, x=list(sources), y=shares[word]) for word in shares],
    )
