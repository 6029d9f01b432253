"""Table 5 of Novello et al. 2020: Taylor Based Sampling of the Bateman equations."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from mindgap.core import Record, Study, Table, Trial, generator, option, standard_error
from mindgap.data.bateman import bateman, bateman_system
from mindgap.sampling import Acquisition, Box, Proposal, initial_design
from mindgap.studies.tbs.shared import CONTROL, against, bars, comparison, keras_mlp, sampled
from mindgap.training.separate_data import Networks, fit_own_data

BATCH = 250
TEST_SEED = 10**6  # no training points use it
EPSILON, COMPONENTS = 5e-4, 10  # as in the paper
PRODUCTION = (0.6, 0.3, 0.1)
REACTION = ((-1.0, 0.0, 0.0), (0.5, -0.5, 0.0), (0.0, 0.3, -0.2))
DERIVATIVE, NEIGHBORS = Acquisition(epsilon=EPSILON), Acquisition(kind="neighbors")
DIFFERENCES = Acquisition(kind="differences", epsilon=EPSILON)

PUBLISHED, DEFAULT, SOBOL = (
    "mixture of 10, as published",
    "exact, ∝ √Df (default)",
    "Sobol, all points",
)
ONE_SPECIES: Mapping[str, tuple[Acquisition, Proposal]] = {
    PUBLISHED: (DERIVATIVE, Proposal(kind="mixture", temper=1, cap=1, components=COMPONENTS)),
    "mixture of 10, capped": (
        DERIVATIVE,
        Proposal(kind="mixture", temper=1, cap=0.99, components=COMPONENTS),
    ),
    "mixture of 10, half uniform": (
        DERIVATIVE,
        Proposal(kind="mixture", temper=1, cap=1, components=COMPONENTS, uniform_share=0.5),
    ),
    "exact, ∝ Df, capped": (DERIVATIVE, Proposal(kind="exact", temper=1)),
    DEFAULT: (DERIVATIVE, Proposal(kind="exact")),
    "pool, ∝ Df, capped": (DERIVATIVE, Proposal(kind="pool", temper=1)),
    "pool, ∝ √Df": (DERIVATIVE, Proposal(kind="pool")),
    "neighbors, pool": (NEIGHBORS, Proposal(kind="pool")),
}
THREE_SPECIES: Mapping[str, tuple[Acquisition, Proposal]] = {
    "differences, pool, ∝ √Df": (DIFFERENCES, Proposal(kind="pool")),
    "neighbors, pool": (NEIGHBORS, Proposal(kind="pool")),
}
METRICS = {"mse": "L2 error (MSE)", "largest": "L∞ error"}
GAINS = {"gain": "AEG", "loss": "AEL"}
SYSTEMS = {1: "one species", 3: "three species"}
FIRST = {1: DEFAULT, 3: "differences, pool, ∝ √Df"}  # defaults, compared with Sobol points too
NEAR = 0.1


class TbsTable5(Study):
    r"""Table 5 of Novello et al. 2020: TBS chooses half of the points on Bateman equations.

    Formula: $\partial_t u = v \sigma \eta u, \quad \partial_t \eta = v \Sigma \eta u, \quad
    f(u_0, \eta_0, t) = (u(t), \eta(t))$

    Reading: A negative difference means less error than with uniform points alone. AEG and AEL
    compare with the uniform arm, too: they are the mean gain and the mean loss over (u₀, η₀) in
    the worst squared error over time. Df has a heavy tail as u₀ approaches 0. A mixture
    proportional to Df therefore puts most points there and few elsewhere. The capped and tempered
    densities correct this. The pool uses derivatives at the known points only; the neighbors use
    none. Three species are solved numerically and cannot be differentiated, so their acquisition
    function uses differences or neighbors.

    Assumes: The paper's 3-32-32-2 network, ε = 0.0005, n = 2 and 10 components. The paper states
    neither coefficients nor domain. Here v = σ = 1, Σ = -1, u₀ and η₀ are in [0, 1] and t is in
    [0, 10]; Df then has the heavy tail that the paper shows. The study is smaller than the paper's:
    3,000 points instead of 50,000, and 24,000 steps with batches of 250 instead of 40,000 steps on
    all points. The training error still falls at the end. Three species have 1,000 points and 8,000
    steps. Inputs are scaled to [-1, 1].

    >>> len(TbsTable5().trials())
    20
    """

    method = ("T1", "T2", "T3")
    cites = ("novello2020variance",)
    reproduces = ("vbsw: Table 5",)
    expected: ClassVar[Mapping[str, float]] = {
        "mse, uniform": 1.22e-4,
        f"mse, {PUBLISHED}": 1.14e-4,
        "largest, uniform": 0.528,
        f"largest, {PUBLISHED}": 0.296,
        f"gain, {PUBLISHED}": 2.51e-2,
        f"loss, {PUBLISHED}": 0.42e-2,
    }

    seeds: int = option(
        10, help="paired seeds; each fixes the points and the initial weights", low=2
    )
    size: int = option(
        3000, help="training points, half of them uniform; the paper has 50,000", low=50
    )
    size_three: int = option(1000, help="training points for three species", low=50)
    epochs: int = option(2000, help="passes over the training points", low=1)
    tests: int = option(
        50_000, help="uniform test points; three species use a fifth of them", low=10
    )
    cells: int = option(32, help="values of u0 and of eta0 in the grid of AEG and AEL", low=2)

    def trials(self) -> Sequence[Trial]:
        """One trial per system and seed."""
        return [
            Trial(parameters={"species": k}, seed=seed)
            for k in SYSTEMS
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train and judge all arms with one seed."""
        species = trial["species"]
        names = arms(species)
        size = self.size if species == 1 else self.size_three
        points = [arm_points(arm, species, size, trial.seed) for arm in names]
        networks = trained(points, species, self.epochs, trial.seed)
        scores = _errors(networks, species, self.tests if species == 1 else max(1, self.tests // 5))
        if species == 1:
            worst = worst_over_time(networks, self.cells)
            change = worst[0] - worst
            scores |= {
                "gain": change.clamp_min(0).mean((1, 2)),
                "loss": (-change).clamp_min(0).mean((1, 2)),
            }
        new = [rows[len(rows) // 2 :] for rows in points]
        record: dict[str, Any] = {
            "scores": {
                metric: dict(zip(names, found.tolist(), strict=True))
                for metric, found in scores.items()
            },
            "near": dict(
                zip(
                    names, [float((rows[:, 0] < NEAR).double().mean()) for rows in new], strict=True
                )
            ),
            "train": networks.losses[2:, 0].tolist(),
        }
        return record | (_tail(points[0][: size // 2]) if species == 1 else {})

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per system, metric and arm, with the paper's numbers and the paired tests."""
        rows: list[tuple[Any, ...]] = []
        charts, notes = [], []
        for species, name in SYSTEMS.items():
            found = [record for trial, record in records if trial["species"] == species]
            if len(found) < 2:
                continue
            for metric, label in METRICS.items():
                tested = against(_by_arm(found, metric))
                near = {
                    arm: 100 * sum(record["near"][arm] for record in found) / len(found)
                    for arm in tested
                }
                paper = {
                    arm: self.expected.get(f"{metric}, {arm}") if species == 1 else None
                    for arm in tested
                }
                rows += [(name, label, arm, paper[arm], *tested[arm], near[arm]) for arm in tested]
                notes.append(
                    comparison(f"{name}, {label}", _by_arm(found, metric), FIRST[species], SOBOL)
                )
                charts.append(
                    bars(
                        f"{name}: {label} minus that of uniform points, 95 % intervals",
                        label,
                        tested,
                    )
                )
            rows += self._gains(name, found) if species == 1 else []
            notes += _notes(name, found)
        return Table(
            title="TBS, Table 5: error on the Bateman equations",
            columns=(
                *("system", "metric", "arm", "paper", "ours", "se", "minus uniform", "low", "high"),
                *("p (Holm)", f"new points with u0 < {NEAR}, %"),
            ),
            rows=tuple(rows),
            notes=(
                *notes,
                "Differences are paired over seeds, with 95 % intervals. The p-values are those of "
                "Student's t-test, corrected by Holm.",
            ),
            charts=tuple(charts),
        )

    def _gains(self, name: str, records: Sequence[Record]) -> list[tuple[Any, ...]]:
        """Return the rows of AEG and AEL, which already compare with the uniform arm."""
        rows: list[tuple[Any, ...]] = []
        for metric, label in GAINS.items():
            for arm, values in list(_by_arm(records, metric).items())[1:]:
                mean, paper = sum(values) / len(values), self.expected.get(f"{metric}, {arm}")
                rows.append((name, label, arm, paper, mean, standard_error(values), *[None] * 5))
        return rows

    def tiny(self) -> Self:
        """Use two seeds, few points and few epochs."""
        return self.replace(seeds=2, size=120, size_three=60, epochs=5, tests=200, cells=4)


def _errors(networks: Networks, species: int, tests: int) -> dict[str, Tensor]:
    """Return the mean squared and the largest test error of every network."""
    points, values = probes(species, tests)
    inputs = scaled(points, system(species)[1])
    errors = [networks.member(k).outputs(inputs)[0].double() - values for k in range(len(networks))]
    return {
        "mse": torch.stack([error.square().mean() for error in errors]),
        "largest": torch.stack([error.abs().max() for error in errors]),
    }


def _tail(points: Tensor) -> dict[str, Any]:
    """Measure how heavy the tail of Df is at the uniform points."""
    metric = DERIVATIVE.anywhere(system(1)[0], points)
    return {"interest": [float(metric.quantile(0.99)), float(metric.max())]}


def _by_arm(records: Sequence[Record], metric: str) -> dict[str, list[float]]:
    return {
        arm: [record["scores"][metric][arm] for record in records]
        for arm in records[0]["scores"][metric]
    }


def _notes(name: str, records: Sequence[Record]) -> list[str]:
    before, after = (sum(record["train"][k] for record in records) / len(records) for k in (0, 1))
    notes = [
        f"{name}: the mean training error of the uniform arm falls from {before:.3g} after three "
        f"quarters of the epochs to {after:.3g} at the end."
    ]
    if "interest" in records[0]:
        high, top = (
            sorted(record["interest"][k] for record in records)[len(records) // 2] for k in (0, 1)
        )
        notes.append(
            f"{name}: at the uniform half of the points, Df has a 99th percentile of {high:.2g} "
            f"and a maximum of {top:.2g}."
        )
    return notes


def system(species: int) -> tuple[Callable[[Tensor], Tensor], Box]:
    """Return the solution of a system and its domain: u₀ and η₀ in [0, 1], t in [0, 10].

    Args:
        species: 1 has a closed form; 3 are solved numerically.
    """
    box = Box([0.0] * (species + 2), [1.0] * (species + 1) + [10.0])
    return bateman if species == 1 else _three, box


def arms(species: int) -> list[str]:
    """List the names of all arms, the control first."""
    return [CONTROL, SOBOL, *(ONE_SPECIES if species == 1 else THREE_SPECIES)]


def arm_points(arm: str, species: int, size: int, seed: int) -> Tensor:
    """Return the training points of an arm.

    The first half is uniform and the same for all arms except Sobol's, which replaces all points.

    Args:
        arm: One of ``arms(species)``.
        species: 1 or 3.
        size: Number of points in total.
        seed: For the uniform points and for the arm's own choice.
    """
    function, box = system(species)
    half = size // 2
    if arm == SOBOL:
        return initial_design("sobol", size, box, seed)
    if arm == CONTROL:
        return torch.cat(
            [
                initial_design("uniform", half, box, seed),
                box.uniform(size - half, generator(10**4 + seed)),
            ]
        )
    settings = (ONE_SPECIES if species == 1 else THREE_SPECIES)[arm]
    return sampled(function, box, (half, size - half), "uniform", *settings, seed=seed)


def trained(points: Sequence[Tensor], species: int, epochs: int, seed: int) -> Networks:
    """Train one network with two layers of 32 units per arm.

    All networks share their initial weights and the order of their batches.

    Args:
        points: The training points of each arm.
        species: 1 or 3.
        epochs: Passes over the training points.
        seed: For the initial weights and the order.
    """
    function, box = system(species)
    inputs, values = (
        torch.stack([scaled(rows, box) for rows in points]),
        [function(rows) for rows in points],
    )
    model = functools.partial(keras_mlp, species + 2, 32, 32, species + 1)
    return fit_own_data(
        model,
        inputs,
        torch.stack(values).float(),
        [seed] * len(points),
        epochs=epochs,
        batch_size=BATCH,
        checks=4,
    )


def scaled(points: Tensor, box: Box) -> Tensor:
    """Scale every coordinate to [-1, 1], as the networks expect."""
    return (2 * box.to_unit(points) - 1).float()


@functools.lru_cache(maxsize=4)
def probes(species: int, size: int) -> tuple[Tensor, Tensor]:
    """Return uniform test points, the same for all arms, and their values."""
    function, box = system(species)
    points = box.uniform(size, generator(TEST_SEED))
    return points, function(points)


def worst_over_time(networks: Networks, cells: int) -> Tensor:
    """Return g, the largest squared error over 51 times, for each cell of a grid of (u₀, η₀).

    Args:
        networks: One network per arm.
        cells: Cells of the grid along u₀ and along η₀; g is taken at their centers.

    Returns:
        A tensor of shape ``(arms, cells, cells)``.
    """
    function, box = system(1)
    starts = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    times = torch.linspace(0, 10, 51, dtype=torch.float64)
    points = torch.cartesian_prod(starts, starts, times)
    values, inputs = function(points), scaled(points, box)
    squares = []
    for one in range(len(networks)):
        error = networks.member(one).outputs(inputs)[0].double() - values
        squares.append(error.square().sum(1).view(cells, cells, -1).amax(2))
    return torch.stack(squares)


def _three(points: Tensor) -> Tensor:
    return bateman_system(points, PRODUCTION, REACTION)
