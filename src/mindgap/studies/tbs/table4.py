"""Table 4 of Novello et al. 2020: Taylor Based Sampling of two functions of one variable."""

import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from mindgap.core import Record, Study, Table, Trial, generator, option
from mindgap.ops.taylor.metric import taylor_metric
from mindgap.sampling import Acquisition, Box, Proposal, initial_design
from mindgap.studies.tbs.shared import against, bars, comparison, keras_mlp, resampled, sampled
from mindgap.training.separate_data import fit_own_data

BOX = Box(-1, 1)
START, NEW, COMPONENTS = 8, 8, 3  # the paper's N, N' and number of Gaussians
DERIVATIVE = Acquisition(epsilon=1e-3, order=2)
BLOCK = 50  # seeds per trial
METRICS = {"rmse": "L2 error", "largest": "L∞ error"}
FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Runge": lambda x: 1 / (1 + 25 * x[:, :1] ** 2),
    "tanh": lambda x: torch.tanh(10 * x[:, :1]),
}
MIXTURE = Proposal(kind="mixture", temper=1, cap=1, components=COMPONENTS)
SAMPLERS: Mapping[str, tuple[Acquisition, Proposal]] = {
    "TBS, weighted mixture": (DERIVATIVE, MIXTURE),
    "TBS, pool": (DERIVATIVE, Proposal(kind="pool")),
    "TBS, exact density": (DERIVATIVE, Proposal(kind="exact")),
    "neighbors, pool": (Acquisition(kind="neighbors"), Proposal(kind="pool")),
    "TBS, mixture, half uniform": (
        DERIVATIVE,
        Proposal(kind="mixture", temper=1, cap=1, components=COMPONENTS, uniform_share=0.5),
    ),
}
RESAMPLED, ADAPTIVE = "resampled, unweighted mixture", "adaptive, Learner1D"
FIRST = ("TBS, weighted mixture", "TBS, exact density")  # published, and the package's default
ARMS = ("uniform", "grid of 16", "Sobol", RESAMPLED, *SAMPLERS, ADAPTIVE)


