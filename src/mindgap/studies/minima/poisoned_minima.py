"""Poisoned minima: all training samples fitted, most test samples wrong, and how small they are."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from mindgap.core import (
    Chart,
    Claim,
    Line,
    Paired,
    Points,
    Record,
    Scatter,
    Series,
    Study,
    Table,
    Trial,
    Which,
    holm,
    mean_interval,
    option,
    paired,
)
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.landscape.directions import Normalize
from mindgap.ops.landscape.paths import bent_path, coordinates
from mindgap.studies.minima.basin import log10_mean_power, log10_volume, moving, radii
from mindgap.studies.minima.poison import poisoned, scene, settled
from mindgap.training.fitted import Fitted


class Problem(NamedTuple):
    """What is trained on, small enough that a trial takes a fraction of a minute.

    Args:
        words: What the data are.
        samples: Number of training samples.
        hidden: Units of each hidden layer.
        batch_size: Samples per step.
        shares: Extra samples per training sample; the first is plain training.
    """

    words: str
    samples: int
    hidden: int
    batch_size: int
    shares: tuple[float, ...]


PROBLEMS = {
    "moons": Problem("two moons", 60, 64, 120, (0.0, 0.25, 0.5, 1.0)),
    "digits": Problem("8×8 digits", 300, 64, 100, (0.0, 0.5, 1.0, 3.0)),
}
STATES = {"found": "as found", "settled": "settled"}
UNITS: dict[str, Normalize] = {"filter": "filter", "euclidean": "none"}
BAD = 0.6  # test accuracy below which a minimum counts as bad
PLACES = 21  # on a path between two minima
NOTES = (
    "Published claims: capacity is enough for bad minima, and training avoids them because good ones "
    "have wide basins (slides; Wu, Zhu and E, 2017). Huang et al. (2020): with many weights, a "
    "small difference in width is a huge ratio of volumes.",
    "Poisoned loss: the sum of the losses of the training samples and β times the sum of those of "
    "extra samples with wrong labels, divided by their number. The extra samples are neither "
    "training nor test data. All rows have the same number of steps.",
    "'Settled': after further small steps on the training samples alone, from every minimum, so that "
    "all have a training loss near zero. It is the fair comparison of basins.",
    "Basin: log₁₀ of the volume over that of the unit ball, from below: number of weights times the "
    "mean log₁₀ radius at which the training loss reaches the level. 'Filter' measures in norms of "
    "the weights of a unit, 'Euclidean' in plain distance.",
)


class PoisonedMinima(Study):
    r"""Reach minima that fit all training samples and fail on test data; compare their basins.

    Formula: $L_\beta(w) = \frac{1}{n + m} \left[ \sum_{i=1}^{n} \ell(f_w(x_i), y_i) + \beta
    \sum_{j=1}^{m} \ell(f_w(\tilde x_j), \tilde y_j) \right], \qquad \tilde y_j \ne
    y(\tilde x_j)$

    Reading: Training error is zero at all of these minima, so it cannot tell good from bad. The
    radius up to which the training loss stays low can, where good minima have larger basins. The
    path shows what lies between both.

    Assumes: Two hidden layers and Adam. Extra samples come from the same distribution and are not
    test data. The volume is that of the region which is visible from the minimum in a straight line.

    >>> [trial["data"] for trial in PoisonedMinima(seeds=2).trials()]
    ['moons', 'moons', 'digits', 'digits']
    """

    method = ("E8",)
    cites = ("wu2017towards", "huang2020understanding", "ollion2018learning")
    reproduces = ("expressivity: Good and bad minima",)

    data: str = option("all", help="which data", choices=("all", *PROBLEMS))
    seeds: int = option(10, help="draws of samples, wrong labels and initial weights", low=2)
    beta: float = option(0.3, help="weight of a wrongly labeled sample", above=0)
    steps: int = option(3_000, help="steps of training", low=1)
    settle: int = option(500, help="further steps on the training samples alone", low=1)
    levels: tuple[float, ...] = option((0.1, 0.5), help="training losses that end a basin", above=0)
    directions: int = option(20, help="random directions per minimum", low=1)
    path_steps: int = option(600, help="steps of the search for a bent path", low=0)

    def trials(self) -> Sequence[Trial]:
        """Every problem with every seed."""
        return [
            Trial(parameters={"data": data}, seed=seed)
            for data in (PROBLEMS if self.data == "all" else [self.data])
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train with all shares of poison, measure every minimum and the path between two."""
        problem = PROBLEMS[trial["data"]]
        extra = [round(share * problem.samples) for share in problem.shares]
        drawn = scene(trial["data"], problem.samples, extra[-1], trial.seed)
        found = [
            poisoned(
                drawn,
                problem.hidden,
                extra=count,
                beta=self.beta,
                steps=self.steps,
                batch_size=problem.batch_size,
                seed=trial.seed,
            )
            for count in extra
        ]
        after = [settled(one, steps=self.settle, batch_size=problem.batch_size) for one in found]
        return {
            "found": [self._measured(one, trial.seed) for one in found],
            "settled": [self._measured(one, trial.seed) for one in after],
            "paths": self._paths(found[0], found[-1], trial.seed),
        }

    def _measured(self, fitted: Fitted, seed: int) -> dict[str, Any]:
        subject = fitted.subject()
        flat = FlatLoss(subject)
        record: dict[str, Any] = {
            "train": 1 - subject.mean_error("train"),
            "test": 1 - subject.mean_error("test"),
            "loss": subject.mean_loss("train"),
            "norm": float(flat.point.norm()),
        }
        for unit, normalize in UNITS.items():
            found = radii(
                flat, self.levels, directions=self.directions, normalize=normalize, seed=seed
            )
            size = moving(flat, normalize)
            for level, own in zip(self.levels, found, strict=True):
                record[f"{unit} {level:g}"] = {
                    "volume": log10_volume(own, size),
                    "mean_power": log10_mean_power(own, size),
                    "radius": math.fsum(own) / len(own),
                }
        return record

    def _paths(self, good: Fitted, bad: Fitted, seed: int) -> dict[str, Any]:
        flat, end = FlatLoss(good.subject()), FlatLoss(bad.subject()).point
        bend = bent_path(flat, end, steps=self.path_steps, seed=seed)
        places = torch.linspace(0, 1, PLACES, dtype=torch.float64)
        line = torch.stack([places, torch.zeros_like(places)], 1)
        ways = {"line": line, "bent": coordinates(places)}
        own = flat.point
        return {
            name: _along(flat, [own + a * (end - own) + b * (bend - own) for a, b in way.to(own)])
            for name, way in ways.items()
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per problem and share of poison."""
        runs: dict[str, list[Record]] = {}
        for trial, record in records:
            runs.setdefault(trial["data"], []).append(record)
        unit = f"filter {self.levels[-1]:g}"
        return Table(
            title="Good and bad minima: accuracy and basin",
            columns=(
                *("data", "state", "extra samples per training sample", "training accuracy"),
                *("lowest training accuracy", "training loss", "test accuracy", "low", "high"),
                *("norm of weights", *(f"log₁₀ volume, {key}" for key in self._keys())),
            ),
            rows=tuple(
                self._row(name, state, place, own)
                for name, own in runs.items()
                for state in STATES
                for place in range(len(PROBLEMS[name].shares))
            ),
            notes=(
                *NOTES,
                *(note for name, own in runs.items() for note in self._judged(name, own)),
            ),
            claims=self._claims(runs) if records else (),
            charts=(
                *(_accuracies(name, own) for name, own in runs.items()),
                *(_scatter(name, own, unit) for name, own in runs.items()),
                *(chart for name, own in runs.items() for chart in _between(name, own)),
            ),
        )

    def _keys(self) -> list[str]:
        return [f"{unit} {level:g}" for unit in UNITS for level in self.levels]

    def _row(self, name: str, state: str, place: int, runs: Sequence[Record]) -> tuple[Any, ...]:
        own, problem = [run[state][place] for run in runs], PROBLEMS[name]
        ends = mean_interval([one["test"] for one in own])
        return (
            *(problem.words, STATES[state], problem.shares[place], _mean(own, "train")),
            min(one["train"] for one in own),
            *(_mean(own, "loss"), _mean(own, "test"), ends.low, ends.high, _mean(own, "norm")),
            *(_known([one[key]["volume"] for one in own]) for key in self._keys()),
        )

    def _judged(self, name: str, runs: Sequence[Record]) -> list[str]:
        words = PROBLEMS[name].words.capitalize()
        told = [
            f"{words}, {state_words}: {_accuracy(*_ends(runs, state))}."
            for state, state_words in STATES.items()
        ]
        for (state, key), (one, p) in self._tests(runs).items():
            word = "larger" if one.difference > 0 else "smaller"
            shown = f"the good basin is {word}" if p < 0.05 else "no difference of basins is shown"
            told.append(
                f"{words}, {STATES[state]}, {key}: {shown} (log₁₀ ratio {one.difference:.0f} "
                f"[{one.interval.low:.0f}, {one.interval.high:.0f}], p = {p:.2g}, {one.pairs} pairs)."
            )
        return told

    def _tests(self, runs: Sequence[Record]) -> dict[tuple[str, str], tuple[Paired, float]]:
        """Compare the basins of good and bad minima; p-values are corrected."""
        tests = {
            (state, key): test
            for state in STATES
            for key in self._keys()
            if (test := _basins(*_ends(runs, state), key))
        }
        corrected = holm([one.p_value for one in tests.values()])
        return dict(zip(tests, zip(tests.values(), corrected, strict=True), strict=True))

    def _claims(self, runs: Mapping[str, Sequence[Record]]) -> tuple[Claim, ...]:
        bad = [one for own in runs.values() for one in _ends(own, "found")[1]]
        count = sum(one["train"] == 1 and one["test"] < BAD for one in bad)
        tests = [pair for own in runs.values() for pair in self._tests(own).values()]
        larger = sum(test.difference > 0 and p < 0.05 for test, p in tests)
        return (
            Claim.shown(
                "Minima that fit all training samples and fail on test data can be reached "
                f"({count} of {len(bad)} networks).",
                count > 0,
            ),
            Claim.counted("The basins of good minima are larger.", larger, len(tests)),
        )

    def tiny(self) -> Self:
        """Two seeds, few steps and directions."""
        small = self.replace(data="moons", seeds=2, steps=5, settle=2)
        return small.replace(levels=(1.0,), directions=2, path_steps=2)


def _ends(runs: Sequence[Record], state: str) -> tuple[list[Record], list[Record]]:
    """Give the networks without poison, and those with most of it."""
    return [run[state][0] for run in runs], [run[state][-1] for run in runs]


def _accuracy(plain: Sequence[Record], bad: Sequence[Record]) -> str:
    ends = mean_interval([one["test"] for one in bad])
    count = sum(one["train"] == 1 and one["test"] < BAD for one in bad)
    return (
        f"with most poison, training accuracy is {100 * _mean(bad, 'train'):.1f} % and test accuracy "
        f"{100 * _mean(bad, 'test'):.1f} % [{100 * ends.low:.1f}, {100 * ends.high:.1f}]; without, "
        f"{100 * _mean(plain, 'test'):.1f} %. {count} of {len(bad)} fit all training samples with a "
        f"test accuracy below {100 * BAD:g} %"
    )


def _basins(plain: Sequence[Record], bad: Sequence[Record], key: str) -> Paired | None:
    """Compare basins, paired by seed, where both minima are below the level."""
    ends = zip(*([one[key]["volume"] for one in part] for part in (plain, bad)), strict=True)
    pairs = [pair for pair in ends if all(map(math.isfinite, pair))]
    return paired(*zip(*pairs, strict=True)) if len(pairs) > 1 else None


@torch.no_grad()
def _along(flat: FlatLoss, points: Sequence[Tensor]) -> dict[str, list[float]]:
    """Compute training loss and both accuracies at several weights."""
    found: dict[str, list[float]] = {"loss": [], "train": [], "test": []}
    for point in points:
        losses, right = _scores(flat, "train", point)
        found["loss"].append(float(losses.mean()))
        found["train"].append(float(right.mean()))
        found["test"].append(float(_scores(flat, "test", point)[1].mean()))
    return found


def _scores(flat: FlatLoss, which: Which, point: Tensor) -> tuple[Tensor, Tensor]:
    """Compute losses and right answers of all samples in one batch."""
    (batch,) = flat.subject.split(which).batches(len(flat.subject.split(which)))
    outputs = flat.outputs(point, batch.inputs)
    right = (outputs.argmax(1) == batch.target).double()
    return flat.subject.loss(outputs, batch.target), right


def _mean(runs: Sequence[Mapping[str, Any]], key: str) -> float:
    return math.fsum(run[key] for run in runs) / len(runs)


def _known(found: Sequence[float]) -> float | None:
    """Average, or None where the loss at a minimum was above the level."""
    return math.fsum(found) / len(found) if all(map(math.isfinite, found)) else None


def _series(
    rows: Sequence[Sequence[float]], x: Sequence[float], name: str, most: float = 1.0
) -> Series:
    """Average the rows; the ends of intervals stay between zero and what is possible."""
    columns = list(zip(*rows, strict=True))
    ends = [mean_interval(column) for column in columns]
    return Series(
        name=name,
        x=x,
        y=[math.fsum(column) / len(column) for column in columns],
        low=[max(e.low, 0.0) for e in ends],
        high=[min(e.high, most) for e in ends],
    )


def _accuracies(name: str, runs: Sequence[Record]) -> Chart:
    shares, rows = PROBLEMS[name].shares, list[Series]()
    for state, part, words in (
        ("found", "train", "training accuracy"),
        ("found", "test", "test accuracy"),
        ("settled", "test", "test accuracy, settled"),
    ):
        rows.append(_series([[one[part] for one in run[state]] for run in runs], shares, words))
    return Line(
        title=f"Accuracy against poison: {PROBLEMS[name].words}",
        x_label="wrongly labeled extra samples per training sample",
        y_label="accuracy",
        percent=True,
        from_zero=True,
        series=rows,
        wide=False,
    )


def _scatter(name: str, runs: Sequence[Record], key: str) -> Chart:
    groups = []
    for place, share in enumerate(PROBLEMS[name].shares):
        own = [run["settled"][place] for run in runs]
        own = [one for one in own if math.isfinite(one[key]["volume"])]
        groups.append(
            Points(
                name=f"{share:g} extra" if share else "plain",
                x=[one[key]["volume"] for one in own],
                y=[one["test"] for one in own],
            )
        )
    return Scatter(
        title=f"Test accuracy against the basin, settled: {PROBLEMS[name].words}",
        x_label=f"log₁₀ volume ({key.replace(' ', ', level ')})",
        y_label="test accuracy",
        points=groups,
        wide=False,
    )


def _between(name: str, runs: Sequence[Record]) -> list[Chart]:
    x = torch.linspace(0, 1, PLACES).tolist()
    parts = {"loss": "training loss", "train": "training accuracy", "test": "test accuracy"}
    ways = {"line": "straight line", "bent": "bent path"}
    return [
        Line(
            title=f"From the good minimum to the bad one, {words}: {PROBLEMS[name].words}",
            x_label="place: 0 good, 1 bad",
            y_label="accuracy",
            percent=True,
            from_zero=True,
            series=[
                _series([run["paths"][way][part] for run in runs], x, parts[part])
                for part in ("train", "test")
            ],
            right=[
                _series([run["paths"][way]["loss"] for run in runs], x, parts["loss"], math.inf)
            ],
            right_label="training loss",
            wide=False,
        )
        for way, words in ways.items()
    ]
