"""Twenty units in one layer against ten and ten, on a smooth boundary between two classes."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from mindgap.core import (
    Chart,
    Claim,
    Contour,
    Heatmap,
    Paired,
    Points,
    Recipe,
    Record,
    Study,
    Table,
    Trial,
    holm,
    mean_interval,
    option,
    paired,
)
from mindgap.core.chart.parts import Symbol
from mindgap.nets.mlp import MLP
from mindgap.remedies import Annealing
from mindgap.studies.expressivity.boundaries import BOUNDARIES, grid, samples
from mindgap.studies.expressivity.trained_regions import parameters_of
from mindgap.training.ensemble import ensemble

ARMS: dict[str, tuple[int, ...]] = {"20": (20,), "10 + 10": (10, 10), "32": (32,)}
WORDS = {
    "20": "shallow, 20 units",
    "10 + 10": "deep, 10 + 10 units",
    "32": "shallow, 32 units: as many parameters as 10 + 10",
}
DRAWN = 0  # the seed whose boundaries are drawn: the first, not the best
PLACES, SHOWN = 61, 300  # of the figure: places per axis, and test points besides the errors
NOTES = (
    "Published claim (Montúfar et al., 2014, Figure 1; slides): with the same number of units, two "
    "layers follow a smooth boundary better than one. The slides add: for a fixed number of "
    "parameters, deeper is better.",
    f"20 units have {parameters_of(1, 20)} parameters, 10 + 10 have {parameters_of(2, 10)}. So the "
    f"third arm has one layer of 32 units and also {parameters_of(1, 32)}.",
    "Every arm is the network with the smallest training loss of several, so that what counts is less "
    "what an unlucky start loses. All arms share data and seeds. p-values are paired over seeds and "
    "corrected after Holm.",
)


class ShallowAgainstDeep(Study):
    r"""Error of one layer of 20 units against two of 10, on two boundaries.

    Formula: $\mathrm{err} = P\left( \arg\max_k f_k(x) \ne y \right), \qquad x \sim U([-1, 1]^2)$

    Reading: Classes do not overlap, so every error is one of fitting a smooth curve by pieces of
    lines. The figure marks the errors of the shallow network. Compare the deep network also with a
    shallow one of as many parameters.

    Assumes: ReLU, cross-entropy and Adam with the same steps for all arms.

    >>> len(ShallowAgainstDeep(seeds=3).trials())
    6
    """

    method = ("E2",)
    cites = ("montufar2014number", "ollion2018learning")
    reproduces = ("expressivity: Shallow and deep",)

    boundary: str = option("all", help="boundary of the classes", choices=("all", *BOUNDARIES))
    seeds: int = option(20, help="draws of data and initial weights", low=2)
    restarts: int = option(5, help="networks per arm; the smallest training loss counts", low=1)
    size: int = option(1_000, help="training samples", low=10)
    test_size: int = option(4_000, help="test samples", low=10)
    epochs: int = option(300, help="passes over the training samples", low=1)
    learning_rate: float = option(0.01, help="first learning rate of Adam", above=0)

    def trials(self) -> Sequence[Trial]:
        """Every boundary with every seed."""
        return [
            Trial(parameters={"boundary": boundary}, seed=seed)
            for boundary in (BOUNDARIES if self.boundary == "all" else [self.boundary])
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train all arms on the same samples."""
        train = samples(trial["boundary"], self.size, trial.seed)
        test = samples(trial["boundary"], self.test_size, 1_000 + trial.seed)
        models, record = dict[str, nn.Module](), dict[str, Any]()
        recipe = Recipe(
            model=_maker(ARMS["20"]),
            train=train,
            test=test,
            epochs=self.epochs,
            batch_size=50,
            learning_rate=self.learning_rate,
        )
        for arm, hidden in ARMS.items():
            starts = range(trial.seed * self.restarts, (trial.seed + 1) * self.restarts)
            members = ensemble(
                recipe.replace(model=_maker(hidden)),
                starts,
                remedies=[Annealing()],
                keep_history=False,
            )
            subject = min((m.subject() for m in members), key=lambda one: one.mean_loss("train"))
            models[arm] = subject.model
            record[arm] = {part: subject.mean_error(part) for part in ("train", "test")}
        if trial.seed == DRAWN:
            record["figure"] = _figure(models, test)
        return record

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per boundary and arm."""
        runs: dict[str, list[Record]] = {}
        for trial, record in records:
            runs.setdefault(trial["boundary"], []).append(record)
        against = {
            (name, arm): paired(_tests(own, "10 + 10"), _tests(own, arm))
            for name, own in runs.items()
            for arm in ARMS
            if arm != "10 + 10"
        }
        p_values = dict(zip(against, holm([one.p_value for one in against.values()]), strict=True))
        rows = [
            _row(name, arm, own, against, p_values) for name, own in runs.items() for arm in ARMS
        ]
        return Table(
            title="One layer against two, on a smooth boundary",
            columns=(
                *("boundary", "arm", "parameters", "training error", "test error", "low", "high"),
                *("deep minus this", "low", "high", "p (Holm)"),
            ),
            rows=tuple(rows),
            notes=(*NOTES, *(_judged(*key, one, p_values[key]) for key, one in against.items())),
            claims=_claims(against, p_values),
            charts=tuple(_chart(name, own[0]["figure"]) for name, own in runs.items() if own),
        )

    def tiny(self) -> Self:
        """Two seeds, few samples and one epoch."""
        return self.replace(seeds=2, restarts=2, size=40, test_size=60, epochs=1)


def _maker(hidden: tuple[int, ...]) -> Callable[[], nn.Module]:
    return lambda: MLP((2, *hidden, 2))


@torch.no_grad()
def _figure(models: dict[str, nn.Module], test: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """Compute margins on a grid, and find the test points that the shallow network gets wrong."""
    _, places = grid(PLACES)
    wrong = models["20"](test[0]).argmax(1) != test[1]
    return {
        "margins": {
            arm: [[round(v, 4) for v in row] for row in _margin(model, places).tolist()]
            for arm, model in models.items()
            if arm != "32"
        },
        "errors": _points(*test, wrong),
        "others": _points(test[0][:SHOWN], test[1][:SHOWN], ~wrong[:SHOWN]),
    }


def _margin(model: nn.Module, places: Tensor) -> Tensor:
    outputs: Tensor = model(places)
    return (outputs[:, 1] - outputs[:, 0]).view(PLACES, PLACES)


def _points(inputs: Tensor, labels: Tensor, chosen: Tensor) -> list[list[float]]:
    own = torch.cat([inputs[chosen], labels[chosen, None]], 1)
    return [[round(v, 4) for v in row] for row in own.tolist()]


def _tests(runs: Sequence[Record], arm: str) -> list[float]:
    return [run[arm]["test"] for run in runs]


def _row(
    name: str,
    arm: str,
    runs: Sequence[Record],
    against: dict[tuple[str, str], Paired],
    p_values: dict[tuple[str, str], float],
) -> tuple[Any, ...]:
    test, ends = _tests(runs, arm), mean_interval(_tests(runs, arm))
    train = math.fsum(run[arm]["train"] for run in runs) / len(runs)
    weights = parameters_of(len(ARMS[arm]), ARMS[arm][0])
    head = (name, arm, weights, train, math.fsum(test) / len(test), ends.low, ends.high)
    if (name, arm) not in against:
        return (*head, *[None] * 4)
    one = against[name, arm]
    return (*head, one.difference, one.interval.low, one.interval.high, p_values[name, arm])


def _judged(name: str, arm: str, one: Paired, p_value: float) -> str:
    word = "deep is better" if one.difference < 0 else "deep is worse"
    word = word if p_value < 0.05 else "no difference is shown"
    points, ends = 100 * one.difference, [100 * v for v in (one.interval.low, one.interval.high)]
    return (
        f"{name.capitalize()}, 10 + 10 against {arm} units: {word} ({points:+.2f} points, "
        f"[{ends[0]:.2f}, {ends[1]:.2f}], p = {p_value:.2g})."
    )


def _claims(
    against: dict[tuple[str, str], Paired], p_values: dict[tuple[str, str], float]
) -> tuple[Claim, ...]:
    words = {
        "20": "With as many units, two layers follow a smooth boundary better than one.",
        "32": "With as many parameters, two layers follow it better than one.",
    }
    better = {key: one.difference < 0 and p_values[key] < 0.05 for key, one in against.items()}
    own = {arm: [shown for key, shown in better.items() if key[1] == arm] for arm in words}
    return tuple(
        Claim.counted(text, sum(own[arm]), len(own[arm])) for arm, text in words.items() if own[arm]
    )


def _chart(name: str, figure: Record) -> Chart:
    axis, places = grid(PLACES)
    truth = BOUNDARIES[name](places[:, 0], places[:, 1]).view(PLACES, PLACES)
    right = [[row for row in figure["others"] if row[2] == label] for label in (0, 1)]
    groups = [
        *(_group(own, f"class {label}") for label, own in enumerate(right)),
        _group(figure["errors"], "error of the shallow network", "diamond"),
    ]
    return Heatmap(
        title=f"Boundaries and errors: {name}",
        x=[round(v, 4) for v in axis.tolist()],
        y=[round(v, 4) for v in axis.tolist()],
        x_label="first input",
        y_label="second input",
        contours=[
            Contour(name="truth", z=truth.tolist()),
            *(Contour(name=WORDS[arm], z=z) for arm, z in figure["margins"].items()),
        ],
        points=groups,
        caption="Diamonds are test points that the shallow network gets wrong, of the first seed.",
    )


def _group(rows: Sequence[Sequence[float]], name: str, symbol: Symbol = "circle") -> Points:
    return Points(name=name, x=[row[0] for row in rows], y=[row[1] for row in rows], symbol=symbol)
