"""How often a planted problem is found, and named first."""

from collections.abc import Sequence
from typing import Any, Self, cast

from mindgap.core import (
    Bar,
    Diagnosis,
    Kind,
    Record,
    Series,
    Study,
    Table,
    Trial,
    catalog,
    choice,
    option,
)
from mindgap.diagnoses.diagnose import diagnose
from mindgap.studies.diagnoses.false_alarms import told
from mindgap.studies.diagnoses.healthy import healthy_recipe

# Weaker plants: 5 % wrong labels, a tenth of the test set changed, logits × 3, BatchNorm variances
# off by e^1.5, three hidden units, 5 % of the test data leaked with noise, a shortcut in 60 % of
# the samples. The number is the strength at which `plant` makes that much.
WEAK = {
    "wrong-labels": 0.5,
    "input-shift": 0.2,
    "over-confidence": 0.5,
    "stale-batch-norm": 0.5,
    "too-small": 0.5,
    "near-copies": 0.25,
    "shortcut": 0.6,
}


class PlantedProblems(Study):
    r"""How often a planted problem is found and named first, for images, tables and sequences.

    Formula: $P\left( \text{first finding} = d \mid d \text{ planted} \right)$

    Reading: Every diagnosis plants its problem into healthy recipes, and all diagnoses look. The
    planted one should come first in at least 9 of 10 seeds. The weaker plants are as small as a
    user would still want to know about; 85 % of them should be named first.

    Assumes: The plants resemble real problems. They were written with the diagnoses; thresholds
    were set on healthy subjects.

    >>> {"kind", "name", "strength"} == set(PlantedProblems(seeds=1).trials()[0].parameters)
    True
    """

    method = ("E5",)
    cites = ("rabanser2019failing",)

    seeds: int = option(10, help="subjects per diagnosis and kind of inputs", low=1)
    first: int = option(500, help="first seed", low=0)
    only: str = option(
        "all", help="names of diagnoses, separated by a semicolon and a space, or all"
    )
    weak: bool = option(True, help="plant the weaker problems too")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self._names():
            choice("only", name, catalog("diagnosis"))

    def _names(self) -> list[str]:
        return list(catalog("diagnosis")) if self.only == "all" else self.only.split("; ")

    def trials(self) -> Sequence[Trial]:
        """Every diagnosis with every kind of inputs that it can be planted in."""
        names = self._names()
        strengths = {
            name: (1.0, *([WEAK[name]] if self.weak and name in WEAK else [])) for name in names
        }
        return [
            Trial(
                parameters={"name": name, "kind": kind, "strength": strength}, seed=self.first + k
            )
            for name in names
            for strength in strengths[name]
            for kind in _diagnosis(name).kinds
            for k in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Plant a problem and diagnose."""
        recipe = healthy_recipe(trial["kind"], seed=trial.seed)
        planted = _diagnosis(trial["name"]).plant(recipe, trial.seed, trial["strength"])
        found = told(diagnose(planted))
        names = [row["name"] for row in found]
        return {
            "first": names[:1] == [trial["name"]],
            "found": trial["name"] in names,
            "findings": found,
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per diagnosis and strength."""
        cases: dict[tuple[str, float], list[tuple[Trial, Record]]] = {}
        for trial, record in records:
            cases.setdefault((trial["name"], trial["strength"]), []).append((trial, record))
        rows = [_row(*case, kept) for case, kept in cases.items()]
        weak = [row for row in rows if row[1] == "weak"]
        return Table(
            title="Planted problems that are named first",
            columns=(
                *("problem", "plant", "image", "table", "sequence"),
                *("named first", "found", "instead"),
            ),
            rows=tuple(rows),
            notes=(
                f"Usual plants: {_total(rows, 'usual')}. Weaker plants: {_total(weak, 'weak')}.",
                "Found counts a subject in which the planted problem is any of the findings.",
            ),
            charts=(_chart(rows),),
        )

    def tiny(self) -> Self:
        """Plant once, in every kind of inputs, the problem after which nothing else is looked for."""
        return self.replace(seeds=1, only="not-finite", weak=False)


def _diagnosis(name: str) -> type[Diagnosis]:
    return cast("type[Diagnosis]", catalog("diagnosis")[name])


def _row(name: str, strength: float, kept: Sequence[tuple[Trial, Record]]) -> tuple[Any, ...]:
    kinds: tuple[Kind, ...] = ("image", "table", "sequence")
    by_kind = [[record for trial, record in kept if trial["kind"] == kind] for kind in kinds]
    every = [record for _, record in kept]
    return (
        name,
        "usual" if strength == 1 else "weak",
        *(_share(records, "first") for records in by_kind),
        _share(every, "first"),
        _share(every, "found"),
        _instead(every) or "—",
    )


def _share(records: Sequence[Record], what: str) -> str | None:
    return f"{sum(record[what] for record in records)}/{len(records)}" if records else None


def _instead(records: Sequence[Record]) -> str:
    """Name what came first where the planted problem did not."""
    missed = [record["findings"] for record in records if not record["first"]]
    names = [found[0]["name"] if found else "nothing" for found in missed]
    return ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))


def _total(rows: Sequence[tuple[Any, ...]], plant: str) -> str:
    counts = [row[5].split("/") for row in rows if row[1] == plant]
    hits, all_of_them = (sum(int(pair[k]) for pair in counts) for k in (0, 1))
    return f"{hits} of {all_of_them} named first"


def _chart(rows: Sequence[tuple[Any, ...]]) -> Bar:
    names = [f"{row[0]}{'' if row[1] == 'usual' else ' (weak)'}" for row in rows]
    shares = [int(row[5].split("/")[0]) / int(row[5].split("/")[1]) for row in rows]
    return Bar(
        title="Share of the plants that are named first",
        x_label="problem",
        y_label="named first",
        percent=True,
        horizontal=True,
        series=[Series(name="named first", x=names, y=shares)],
    )
