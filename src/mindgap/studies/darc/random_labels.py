"""Random labels: which bounds see that a network has memorized noise."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from mindgap.core import (
    Bar,
    Claim,
    MindgapError,
    Recipe,
    Record,
    Series,
    Study,
    Subject,
    Table,
    Trial,
    catalog,
    holm,
    mean_interval,
    option,
    paired,
)
from mindgap.core.chart.numbers import rounded_up
from mindgap.data import DataSet, digits
from mindgap.data.noise import label_noise
from mindgap.nets import MLP
from mindgap.training.fit import fit

KINDS = ("true", "random")
LEVEL = 0.05
SAME = 1e-3  # relative difference below which two bounds print alike


@dataclasses.dataclass(frozen=True)
class Problem:
    """A network and as many digits as it can learn with random labels."""

    name: str
    samples: int
    width: int
    epochs: int
    learning_rate: float


# The second serves bounds that are defined for fewer than a thousand weights only.
PROBLEMS = (
    Problem("64-64-10, 500 samples", 500, 64, 500, 0.005),
    Problem("64-12-10, 100 samples", 100, 12, 1000, 0.01),
)


class RandomLabels(Study):
    r"""Every bound of the catalog on networks that learned true labels, and random ones.

    Formula: $\hat R_{train} = 0$ for both; which bound $B$ has $B(f_{random}) > B(f_{true})$, and
    which has $B(f_{true}) < 1$?

    Reading: The same network learns true labels and labels drawn at random, to a training error of
    zero. With random labels its error on unseen data is 0.9. A bound that is the same for both
    explains nothing about generalization; one that differs but is vacuous for both orders the two
    and guarantees nothing. Bounds are computed with their default settings, test labels are drawn
    as the training labels are, and all bounds see the same networks. Bounds that are undefined for
    the larger network are computed for the smaller one.

    Assumes: An MLP trained with Adam on subsets of the 8×8 digits.

    >>> len(RandomLabels(seeds=2).trials())
    8
    """

    method = ("K9", "K1")
    cites = ("zhang2017understanding", "kawaguchi2017generalization")
    reproduces = ("darc: Random labels",)

    seeds: int = option(10, help="training sets per problem and kind of label", low=2)
    scale: float = option(1.0, help="factor of the number of epochs", above=0)

    def trials(self) -> Sequence[Trial]:
        """One trial per problem, kind of label and training set."""
        return [
            Trial(parameters={"problem": problem.name, "labels": kind}, seed=seed)
            for problem in PROBLEMS
            for kind in KINDS
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train one network and evaluate all bounds on it."""
        problem = next(one for one in PROBLEMS if one.name == trial["problem"])
        data = _labeled(digits().subset(problem.samples, seed=trial.seed), trial)
        recipe = Recipe(
            model=lambda: MLP(widths=(64, problem.width, 10)),
            train=data.train,
            test=data.test,
            epochs=max(1, round(self.scale * problem.epochs)),
            batch_size=50,
            learning_rate=problem.learning_rate,
        )
        subject = fit(recipe, seed=trial.seed, evaluate_every=0).subject()
        return {
            "train_error": subject.mean_error("train"),
            "test_error": subject.mean_error("test"),
            "bounds": {name: evaluated(name, subject) for name in catalog("bound")},
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per bound, on the first problem where it is defined, with a verdict."""
        names = sorted({name for _, record in records for name in record["bounds"]})
        found = [pairs_of(name, records) for name in names]
        tests = [pair.p_value for pair in found]
        rows = tuple(_row(pair, p_value) for pair, p_value in zip(found, holm(tests), strict=True))
        return Table(
            title="Bounds on networks that learned true labels and random ones (8×8 digits)",
            columns=(
                *("bound", "network", "held-out data", "valid", "true labels", "random labels"),
                *("random / true", "seeds with random above", "through", "Holm p", "verdict"),
            ),
            rows=rows,
            notes=(*_errors(records), *_counts(rows), *_reasons(found)),
            charts=(_chart(found),),
            claims=_claims(records, rows),
        )

    def tiny(self) -> Self:
        """Use two seeds and hardly any training."""
        return self.replace(seeds=2, scale=0.01)


def evaluated(name: str, subject: Subject) -> dict[str, Any]:
    """Evaluate one bound; what it refuses is told, not raised.

    Args:
        name: That of the bound, which gets its default settings.
        subject: The network.
    """
    bound: Any = catalog("bound")[name]()
    told: dict[str, Any] = {"held_out": "test" in bound.needs}
    try:
        result = bound(subject)
    except MindgapError as error:
        names = ("value", "empirical", "valid", "vacuous")
        return {**told, **dict.fromkeys(names), "reason": str(error)}
    names = ("value", "valid", "vacuous", "reason")
    found = {name: getattr(result, name) for name in names}
    return {**told, **found, "empirical": result.terms.get("empirical")}


@dataclasses.dataclass(frozen=True)
class Pairs:
    """The values of one bound on true and on random labels, seed by seed."""

    name: str
    problem: str
    overlap: float
    true: Sequence[Mapping[str, Any]]
    random: Sequence[Mapping[str, Any]]
    reason: str = ""

    def values(self, kind: str, term: str = "value") -> list[float]:
        """Return one number per seed."""
        return [row[term] for row in (self.true if kind == "true" else self.random)]

    @property
    def defined(self) -> bool:
        """Whether every seed of both kinds has a value."""
        rows = [*self.true, *self.random]
        return bool(rows) and all(row["value"] is not None for row in rows)

    @property
    def above(self) -> int:
        """In how many seeds the bound is larger for random labels."""
        pairs = zip(self.values("random"), self.values("true"), strict=True)
        return sum(random > true * (1 + SAME) for random, true in pairs)

    @property
    def p_value(self) -> float:
        """How likely the difference of the two is chance, paired over seeds; 1 if undefined."""
        if not self.defined or max(map(abs, self.differences())) == 0:
            return 1.0
        # Random subsets share samples, so their numbers are not independent.
        found = paired(self.values("random"), self.values("true"), overlap=self.overlap)
        return found.p_value

    def differences(self, term: str = "value") -> list[float]:
        """Return random minus true, seed by seed."""
        pairs = zip(self.values("random", term), self.values("true", term), strict=True)
        return [random - true for random, true in pairs]


def pairs_of(name: str, records: Sequence[tuple[Trial, Record]]) -> Pairs:
    """Collect the values of a bound on the first problem where it is defined.

    Args:
        name: The bound.
        records: Those of all trials.
    """
    tried = []
    for problem in dict.fromkeys(trial["problem"] for trial, _ in records):
        rows = {
            kind: [
                record["bounds"][name]
                for trial, record in records
                if (trial["problem"], trial["labels"]) == (problem, kind)
            ]
            for kind in KINDS
        }
        both = sorted((*rows["true"], *rows["random"]), key=lambda row: row["value"] is not None)
        reasons = [row["reason"] for row in both if row["reason"]]
        parts = rows["true"], rows["random"], next(iter(reasons), "")
        tried.append(Pairs(name, problem, _overlap(problem), *parts))
    refused = "; ".join(f"on {one.problem}, {one.reason}" for one in tried)
    nowhere = dataclasses.replace(tried[0], reason=refused)
    return next((one for one in tried if one.defined), nowhere)


def _overlap(problem: str) -> float:
    """Return ρ/(1 − ρ) for the share ρ of samples that two random subsets have in common."""
    samples = next(one.samples for one in PROBLEMS if one.name == problem)
    return samples / (len(digits()) - samples)


def verdict(pairs: Pairs, p_value: float) -> str:
    """Say whether a bound sees random labels, and whether it is of use on true ones.

    Args:
        pairs: Its values.
        p_value: That of the difference, corrected for the number of bounds.
    """
    if not pairs.defined:
        return "undefined"
    mean = math.fsum(pairs.differences()) / len(pairs.true)
    size = math.fsum(pairs.values("true")) / len(pairs.true)
    vacuous = [sum(row["vacuous"] for row in rows) for rows in (pairs.true, pairs.random)]
    if abs(mean) <= SAME * abs(size):
        return f"blind: the same {'vacuous value ' if vacuous[0] else ''}for both"
    if p_value > LEVEL:
        return "blind: no significant difference"
    if mean < 0:
        return "misled: smaller for random labels"
    if vacuous == [0, len(pairs.random)]:
        return "sees it, and is not vacuous for true labels"
    return "sees it, but is vacuous for both" if vacuous[0] else "sees it in part"


def _labeled(data: DataSet, trial: Trial) -> DataSet:
    """Draw all labels at random, those of the test data too, if the trial says so."""
    if trial["labels"] == "true":
        return data
    assert data.test is not None
    seeds = 2 * trial.seed, 2 * trial.seed + 1
    labels = [
        label_noise(given, 1.0, "random", classes=10, seed=seed)[0]
        for given, seed in zip((data.targets, data.test[1]), seeds, strict=True)
    ]
    return dataclasses.replace(data, targets=labels[0], test_targets=labels[1])


def _row(pairs: Pairs, p_value: float) -> tuple[Any, ...]:
    rows = [*pairs.true, *pairs.random]
    held_out, valid = (
        "yes" if all(row[name] for row in rows) else "no" for name in ("held_out", "valid")
    )
    if not pairs.defined:
        empty = [None] * 6
        return (pairs.name, pairs.problem, held_out, None, *empty, verdict(pairs, p_value))
    means = [math.fsum(values) / len(values) for values in map(pairs.values, KINDS)]
    return (
        *(pairs.name, pairs.problem, held_out, valid, *(rounded_up(mean) for mean in means)),
        means[1] / means[0],
        f"{pairs.above} of {len(pairs.true)}",
        _through(pairs),
        p_value,
        verdict(pairs, p_value),
    )


def _through(pairs: Pairs) -> str | None:
    """Name the term that makes most of the difference."""
    total = math.fsum(pairs.differences())
    if abs(total) <= SAME * abs(math.fsum(pairs.values("true"))):
        return None
    share = math.fsum(pairs.differences("empirical")) / total
    return "empirical term" if share > 0.5 else "complexity term"


def _claims(
    records: Sequence[tuple[Trial, Record]], rows: Sequence[tuple[Any, ...]]
) -> tuple[Claim, ...]:
    fitted = [
        record["train_error"] == 0 for trial, record in records if trial["labels"] == "random"
    ]
    blind = [row[-1] for row in rows if row[2] == "no"]
    vacuous = sum(not told.startswith("sees it, and is not vacuous") for told in blind)
    return (
        Claim.counted("Networks fit random labels.", sum(fitted), len(fitted)),
        Claim.counted(
            "Bounds without held-out data are blind to random labels, or vacuous for true ones.",
            vacuous,
            len(blind),
        ),
    )


def _errors(records: Sequence[tuple[Trial, Record]]) -> list[str]:
    notes = []
    for problem in dict.fromkeys(trial["problem"] for trial, _ in records):
        for kind in KINDS:
            rows = [
                record
                for trial, record in records
                if (trial["problem"], trial["labels"]) == (problem, kind)
            ]
            train, test = ([row[name] for row in rows] for name in ("train_error", "test_error"))
            notes.append(
                f"{problem}, {kind} labels: training error "
                f"{100 * math.fsum(train) / len(rows):.2f} %, test error "
                f"{100 * math.fsum(test) / len(rows):.1f} % {_percent(test)} over {len(rows)} seeds."
            )
    return notes


def _percent(values: Sequence[float]) -> str:
    interval = mean_interval(values)
    return f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _counts(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    verdicts = [str(row[-1]) for row in rows]
    counted = {one: verdicts.count(one) for one in dict.fromkeys(sorted(verdicts))}
    listed = "; ".join(f"{count} × {one}" for one, count in counted.items())
    useful = [row for row in rows if row[-1].startswith("sees it, and")]
    held = sum(row[2] == "yes" for row in useful)
    return [
        f"Of {len(rows)} bounds: {listed}.",
        f"{held} of the {len(useful)} bounds that see random labels and are not vacuous for true "
        "ones use held-out data, whose labels say it all.",
    ]


def _reasons(found: Sequence[Pairs]) -> list[str]:
    return [f"{pairs.name}: {pairs.reason}." for pairs in found if pairs.reason]


def _chart(found: Sequence[Pairs]) -> Bar:
    defined = [pairs for pairs in found if pairs.defined]
    names = [pairs.name for pairs in defined]
    return Bar(
        title="Mean bound for true and for random labels",
        x_label="bound",
        y_label="bound on the risk",
        y_scale="log",
        series=[
            Series(
                name=f"{kind} labels",
                x=names,
                y=[math.fsum(pairs.values(kind)) / len(pairs.true) for pairs in defined],
            )
            for kind in KINDS
        ],
    )
