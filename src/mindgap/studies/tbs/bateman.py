"""The Bateman equations in the studies of TBS: domain, arms and trained networks."""

import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from mindgap.core import generator
from mindgap.data.bateman import bateman, bateman_system
from mindgap.sampling import Acquisition, Box, Proposal, initial_design
from mindgap.studies.tbs.shared import CONTROL, keras_mlp, sampled
from mindgap.training.separate_data import Networks, fit_own_data

BATCH = 250
TEST_SEED = 10**6  # never a seed of training points
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
        model, inputs, torch.stack(values).float(), [seed] * len(points), epochs=epochs, batch_size=BATCH, checks=4
    )  # fmt: skip


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
