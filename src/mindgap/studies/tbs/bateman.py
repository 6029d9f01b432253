"""The Bateman equations as the studies of Taylor Based Sampling use them: domain, arms and trained networks."""

import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from mindgap.core import generator
from mindgap.data.bateman import bateman, bateman_system
from mindgap.sampling import Box, Draw, Interest, start_points
from mindgap.studies.tbs.shared import CONTROL, keras_mlp, sampled
from mindgap.training.separate_data import Networks, fit_own_data

BATCH = 250
TEST_SEED = 10**6  # no train points come from it
EPSILON, COMPONENTS = 5e-4, 10  # the paper's
PRODUCTION = (0.6, 0.3, 0.1)
REACTION = ((-1.0, 0.0, 0.0), (0.5, -0.5, 0.0), (0.0, 0.3, -0.2))
DERIVATIVE, NEIGHBORS = Interest(epsilon=EPSILON), Interest(kind="neighbors")
DIFFERENCES = Interest(kind="differences", epsilon=EPSILON)

PUBLISHED, DEFAULT, SOBOL = (
    "mixture of 10, as published",
    "exact, ∝ √Df (default)",
    "Sobol, all points",
)
ONE_SPECIES: Mapping[str, tuple[Interest, Draw]] = {
    PUBLISHED: (DERIVATIVE, Draw(density="mixture", temper=1, cap=1, components=COMPONENTS)),
    "mixture of 10, capped": (
        DERIVATIVE,
        Draw(density="mixture", temper=1, cap=0.99, components=COMPONENTS),
    ),
    "mixture of 10, half uniform": (
        DERIVATIVE,
        Draw(density="mixture", temper=1, cap=1, components=COMPONENTS, uniform_share=0.5),
    ),
    "exact, ∝ Df, capped": (DERIVATIVE, Draw(density="exact", temper=1)),
    DEFAULT: (DERIVATIVE, Draw(density="exact")),
    "pool, ∝ Df, capped": (DERIVATIVE, Draw(density="pool", temper=1)),
    "pool, ∝ √Df": (DERIVATIVE, Draw(density="pool")),
    "neighbors, pool": (NEIGHBORS, Draw(density="pool")),
}
THREE_SPECIES: Mapping[str, tuple[Interest, Draw]] = {
    "differences, pool, ∝ √Df": (DIFFERENCES, Draw(density="pool")),
    "neighbors, pool": (NEIGHBORS, Draw(density="pool")),
}


def system(species: int) -> tuple[Callable[[Tensor], Tensor], Box]:
    """The function of one or of three species, and its domain: u₀ and η₀ from 0 to 1, t from 0 to 10."""
    box = Box([0.0] * (species + 2), [1.0] * (species + 1) + [10.0])
    return bateman if species == 1 else _three, box


def arms(species: int) -> list[str]:
    """The names of all arms, the control first."""
    return [CONTROL, SOBOL, *(ONE_SPECIES if species == 1 else THREE_SPECIES)]


def arm_points(arm: str, species: int, size: int, seed: int) -> Tensor:
    """The points of an arm: half of them uniform, the same in all arms but Sobol's, the other half as the arm says."""
    function, box = system(species)
    half = size // 2
    if arm == SOBOL:
        return start_points("sobol", size, box, seed)
    if arm == CONTROL:
        return torch.cat(
            [
                start_points("uniform", half, box, seed),
                box.uniform(size - half, generator(10**4 + seed)),
            ]
        )
    settings = (ONE_SPECIES if species == 1 else THREE_SPECIES)[arm]
    return sampled(function, box, (half, size - half), "uniform", *settings, seed=seed)


def trained(points: Sequence[Tensor], species: int, epochs: int, seed: int) -> Networks:
    """A network of 2 x 32 units an arm, all from the same start of weights and with the same order of batches."""
    function, box = system(species)
    inputs, values = (
        torch.stack([scaled(rows, box) for rows in points]),
        [function(rows) for rows in points],
    )
    model = functools.partial(keras_mlp, species + 2, 32, 32, species + 1)
    return fit_own_data(
        model, inputs, torch.stack(values).float(), [seed] * len(points), epochs=epochs, batch_size=BATCH, checks=4
    )  # fmt: skip


def scaled(points: Tensor, box: Box) -> Tensor:
    """What a network sees: every coordinate from -1 to 1."""
    return (2 * box.to_unit(points) - 1).float()


@functools.lru_cache(maxsize=4)
def probes(species: int, size: int) -> tuple[Tensor, Tensor]:
    """Uniform points, the same for all, and their values."""
    function, box = system(species)
    points = box.uniform(size, generator(TEST_SEED))
    return points, function(points)


def worst_over_time(networks: Networks, cells: int) -> Tensor:
    """g: the largest squared error over 51 times, at the middles of a grid of u₀ and η₀, ``(arms, cells, cells)``."""
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
