"""Good minima over width: what plain training finds, over batch size and learning rate."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from mindgap.core import (
    Chart,
    Contour,
    Heatmap,
    Line,
    Points,
    Recipe,
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
from mindgap.nets.mlp import MLP
from mindgap.studies.minima.poison import Pair, Scene, poisoned, scene
from mindgap.training.ensemble import ensemble

SAMPLES = 60  # 76.7 %, the slides' training accuracy of width 4, is 46 of 60
SMALL_BATCH, RATES = 10, (0.02, 0.1)
EXTRA, BETA = 60, 0.3  # of the poisoned loss
ARMS = {
    "all, 0.1": "all samples, rate 0.1",
    "all, 0.02": "all samples, rate 0.02",
    "10, 0.1": "batches of 10, rate 0.1",
    "10, 0.02": "batches of 10, rate 0.02",
    "poisoned": "poisoned",
}
PLAIN = next(iter(ARMS))  # the arm next to which the slides' numbers are put
DRAWN, PLACES = 0, 41  # seed whose boundaries are drawn, places per axis
NOTES = (
    "Published (slides): one network of two hidden layers per width, on two-dimensional data that are "
    "not given. Ours are two moons with noise 0.15 and 60 training samples, so the numbers are "
    "comparable in size only.",
    "Published claims: even with large batches, gradient descent avoids bad minima. Small batches and "
    "large learning rates generalize a bit better, but that is not the main effect.",
    "Plain arms: SGD with momentum 0.9 and the same number of steps. Poisoned: Adam on the loss with "
    f"{EXTRA} wrongly labeled extra samples of weight {BETA:g}; they count neither as training nor "
    "as test data.",
)
Runs = Mapping[int, Sequence[Record]]


class MinimaOverWidth(Study):
    r"""Training and test accuracy of two hidden layers over their width, plain and poisoned.

    Formula: $f(x) = W_3 \max(0, W_2 \max(0, W_1 x + b_1) + b_2) + b_3$ with $h$ units per layer

    Reading: Wide networks can fit all samples in good and in bad ways. Poisoned training shows that
    the bad ways exist. Plain training does not find them, whatever batch size and learning rate.

    Assumes: Two inputs, so that boundaries can be drawn; those of the first seed are.

    >>> len(MinimaOverWidth(seeds=2).trials())
    16
    """

    method = ("E8",)
    cites = ("ollion2018learning", "wu2017towards")
    reproduces = ("expressivity: Widths",)
    expected: ClassVar[Mapping[str, float]] = {
        "train, 4": 0.767,
        "test, 4": 0.877,
        "train, 8": 1.0,
        "test, 8": 0.882,
        **{f"train, {width}": 1.0 for width in (16, 32, 64, 128, 256, 512)},
        "test, 16": 0.986,
        "test, 32": 0.984,
        "test, 64": 0.977,
        "test, 128": 0.984,
        "test, 256": 0.987,
        "test, 512": 0.987,
    }

    widths: tuple[int, ...] = option(
        (4, 8, 16, 32, 64, 128, 256, 512), help="units of each hidden layer", low=1
    )
    seeds: int = option(10, help="draws of samples and initial weights", low=2)
    steps: int = option(2_000, help="steps of training", low=1)

    def trials(self) -> Sequence[Trial]:
        """Every width with every seed."""
        return [
            Trial(parameters={"width": width}, seed=seed)
            for width in self.widths
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train all arms on the same samples."""
        drawn = scene("moons", SAMPLES, EXTRA, trial.seed)
        models = self._plain(drawn, trial["width"], trial.seed)
        models["poisoned"] = poisoned(
            drawn,
            trial["width"],
            extra=EXTRA,
            beta=BETA,
            steps=self.steps,
            batch_size=SAMPLES + EXTRA,
            seed=trial.seed,
        ).model
        record: dict[str, Any] = {
            arm: {"train": _accuracy(model, drawn.train), "test": _accuracy(model, drawn.test)}
            for arm, model in models.items()
        }
        if trial.seed == DRAWN:
            record["figure"] = _figure(models, drawn.train)
        return record

    def _plain(self, drawn: Scene, width: int, seed: int) -> dict[str, nn.Module]:
        models = dict[str, nn.Module]()
        for name, size in (("all", SAMPLES), ("10", SMALL_BATCH)):
            recipe = Recipe(
                model=lambda: MLP(drawn.widths(width)),
                train=drawn.train,
                optimizer="sgd",
                momentum=0.9,
                epochs=math.ceil(self.steps * size / SAMPLES),
                batch_size=size,
            )
            found = ensemble(recipe, [seed] * 2, learning_rates=RATES, keep_history=False)
            models |= {
                f"{name}, {rate:g}": one.model for rate, one in zip(RATES, found, strict=True)
            }
        return {arm: models[arm] for arm in ARMS if arm in models}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per arm, width and part of the data."""
        runs: dict[int, list[Record]] = {}
        for trial, record in records:
            runs.setdefault(trial["width"], []).append(record)
        rows = [
            self._row(arm, width, part, own)
            for arm in ARMS
            for width, own in runs.items()
            for part in ("train", "test")
        ]
        return Table(
            title="Accuracy of two hidden layers over their width",
            columns=("training", "part", "width", "published", "accuracy", "low", "high"),
            rows=tuple(rows),
            notes=(*NOTES, *_judged(runs)),
            charts=(
                *(_curves(runs, part) for part in ("train", "test")),
                *(_boundaries(width, own[0]["figure"]) for width, own in runs.items()),
            ),
        )

    def _row(self, arm: str, width: int, part: str, runs: Sequence[Record]) -> tuple[Any, ...]:
        found = [run[arm][part] for run in runs]
        ends = mean_interval(found)
        published = self.expected.get(f"{part}, {width}") if arm == PLAIN else None
        word = {"train": "training", "test": "test"}[part]
        return (ARMS[arm], word, width, published, _mean(found), ends.low, ends.high)

    def tiny(self) -> Self:
        """Two widths, two seeds and few steps."""
        return self.replace(widths=(4, 8), seeds=2, steps=3)


@torch.no_grad()
def _accuracy(model: nn.Module, data: Pair) -> float:
    return float((model(data[0]).argmax(1) == data[1]).double().mean())


def _mean(found: Sequence[float]) -> float:
    return math.fsum(found) / len(found)


def _tests(runs: Runs, arm: str) -> dict[int, list[float]]:
    return {width: [run[arm]["test"] for run in own] for width, own in runs.items()}


def _judged(runs: Runs) -> list[str]:
    """Compare every arm with the first at the widest network, paired by seed."""
    widest = max(runs)
    plain = _tests(runs, PLAIN)[widest]
    tests = {arm: paired(_tests(runs, arm)[widest], plain) for arm in ARMS if arm != PLAIN}
    corrected = holm([one.p_value for one in tests.values()])
    told = [
        f"Width {widest}, {ARMS[arm]} against {ARMS[PLAIN]}: {100 * one.difference:+.1f} points of "
        f"test accuracy [{100 * one.interval.low:.1f}, {100 * one.interval.high:.1f}], p = {p:.2g}."
        for (arm, one), p in zip(tests.items(), corrected, strict=True)
    ]
    fitted = [run for own in runs.values() for run in own if run["poisoned"]["train"] == 1]
    if fitted:
        worst = max(run["poisoned"]["test"] for run in fitted)
        told.append(
            f"{len(fitted)} of {sum(map(len, runs.values()))} poisoned networks fit all training "
            f"samples; their test accuracy is {100 * _mean([r['poisoned']['test'] for r in fitted]):.1f} % "
            f"on average and at most {100 * worst:.1f} %."
        )
    plain_fitted = [
        run[arm]["test"]
        for own in runs.values()
        for run in own
        for arm in ARMS
        if arm != "poisoned" and run[arm]["train"] == 1
    ]
    if plain_fitted:
        told.append(
            f"{len(plain_fitted)} plain networks fit all training samples; their test accuracy is at "
            f"least {100 * min(plain_fitted):.1f} %."
        )
    return told


def _curves(runs: Runs, part: str) -> Chart:
    series = list[Series]()
    for arm, words in ARMS.items():
        columns = [[run[arm][part] for run in own] for own in runs.values()]
        ends = [mean_interval(column) for column in columns]
        low, high = [e.low for e in ends], [min(e.high, 1.0) for e in ends]
        means = [_mean(column) for column in columns]
        series.append(Series(name=words, x=list(runs), y=means, low=low, high=high))
    word = {"train": "Training", "test": "Test"}[part]
    return Line(
        title=f"{word} accuracy over width",
        x_label="units per hidden layer",
        y_label="accuracy",
        x_scale="log",
        percent=True,
        series=series,
    )


@torch.no_grad()
def _figure(models: Mapping[str, nn.Module], train: Pair) -> dict[str, Any]:
    x, y = torch.linspace(-1.6, 2.6, PLACES), torch.linspace(-1.2, 1.7, PLACES)
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    places = torch.stack([columns.flatten(), rows.flatten()], 1)
    return {
        "x": _short(x),
        "y": _short(y),
        "margins": {arm: _margins(models[arm], places) for arm in (PLAIN, "poisoned")},
        "points": {str(k): [_short(row) for row in train[0][train[1] == k]] for k in (0, 1)},
    }


def _margins(model: nn.Module, places: Tensor) -> list[list[float]]:
    """Return the difference of both outputs, in which only signs and crossings matter."""
    outputs = model(places)
    return [
        _short(row) for row in (outputs[:, 1] - outputs[:, 0]).clamp(-9, 9).view(PLACES, PLACES)
    ]


def _short(found: Tensor) -> list[float]:
    return [round(value, 3) for value in found.tolist()]


def _boundaries(width: int, figure: Mapping[str, Any]) -> Chart:
    return Heatmap(
        title=f"Boundaries: {width} units",
        x=figure["x"],
        y=figure["y"],
        x_label="first input",
        y_label="second input",
        contours=[Contour(name=ARMS[arm], z=z) for arm, z in figure["margins"].items()],
        points=[
            Points(name=f"class {name}", x=[row[0] for row in own], y=[row[1] for row in own])
            for name, own in figure["points"].items()
        ],
        wide=False,
    )