class TbsTable4(Study):
    r"""Table 4 of Novello et al. 2020: 8 new points, uniform or where f changes quickly.

    Formula: $Df_\epsilon^2(x) = \epsilon f'(x)^2 + \frac{\epsilon^2}{2} f''(x)^2$

    Reading: Every arm adds 8 points to a grid of 8 points, except the grid of 16. A negative
    difference means less error than with uniform points, the paper's control. The grid and the
    Sobol points are stronger controls, although they ignore the function too; the notes compare
    with the grid. The weighted mixture is the published algorithm. The resampled arm follows the
    text of the paper literally: it resamples points by Df and fits an unweighted mixture. That
    mixture concentrates on the known points. The pool transfers the Taylor metric from the known
    points to candidates; the exact density computes it at each of 1,024 candidates.

    Assumes: The paper's 1-8-1 network, with Adam and the initialization of Keras, n = 2,
    ε = 0.001 and 3 components. The paper states neither the interval nor the number of epochs.
    Here x is in [-1, 1] for 1/(1 + 25x²) and for tanh(10x). The number of epochs was chosen so that
    the training error of the uniform arm has settled. A seed fixes both the points and the initial
    weights.

    >>> len(TbsTable4().trials())
    16
    """

    method = ("T1", "T2", "T3")
    cites = ("novello2020variance",)
    reproduces = ("vbsw: Table 4",)
    expected: ClassVar[Mapping[str, float]] = {
        "Runge, rmse, uniform": 0.0145,
        "Runge, rmse, TBS, weighted mixture": 0.0113,
        "Runge, largest, uniform": 0.0531,
        "Runge, largest, TBS, weighted mixture": 0.0387,
        "tanh, rmse, uniform": 0.139,
        "tanh, rmse, TBS, weighted mixture": 0.095,
        "tanh, largest, uniform": 0.275,
        "tanh, largest, TBS, weighted mixture": 0.225,
    }

    seeds: int = option(
        400, help="paired seeds; each fixes the points and the initial weights", low=2
    )
    epochs: int = option(16_000, help="steps of Adam on all 16 points", low=1)
    tests: int = option(1000, help="test points, evenly spaced", low=2)

    def trials(self) -> Sequence[Trial]:
        """Both functions, in blocks of seeds."""
        blocks = range(-(-self.seeds // BLOCK))
        return [
            Trial(parameters={"function": name}, seed=block)
            for name in FUNCTIONS
            for block in blocks
        ]

    def run(self, trial: Trial) -> Record:
        """Train all arms and seeds of a block in one vectorized call."""
        function = FUNCTIONS[trial["function"]]
        seeds = range(trial.seed * BLOCK, min((trial.seed + 1) * BLOCK, self.seeds))
        arms = [arm for arm in ARMS if arm != ADAPTIVE or importlib.util.find_spec("adaptive")]
        points = torch.stack([arm_points(arm, function, seed) for arm in arms for seed in seeds])
        scores, losses = fitted_errors(function, points, seeds, len(arms), self.epochs, self.tests)
        return {
            "scores": {
                metric: dict(zip(arms, found.tolist(), strict=True))
                for metric, found in scores.items()
            },
            "train": [losses[k, 0].median().item() for k in (2, 3)],
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per function, metric and arm, with the paper's numbers and the paired tests."""
        rows: list[tuple[Any, ...]] = []
        charts, notes = [], []
        for name in FUNCTIONS:
            found = [record for trial, record in records if trial["function"] == name]
            for metric, label in METRICS.items() if found else ():
                arms = [
                    arm for arm in ARMS if all(arm in record["scores"][metric] for record in found)
                ]
                scores = {
                    arm: [v for record in found for v in record["scores"][metric][arm]]
                    for arm in arms
                }
                tested = against(scores)
                rows += [
                    (name, label, a, self.expected.get(f"{name}, {metric}, {a}"), *tested[a])
                    for a in arms
                ]
                notes += [
                    comparison(f"{name}, {label}", scores, arm, "grid of 16") for arm in FIRST
                ]
                charts.append(
                    bars(
                        f"{name}: {label} minus that of uniform points, 95 % intervals",
                        label,
                        tested,
                    )
                )
            notes += [_rest(name, [record["train"] for record in found])] if found else []
        missing = ADAPTIVE not in {row[2] for row in rows}
        notes += ["The package adaptive is not installed: its rows are missing."] if missing else []
        return Table(
            title="TBS, Table 4: error of a network of 8 units on 16 points",
            columns=(
                *("function", "metric", "arm", "paper", "ours", "se"),
                *("minus uniform", "low", "high", "p (Holm)"),
            ),
            rows=tuple(rows),
            notes=(
                *notes,
                "Differences are paired over seeds, with 95 % intervals. The p-values are those of "
                "Student's t-test, corrected by Holm.",
            ),
            charts=tuple(charts),
        )

    def tiny(self) -> Self:
        """Use three seeds and few steps."""
        return self.replace(seeds=3, epochs=20, tests=50)


def arm_points(arm: str, function: Callable[[Tensor], Tensor], seed: int) -> Tensor:
    """Return the 16 points of an arm, ``(16, 1)``.

    The first 8 points are a grid of 8, except in the arm "grid of 16".

    Args:
        arm: One of ``ARMS``.
        function: The function to sample.
        seed: For the arms that draw points.
    """
    if arm == "grid of 16":
        return initial_design("grid", START + NEW, BOX)
    if arm in SAMPLERS:
        return sampled(function, BOX, (START, NEW), "grid", *SAMPLERS[arm], seed=seed)
    grid = initial_design("grid", START, BOX)
    if arm == RESAMPLED:
        metric = taylor_metric(function, grid, epsilon=DERIVATIVE.epsilon)
        return torch.cat([grid, resampled(grid, metric, NEW, COMPONENTS, BOX, seed)])
    if arm == ADAPTIVE:
        return _adaptive(function, grid)
    new = (
        initial_design("sobol", NEW, BOX, seed)
        if arm == "Sobol"
        else BOX.uniform(NEW, generator(seed))
    )
    return torch.cat([grid, new])


def fitted_errors(
    function: Callable[[Tensor], Tensor],
    points: Tensor,
    seeds: Sequence[int],
    arms: int,
    epochs: int,
    tests: int,
) -> tuple[dict[str, Tensor], Tensor]:
    """Train the paper's network on every set of points, in one vectorized call, and judge it.

    Args:
        function: The function to learn.
        points: One set of points per arm and seed, ``(arms · seeds, points, 1)``.
        seeds: The seeds of the initial weights.
        arms: Number of arms.
        epochs: Steps of Adam.
        tests: Number of test points, evenly spaced.

    Returns:
        By metric the errors, ``(arms, seeds)``, and the training losses at four times.
    """
    members = fit_own_data(
        functools.partial(keras_mlp, 1, 8, 1),
        points.float(),
        function(points.flatten(0, 1)).view_as(points).float(),
        [*seeds] * arms,
        epochs=epochs,
        checks=4,
    )
    test = torch.linspace(-1, 1, tests, dtype=torch.float64)[:, None]
    error = (members.outputs(test).double() - function(test)).view(arms, len(seeds), -1)
    scores = {"rmse": error.square().mean(2).sqrt(), "largest": error.abs().amax(2)}
    return scores, members.losses.view(4, arms, -1)


def _adaptive(function: Callable[[Tensor], Tensor], grid: Tensor) -> Tensor:
    """Let python-adaptive add points one by one, each chosen from all values so far."""
    learner: Any = importlib.import_module("adaptive").Learner1D(None, bounds=(-1.0, 1.0))
    learner.tell_many(grid.flatten().tolist(), function(grid).flatten().tolist())
    new = torch.empty(NEW, 1, dtype=torch.float64)
    for place in range(NEW):
        new[place] = learner.ask(1)[0][0]
        learner.tell(new[place].item(), function(new[place : place + 1]).item())
    return torch.cat([grid, new])


def _rest(name: str, trains: Sequence[Sequence[float]]) -> str:
    before, after = (sum(found) / len(found) for found in zip(*trains, strict=True))
    return (
        f"{name}: the median training error of the uniform arm falls from {before:.3g} after three "
        f"quarters of the steps to {after:.3g} at the end (mean over blocks of seeds)."
    )
