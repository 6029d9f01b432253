"""What every measure says of a network that has learned nothing, true labels, or noise."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from mindgap.core import Recipe, Record, Study, Subject, Table, Trial, catalog, option
from mindgap.core.chart import Bar, Series
from mindgap.core.stats.comparisons import holm, mean_interval, paired
from mindgap.data import DataSet, digits
from mindgap.data.noise import label_noise
from mindgap.nets import MLP
from mindgap.studies.measures.walk import measured
from mindgap.training.fit import fit

STATES = ("untrained", "true labels", "random labels")
PAIRS = (
    ("true labels", "untrained"),
    ("random labels", "true labels"),
    ("random labels", "untrained"),
)
LEVEL = 0.05
CLASSES = 10


class MeasuresAtInitialization(Study):
    r"""Every measure on a network before training, trained on true labels, and on random ones.

    Formula: $m(f_{w_0}), \quad m(f_{true}), \quad m(f_{random})$, with equal training error
    $\hat R = 0$ of the last two

    Reading: The first column is what a measure says if nothing has been learned: a value near it
    says nothing about training. The network of random labels has memorized noise; its error on
    unseen data is 0.9. A measure that is the same for both trained networks cannot predict
    generalization here. "As claimed" says whether random labels get the worse value, in the
    direction that the measure's source claims. Differences are over seeds, paired, with p-values
    corrected by Holm for all measures and pairs of states,
    and for the samples that training sets share.

    Assumes: An MLP 64-64-64-10 trained with Adam on 300 of the 8×8 digits. Test labels are drawn as
    the training labels are. Expensive measures are left out.

    >>> len(MeasuresAtInitialization(seeds=2).trials())
    6
    """

    method = ("E10", "E11")
    cites = ("zhang2017understanding", "jiang2020fantastic")

    seeds: int = option(10, help="training sets per state", low=2)
    samples: int = option(300, help="training samples", low=50, high=1000)
    epochs: int = option(300, help="passes over the training data", low=1)

    def trials(self) -> Sequence[Trial]:
        """One trial per state and training set."""
        return [
            Trial(parameters={"state": state}, seed=seed)
            for state in STATES
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Bring one network into its state and measure it."""
        subject = self._subject(trial)
        return {
            "train_error": subject.mean_error("train"),
            "test_error": subject.mean_error("test"),
            "measures": measured(subject),
        }

    def _subject(self, trial: Trial) -> Subject:
        data = digits().subset(self.samples, seed=trial.seed)
        if trial["state"] == "random labels":
            data = with_random_labels(data, trial.seed)
        recipe = Recipe(
            model=lambda: MLP(widths=(64, 64, 64, CLASSES)),
            train=data.train,
            test=data.test,
            epochs=self.epochs,
            batch_size=50,
            learning_rate=0.003,
        )
        if trial["state"] != "untrained":
            return fit(recipe, seed=trial.seed, evaluate_every=0).subject()
        model = recipe.build(trial.seed)
        initial = {name: value.clone() for name, value in model.state_dict().items()}
        return Subject(model, recipe.loss, data.train, data.test, initial=initial)

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per measure, with the two comparisons that matter."""
        names = list(dict.fromkeys(name for _, record in records for name in record["measures"]))
        # Random subsets share samples, so their numbers are not independent.
        overlap = self.samples / (len(digits()) - self.samples)
        found = [states_of(name, records, overlap) for name in names]
        tests = [p for states in found for p in states.p_values()]
        corrected = iter(holm(tests))
        rows = [_row(states, [next(corrected) for _ in PAIRS]) for states in found]
        counted = [row for row in rows if row[-1] != "undefined"]
        return Table(
            title="Measures of networks that learned nothing, true labels, or noise (8×8 digits)",
            columns=(
                *("measure", *STATES),
                *(f"{one} / {other}, Holm p" for one, other in PAIRS),
                *("as claimed", "verdict"),
            ),
            rows=tuple(rows),
            notes=(*_errors(records), *_counts(counted), *_reasons(found)),
            charts=(_chart([states for states in found if states.defined]),),
        )

    def tiny(self) -> Self:
        """Use two seeds, few samples and hardly any training."""
        return self.replace(seeds=2, samples=60, epochs=2)


def with_random_labels(data: DataSet, seed: int) -> DataSet:
    """Draw all labels, also those of the test data, anew from all classes."""
    train, _ = label_noise(data.targets, 1.0, "random", CLASSES, seed)
    assert data.test is not None
    test, _ = label_noise(data.test[1], 1.0, "random", CLASSES, seed + 10_000)
    return dataclasses.replace(data, targets=train, test_targets=test)


@dataclasses.dataclass(frozen=True)
class States:
    """The values of one measure in the three states, seed by seed.

    Args:
        name: That of the measure.
        values: One list per state; empty where the measure is undefined for a seed.
        reason: Why it is undefined somewhere.
        overlap: ρ/(1 − ρ) for the share ρ of samples that two training sets have in common.
    """

    name: str
    values: Mapping[str, list[float]]
    reason: str = ""
    overlap: float = 0.0

    @property
    def defined(self) -> bool:
        """Whether both trained networks have values."""
        return bool(self.values["true labels"] and self.values["random labels"])

    def p_values(self) -> list[float]:
        """Return those of all pairs of states; one where a state has no values."""
        both = [(self.values[one], self.values[other]) for one, other in PAIRS]
        return [
            paired(one, other, overlap=self.overlap).p_value if one and other else 1.0
            for one, other in both
        ]


def states_of(name: str, records: Sequence[tuple[Trial, Record]], overlap: float = 0.0) -> States:
    """Collect a measure's values; a state in which a seed has none counts as undefined.

    Args:
        name: That of the measure.
        records: All records.
        overlap: That of the training sets.
    """
    values, reason = dict[str, list[float]](), ""
    for state in STATES:
        rows = [r["measures"].get(name, {}) for t, r in records if t["state"] == state]
        missing = [row.get("reason", "") for row in rows if row.get("value") is None]
        values[state] = [] if missing else [row["value"] for row in rows]
        reason = reason or (f"{state}: {missing[0]}" if missing else "")
    return States(name, values, reason, overlap)


def _row(states: States, p_values: Sequence[float]) -> tuple[Any, ...]:
    cells = [_told(states.values[state]) for state in STATES]
    known = [
        p if states.values[one] and states.values[other] else None
        for p, (one, other) in zip(p_values, PAIRS, strict=True)
    ]
    return (states.name, *cells, *known, _claim(states, known[1]), _verdict(states, known))


def _told(values: list[float]) -> str | None:
    if not values:
        return None
    found = mean_interval(values)
    return f"{math.fsum(values) / len(values):.4g} {found}"


def _claim(states: States, random: float | None) -> str | None:
    direction = getattr(catalog("measure").get(states.name), "direction", "none")
    if direction == "none" or random is None or random >= LEVEL:
        return None
    gain = math.fsum(states.values["random labels"]) - math.fsum(states.values["true labels"])
    return "yes" if (gain > 0) == (direction == "lower") else "no"


def _verdict(states: States, p_values: Sequence[float | None]) -> str:
    if not states.defined:
        return "undefined"
    trained, noise, apart = (p is not None and p < LEVEL for p in p_values)
    if p_values[0] is None:
        return "sees random labels" if noise else "does not see random labels"
    if trained and noise:
        return "tells all three apart" if apart else "tells true labels from the others"
    if noise:
        return "sees random labels, not training"
    return "sees training, not what was learned" if trained or apart else "sees nothing"


def _errors(records: Sequence[tuple[Trial, Record]]) -> list[str]:
    """Say how well each state does."""
    lines = []
    for state in STATES:
        own = [record for trial, record in records if trial["state"] == state]
        train, test = (
            math.fsum(r[key] for r in own) / len(own) for key in ("train_error", "test_error")
        )
        lines.append(f"{state}: training error {train:.3f}, test error {test:.3f}")
    return ["; ".join(lines) + " (means)."]


def _counts(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    verdicts = [row[-1] for row in rows]
    told = ", ".join(f"“{word}” {verdicts.count(word)}" for word in dict.fromkeys(verdicts))
    wrong = [row[0] for row in rows if row[-2] == "no"]
    against = f" Against their claim: {', '.join(wrong)}." if wrong else ""
    return [f"Of {len(rows)} measures that are defined: {told}.{against}"]


def _reasons(found: Sequence[States]) -> list[str]:
    return [f"{states.name}: undefined ({states.reason})." for states in found if states.reason]


def _chart(found: Sequence[States]) -> Bar:
    """Show by how many standard deviations random labels move each measure."""
    names = [states.name for states in found]
    return Bar(
        title="Random minus true labels, in standard deviations over seeds",
        x_label="measure",
        y_label="difference over its standard deviation",
        horizontal=True,
        top=20.0,
        series=(Series(x=names, y=[_effect(states) for states in found]),),
    )


def _effect(states: States) -> float | None:
    pairs = zip(states.values["random labels"], states.values["true labels"], strict=True)
    away = [one - other for one, other in pairs]
    mean = math.fsum(away) / len(away)
    spread = math.sqrt(math.fsum((x - mean) ** 2 for x in away) / (len(away) - 1))
    if not spread > 0 or not math.isfinite(mean):
        return 0.0 if mean == 0 else None
    return max(-20.0, min(20.0, mean / spread))
