"""How networks fit true labels, random labels and noise: loss curves, time to fit, test error."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from mindgap.core import (
    Chart,
    Line,
    Mark,
    Record,
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
from mindgap.studies.random_labels.problems import (
    BATCH,
    DATA,
    INPUTS,
    NETWORKS,
    Fit,
    fit_all,
    problem,
)

CHANCE = 0.9  # error of a guess with ten classes
TRUE, RANDOM = ("images", 0.0), ("images", 1.0)
NOTES = (
    "Published claims (Zhang et al., 2017, CIFAR-10): networks fit random labels, shuffled pixels, "
    "random pixels and Gaussian inputs to a training error of 0; random labels slow training down by "
    "a small factor (3.5 for Inception); random pixels and Gaussian inputs are fitted sooner than "
    "random labels; test error grows steadily with the corruption, up to that of a guess.",
    "A corrupted label is drawn from all classes. Training stops when every training sample is right; "
    "steps that were not enough count as the largest number. Test labels are true, and nothing is "
    "chosen by them.",
)
Setting = tuple[str, float]
Case = tuple[str, str]
Runs = Mapping[Case, Mapping[Setting, Sequence[Record]]]


class Memorization(Study):
    r"""Fit true, partly random and random labels, shuffled and random pixels, and Gaussian noise.

    Formula: $T = \min \{ t : \hat R_t = 0 \}, \qquad \hat R_t = \frac{1}{n} \sum_{i=1}^{n}
    [f_t(x_i) \ne \tilde y_i]$

    Reading: A network that fits random labels as well as true ones has the capacity to memorize. So
    its capacity cannot be the reason that it generalizes from true ones. How much longer it takes
    tells how much of the true labels is a pattern.

    Assumes: Networks and subsets that train in seconds; images averaged over 2×2 pixels; Adam at a
    fixed learning rate per network.

    >>> len(Memorization(seeds=2, networks=("MLP",)).trials())
    32
    """

    method = ("E6",)
    cites = ("zhang2017understanding", "arpit2017closer")
    reproduces = ("expressivity: Random labels",)
    expected: ClassVar[Mapping[str, float]] = {
        "true labels": 0.0,
        "random labels": 0.0,
        "shuffled pixels": 0.0,
        "random pixels": 0.0,
        "Gaussian": 0.0,
    }

    seeds: int = option(3, help="draws of images, labels and initial weights", low=2)
    data: tuple[str, ...] = option(
        ("mnist", "cifar10"), help="data sets; digits need no download", choices=tuple(DATA)
    )
    networks: tuple[str, ...] = option(tuple(NETWORKS), help="networks", choices=tuple(NETWORKS))
    corruption: tuple[float, ...] = option(
        (0.0, 0.25, 0.5, 0.75, 1.0), help="shares of random labels", low=0, high=1
    )
    samples: int = option(500, help="training images; at most 1,000 digits", low=20)
    held: int = option(1000, help="test images; at most 500 digits", low=10)
    epochs: int = option(100, help="the most passes over the training images", low=1)

    def prepare(self) -> None:
        """See that the data are here."""
        for name in self.data:
            load(name)

    def trials(self) -> Sequence[Trial]:
        """Every data set and network with every kind of labels or inputs."""
        settings = [("images", share) for share in self.corruption]
        settings += [(inputs, 0.0) for inputs in INPUTS[1:]]
        return [
            Trial(
                parameters={
                    "data": data,
                    "network": network,
                    "inputs": inputs,
                    "corruption": share,
                },
                seed=seed,
            )
            for data in self.data
            for network in self.networks
            for inputs, share in settings
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train one network until it fits."""
        sizes = self.samples, self.held
        made = problem(trial["data"], trial["inputs"], trial["corruption"], sizes, trial.seed)
        found = fit_all(made, trial["network"], self.epochs, trial.seed)
        return recorded(found, math.ceil(len(made.labels) / BATCH))

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per data set, network and kind of labels or inputs."""
        runs: dict[Case, dict[Setting, list[Record]]] = {}
        for trial, record in records:
            own = runs.setdefault((trial["data"], trial["network"]), {})
            own.setdefault((trial["inputs"], trial["corruption"]), []).append(record)
        return Table(
            title=f"Fitting true labels, random labels and noise ({self.samples} images)",
            columns=(
                *("data", "network", "setting", "fitted", "published training error"),
                *("training error", "low", "high", "steps to fit", "steps / true labels"),
                *("test error", "95 % interval"),
            ),
            rows=tuple(
                self._row(case, setting, own) for case, own in runs.items() for setting in own
            ),
            notes=(*NOTES, *_fitted(runs), *_slower(runs), *_sooner(runs), *_rising(runs)),
            charts=(
                *(_curves(case, own) for case, own in runs.items()),
                _over("Steps to fit over the share of random labels", "steps", runs),
                _over("Test error over the share of random labels", "test_error", runs),
            ),
        )

    def _row(
        self, case: Case, setting: Setting, own: Mapping[Setting, Sequence[Record]]
    ) -> tuple[Any, ...]:
        rows = own[setting]
        train, test = ([row[name] for row in rows] for name in ("train_error", "test_error"))
        found = mean_interval(train)
        return (
            *(DATA[case[0]], case[1], words(setting), _count(rows)),
            *(self.expected.get(words(setting)), _mean(rows, "train_error"), found.low, found.high),
            *(_mean(rows, "steps"), _ratio(own, setting)),
            *(_mean(rows, "test_error"), str(mean_interval(test))),
        )

    def tiny(self) -> Self:
        """Two seeds of an MLP on a few digits, with three shares of random labels."""
        few = {"samples": 30, "held": 30, "epochs": 3, "seeds": 2}
        return self.replace(**few, data=("digits",), networks=("MLP",), corruption=(0.0, 1.0))


def recorded(found: Fit, batches: int) -> Record:
    """Write a fit as plain data; a run that does not fit counts with all its steps.

    Args:
        found: The fit.
        batches: Steps per epoch.
    """
    return {
        "losses": found.losses,
        "steps": batches * (found.fitted or len(found.losses)),
        "fitted": found.fitted is not None,
        "train_error": found.train_error,
        "test_error": found.test_error,
    }


def words(setting: Setting) -> str:
    """Name a setting.

    >>> [words(one) for one in (TRUE, ("images", 0.25), RANDOM, ("Gaussian", 0.0))]
    ['true labels', '25 % random labels', 'random labels', 'Gaussian']
    """
    inputs, share = setting
    if inputs != "images":
        return inputs
    return {0.0: "true labels", 1.0: "random labels"}.get(share, f"{100 * share:g} % random labels")


def _mean(rows: Sequence[Record], name: str) -> float:
    return math.fsum(row[name] for row in rows) / len(rows)


def _count(rows: Sequence[Record]) -> str:
    return f"{sum(row['fitted'] for row in rows)} of {len(rows)}"


def _logs(rows: Sequence[Record]) -> list[float]:
    return [math.log(row["steps"]) for row in rows]


def _ratio(own: Mapping[Setting, Sequence[Record]], setting: Setting) -> str | None:
    """Compare the steps to fit with those of true labels, seed by seed."""
    if setting == TRUE or TRUE not in own or len(own[setting]) != len(own[TRUE]):
        return None
    found = paired(_logs(own[setting]), _logs(own[TRUE]))
    low, high = (math.exp(end) for end in (found.interval.low, found.interval.high))
    return f"{math.exp(found.difference):.2f} [{low:.2f}, {high:.2f}]"


def _complete(
    runs: Runs, *needed: Setting
) -> list[tuple[Case, Mapping[Setting, Sequence[Record]]]]:
    """Keep the cases that have all these settings with equally many seeds."""
    return [
        (case, own)
        for case, own in runs.items()
        if len({len(own.get(setting, ())) for setting in needed}) == 1
        and len(own.get(needed[0], ())) > 1
    ]


def _named(case: Case) -> str:
    return f"{DATA[case[0]]}, {case[1]}"


def _fitted(runs: Runs) -> list[str]:
    told = []
    for setting in dict.fromkeys(setting for own in runs.values() for setting in own):
        rows = [row for own in runs.values() for row in own.get(setting, ())]
        told.append(f"{words(setting)} {_count(rows)}")
    return [f"Runs with a training error of 0: {'; '.join(told)}."]


def _slower(runs: Runs) -> list[str]:
    told = [f"{_named(case)} {_ratio(own, RANDOM)}" for case, own in _complete(runs, TRUE, RANDOM)]
    if not told:
        return []
    return [
        "Steps to fit random labels, divided by those for true labels (geometric mean over paired "
        f"seeds, 95 % interval; published: 3.5 for Inception): {'; '.join(told)}."
    ]


def _sooner(runs: Runs) -> list[str]:
    """Test whether random pixels and Gaussian inputs are fitted sooner than random labels."""
    told = []
    for inputs in INPUTS[2:]:
        cases = _complete(runs, (inputs, 0.0), RANDOM)
        tests = [paired(_logs(own[inputs, 0.0]), _logs(own[RANDOM])) for _, own in cases]
        p_values = holm([test.p_value for test in tests]) if tests else []
        pairs = list(zip(tests, p_values, strict=True))
        sooner, later = (
            sum(sign * test.difference < 0 and p < 0.05 for test, p in pairs) for sign in (1, -1)
        )
        fewer = sum(test.difference < 0 for test in tests)
        told.append(
            f"{words((inputs, 0.0))}: fewer steps in {fewer} of {len(tests)} cases (corrected "
            f"p < 0.05 in {sooner}; more steps in {later})"
        )
    return [f"Compared with random labels, {'; '.join(told)}."]


def _rising(runs: Runs) -> list[str]:
    """Say where test error rises with every step of corruption, and whether it ends at chance."""
    told = []
    for case, own in _complete(runs, TRUE, RANDOM):
        shares = sorted(setting for setting in own if setting[0] == "images")
        means = [_mean(own[setting], "test_error") for setting in shares]
        rises = all(after > before for before, after in itertools.pairwise(means))
        found = mean_interval([row["test_error"] for row in own[RANDOM]])
        told.append(
            f"{_named(case)} {100 * means[0]:.1f} % → {100 * means[-1]:.1f} % "
            f"({'rises at every step' if rises else 'does not rise at every step'}; at the end "
            f"{'as a guess' if found.low <= CHANCE <= found.high else 'unlike a guess'})"
        )
    return [f"Test error from true to random labels: {'; '.join(told)}."] if told else []


def _curves(case: Case, own: Mapping[Setting, Sequence[Record]]) -> Chart:
    return Line(
        title=f"Training loss: {_named(case)}",
        x_label="epoch",
        y_label="mean loss of the epoch",
        from_zero=True,
        caption="Mean over seeds; a run that fits all samples stops and keeps its last loss.",
        series=[
            _curve(words(setting), rows)
            for setting, rows in own.items()
            if setting[0] != "images" or setting[1] in (0.0, 0.5, 1.0)
        ],
    )


def _curve(name: str, rows: Sequence[Record]) -> Series:
    last = max(len(row["losses"]) for row in rows)
    held = [[*row["losses"], *[row["losses"][-1]] * (last - len(row["losses"]))] for row in rows]
    means = [math.fsum(column) / len(column) for column in zip(*held, strict=True)]
    return Series(name=name, x=list(range(1, last + 1)), y=means, mode="lines")


def _over(title: str, name: str, runs: Runs) -> Chart:
    return Line(
        title=title,
        x_label="share of random labels",
        y_label="steps" if name == "steps" else "test error",
        percent=name != "steps",
        from_zero=True,
        caption="Mean and 95 % interval over seeds.",
        series=[_corrupted(case, own, name) for case, own in runs.items()],
        marks=[] if name == "steps" else [Mark(name="guess", y=CHANCE)],
    )


def _corrupted(case: Case, own: Mapping[Setting, Sequence[Record]], name: str) -> Series:
    shares = sorted(setting for setting in own if setting[0] == "images")
    found = [mean_interval([row[name] for row in own[setting]]) for setting in shares]
    return Series(
        name=_named(case),
        x=[share for _, share in shares],
        y=[_mean(own[setting], name) for setting in shares],
        low=[max(0.0, one.low) for one in found],
        high=[one.high for one in found],
    )
