"""Weight decay, dropout and augmentation on true labels and on random ones."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from mindgap.core import (
    Bar,
    Chart,
    Mark,
    Record,
    Remedy,
    Series,
    Study,
    Table,
    Trial,
    holm,
    mean_interval,
    option,
    paired,
)
from mindgap.data.catalog import load
from mindgap.remedies.augmentation.random_shifts import RandomShifts
from mindgap.remedies.penalties.weight_decay import WeightDecay
from mindgap.remedies.perturbation.dropout import Dropout
from mindgap.studies.random_labels.problems import DATA, NETWORKS, fit_all, problem

CHANCE = 0.1  # accuracy of a guess with ten classes
LABELS = {"true": 0.0, "random": 1.0}
# Fixed, and not tuned. The decay shrinks weights by a third in the 400 steps at a rate of 0.001.
ARMS: Mapping[str, tuple[Remedy, ...]] = {
    "none": (),
    "weight decay": (WeightDecay(decay=1.0),),
    "dropout": (Dropout(rate=0.5),),
    "augmentation": (RandomShifts(pixels=2),),
}
NOTES = (
    "Published claims (Zhang et al., 2017, CIFAR-10): networks without any regularization still "
    "generalize (Inception: test accuracy 85.75 % without, 89.05 % with weight decay and "
    "augmentation); regularization does not stop them from fitting random labels (Inception: training "
    "accuracy 100 % with weight decay, 99.93 % with random crops; AlexNet with weight decay fails).",
    "Weight decay 1 (decoupled), dropout of half the units before linear layers, shifts of up to two "
    "pixels. With true labels all arms train for the same number of epochs; with random labels up to "
    "a larger number, until every training sample is right. Changes are arm minus none, paired by "
    "seed, with 95 % intervals; p-values are corrected by Holm.",
)
Key = tuple[str, str]
Runs = Mapping[Key, Mapping[Key, Sequence[Record]]]


class MemorizationRegularization(Study):
    r"""Train with and without weight decay, dropout and augmentation, on true and random labels.

    Formula: $\Delta_{arm} = \frac{1}{S} \sum_{s=1}^{S} \left( A_{test}(arm, s) - A_{test}(none, s)
    \right), \qquad \frac{\Delta_{arm}}{A_{test}(none) - 0.1}$

    Reading: If regularization were the reason that networks generalize, they would fail without it
    and could not fit random labels with it. The ratio tells what it adds to the accuracy above that
    of a guess.

    Assumes: Networks and subsets that train in seconds; images averaged over 2×2 pixels; fixed
    strengths.

    >>> len(MemorizationRegularization(seeds=2).trials())
    48
    """

    method = ("E6",)
    cites = ("zhang2017understanding", "srivastava2014dropout", "loshchilov2019decoupled")
    reproduces = ("expressivity: Random labels",)
    # Training accuracy on random labels; the published perceptron has three hidden layers.
    expected: ClassVar[Mapping[str, float]] = {
        "MLP, none": 1.0,
        "MLP, weight decay": 1.0,
    }

    seeds: int = option(3, help="draws of images, labels and initial weights", low=2)
    data: tuple[str, ...] = option(
        ("cifar10",), help="data sets; digits need no download", choices=tuple(DATA)
    )
    networks: tuple[str, ...] = option(tuple(NETWORKS), help="networks", choices=tuple(NETWORKS))
    samples: int = option(500, help="training images", low=20)
    held: int = option(1000, help="test images; at most 500 digits", low=10)
    epochs: int = option(40, help="passes over images with true labels", low=1)
    longest: int = option(100, help="the most passes over images with random labels", low=1)

    def prepare(self) -> None:
        """See that the data are here."""
        for name in self.data:
            load(name)

    def trials(self) -> Sequence[Trial]:
        """Every data set and network with every kind of labels and every arm."""
        return [
            Trial(
                parameters={"data": data, "network": network, "labels": labels, "arm": arm},
                seed=seed,
            )
            for data in self.data
            for network in self.networks
            for labels in LABELS
            for arm in ARMS
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train one network with one arm."""
        sizes, random = (self.samples, self.held), trial["labels"] == "random"
        made = problem(trial["data"], "images", LABELS[trial["labels"]], sizes, trial.seed)
        found = fit_all(
            made,
            trial["network"],
            self.longest if random else self.epochs,
            trial.seed,
            ARMS[trial["arm"]],
            stop=random,
        )
        return {
            "fitted": found.fitted,
            "train": 1 - found.train_error,
            "test": 1 - found.test_error,
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per data set, network and arm."""
        runs: dict[Key, dict[Key, list[Record]]] = {}
        for trial, record in records:
            own = runs.setdefault((trial["data"], trial["network"]), {})
            own.setdefault((trial["labels"], trial["arm"]), []).append(record)
        rows = [row for case, own in runs.items() for row in self._rows(case, own)]
        return Table(
            title="Regularization with true and with random labels",
            columns=tuple(rows[0]) if rows else (),
            rows=tuple(tuple(row.values()) for row in rows),
            notes=(*NOTES, *_generalizes(rows), *_fits(rows)),
            charts=tuple(_chart(data, runs) for data in dict.fromkeys(case[0] for case in runs)),
        )

    def _rows(self, case: Key, own: Mapping[Key, Sequence[Record]]) -> list[dict[str, Any]]:
        """Compare the arms of one case with plain training."""
        arms = [arm for arm in ARMS if len(own.get(("true", arm), ())) > 1]
        tests = {
            arm: paired(_values(own, arm), _values(own, "none"))
            for arm in arms
            if arm != "none" and len(own["true", arm]) == len(own.get(("true", "none"), ()))
        }
        corrected = dict(zip(tests, holm([one.p_value for one in tests.values()]), strict=True))
        return [
            {
                "data": DATA[case[0]],
                "network": case[1],
                "arm": arm,
                "training accuracy": _mean(own["true", arm], "train"),
                "test accuracy": _mean(own["true", arm], "test"),
                "95 % interval": str(mean_interval(_values(own, arm))),
                "change": tests[arm].difference if arm in tests else None,
                "interval of the change": str(tests[arm].interval) if arm in tests else None,
                "p (Holm)": corrected.get(arm),
                **self._random(f"{case[1]}, {arm}", own.get(("random", arm), ())),
            }
            for arm in arms
        ]

    def _random(self, key: str, rows: Sequence[Record]) -> dict[str, Any]:
        """Tell what happened with random labels."""
        known = [row["fitted"] for row in rows if row["fitted"] is not None]
        found = mean_interval([row["train"] for row in rows])
        return {
            "random labels: fitted": f"{len(known)} of {len(rows)}",
            "epochs to fit them": math.fsum(known) / len(known) if known else None,
            "published training accuracy": self.expected.get(key),
            "random labels: training accuracy": _mean(rows, "train") if rows else None,
            "low": found.low,
            "high": found.high,
            "random labels: test accuracy": _mean(rows, "test") if rows else None,
        }

    def tiny(self) -> Self:
        """Two seeds of an MLP on a few digits."""
        few = {"samples": 30, "held": 30, "epochs": 2, "longest": 3, "seeds": 2}
        return self.replace(**few, data=("digits",), networks=("MLP",))


def _values(own: Mapping[Key, Sequence[Record]], arm: str) -> list[float]:
    return [row["test"] for row in own["true", arm]]


def _mean(rows: Sequence[Record], name: str) -> float:
    return math.fsum(row[name] for row in rows) / len(rows)


def _named(row: Mapping[str, Any]) -> str:
    return f"{row['data']}, {row['network']}"


def _generalizes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tell what the best arm adds to the accuracy above a guess; and what is proven."""
    told = []
    for case in dict.fromkeys(map(_named, rows)):
        own = [row for row in rows if _named(row) == case]
        plain = next(row["test accuracy"] for row in own)
        parts = [
            f"{row['arm']} {100 * row['change']:+.1f} points "
            f"({100 * row['change'] / (plain - CHANCE):+.0f} %, p = {row['p (Holm)']:.2g})"
            for row in own
            if row["change"] is not None and plain > CHANCE
        ]
        told.append(f"{case}: {100 * plain:.1f} % without; {', '.join(parts)}.")
    return [
        "Test accuracy with true labels, and changes, also as shares of the accuracy above a guess.",
        *told,
    ]


def _fits(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    told = [
        f"{arm} {'; '.join(_fit_words(row) for row in rows if row['arm'] == arm)}"
        for arm in dict.fromkeys(row["arm"] for row in rows)
    ]
    return [f"Random labels fitted to a training accuracy of 100 %: {' | '.join(told)}."]


def _fit_words(row: Mapping[str, Any]) -> str:
    return f"{row['network']} {row['random labels: fitted']}"


def _chart(data: str, runs: Runs) -> Chart:
    networks = {case[1]: own for case, own in runs.items() if case[0] == data}
    return Bar(
        title=f"Test accuracy with true labels: {DATA[data]}",
        y_label="test accuracy",
        percent=True,
        horizontal=False,
        caption="Mean and 95 % interval over seeds.",
        series=[_bars(arm, networks) for arm in ARMS],
        marks=[Mark(name="guess", y=CHANCE)],
    )


def _bars(arm: str, networks: Mapping[str, Mapping[Key, Sequence[Record]]]) -> Series:
    values = {name: _values(own, arm) for name, own in networks.items() if own.get(("true", arm))}
    found = [mean_interval(row) for row in values.values()]
    return Series(
        name=arm,
        x=list(values),
        y=[math.fsum(row) / len(row) for row in values.values()],
        low=[max(0.0, one.low) for one in found],
        high=[min(1.0, one.high) for one in found],
    )
