"""The initial design: where to evaluate a function before anything is known about it."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, implements, integer, validated
from mindgap.ops.rejection import LIMIT, accept
from mindgap.sampling.box import Domain

Design = Literal["grid", "uniform", "sobol", "latin-hypercube"]
DESIGNS: tuple[str, ...] = get_args(Design)


@implements("T1", cites=("novello2020variance",))
@validated
def initial_design(
    kind: Design, count: int, domain: Domain, seed: int = 0, *, limit: int = LIMIT
) -> Tensor:
    r"""Fill a domain with a given number of points, before any value is known.

    Formula: $X_1, …, X_N \in S$

    Reading: The points are spread over the domain S without a look at the function. The sampler can
    only follow what these points have met: a peak between all of them stays unseen. ``"sobol"``
    covers a box more evenly than ``"uniform"`` points.

    Assumes: The domain fills a fair share of its box: outside a box, points of the box are drawn
    until enough lie inside. The grid is then refined, the Sobol sequence continued, and further
    hypercubes are drawn, whose slices no longer hold one point each.

    Args:
        kind: ``"grid"``, ``"uniform"``, ``"sobol"`` or ``"latin-hypercube"``. A grid includes both
            ends of every axis and has the same number of levels on all axes, or one more on the
            first ones; where ``count`` is no such product, the next finer grid is thinned out
            evenly. Uniform points are independent. A scrambled Sobol sequence is at its best when
            ``count`` is a power of 2. A Latin hypercube has one point in each of ``count`` equal
            slices of every axis.
        count: Number of points.
        domain: The domain to fill.
        seed: Seed of the random kinds; a grid ignores it.
        limit: Most points to draw from the box before giving up.

    Returns:
        The points, ``(count, dimension)`` in double precision.

    >>> from mindgap.sampling import Box
    >>> initial_design("grid", 5, Box(-1, 1)).flatten().tolist()
    [-1.0, -0.5, 0.0, 0.5, 1.0]
    """
    choice("kind", kind, DESIGNS)
    integer("count", count, 1)
    integer("limit", limit, 1)
    random = generator(seed)
    if kind == "uniform":
        return domain.uniform(count, random)
    if kind == "grid":
        return _grid(count, domain, max(limit, 10 * count))
    if kind == "sobol":
        return _sobol(count, domain, seed, limit)

    def propose(size: int) -> Tensor:
        return domain.box.from_unit(_latin_hypercube(size, domain.dimension, random))

    return accept(propose, domain.contains, count, limit=limit).points


def _latin_hypercube(count: int, dimension: int, random: torch.Generator) -> Tensor:
    """Draw points of the unit cube, one in each of ``count`` equal slices of every axis.

    >>> points = _latin_hypercube(4, 1, torch.Generator().manual_seed(0))
    >>> (points * 4).floor().flatten().sort().values.tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    noise = torch.rand(2, count, dimension, dtype=torch.float64, generator=random)
    slices = noise[0].argsort(0)
    return (slices + noise[1]) / count


def levels(count: int, dimension: int) -> list[int]:
    """Find the levels per axis of the smallest near-equal grid of at least ``count`` points.

    >>> levels(9, 2), levels(10, 2), levels(13, 2)
    ([3, 3], [4, 3], [4, 4])
    """
    least = round(count ** (1 / dimension))
    least -= least**dimension > count
    found = [least] * dimension
    for axis in range(dimension):
        if math.prod(found) >= count:
            break
        found[axis] += 1
    return found


def lattice(sizes: list[int]) -> Tensor:
    """List the points of a grid in the unit cube, ends included.

    An axis of one level has it in the middle.

    >>> lattice([3, 1]).tolist()
    [[0.0, 0.5], [0.5, 0.5], [1.0, 0.5]]
    """
    size = torch.tensor(sizes)
    stride = math.prod(sizes) // size.cumprod(0)
    level = torch.arange(math.prod(sizes))[:, None] // stride % size
    return torch.where(size > 1, level.double() / (size - 1).clamp_min(1), 0.5)


def _grid(count: int, domain: Domain, limit: int) -> Tensor:
    wanted = count
    while wanted <= limit:
        sizes = levels(wanted, domain.dimension)
        points = domain.box.from_unit(lattice(sizes))
        inside = points[domain.contains(points)]
        if len(inside) >= count:
            return inside[torch.arange(count) * (len(inside) - 1) // max(1, count - 1)]
        # Refine by the share that lay inside; with none inside there is no share to go by.
        wanted = max(
            len(points) + 1, len(points) * count // len(inside) if len(inside) else 2 * len(points)
        )
    raise InputError(
        f"The domain must hold a fair share of its box for a grid, got {len(inside)} of "
        f"{len(points)} points inside where {count} were wanted. Tighten its bounds, raise limit, "
        "or use a 'uniform' initial design."
    )


def _sobol(count: int, domain: Domain, seed: int, limit: int) -> Tensor:
    largest = torch.quasirandom.SobolEngine.MAXDIM
    integer(
        "dimension",
        domain.dimension,
        1,
        largest,
        "what a Sobol sequence is known for",
        "use a 'uniform' initial design",
    )
    engine = torch.quasirandom.SobolEngine(domain.dimension, scramble=True, seed=seed)

    def propose(size: int) -> Tensor:
        return domain.box.from_unit(engine.draw(size, dtype=torch.float64))

    return accept(propose, domain.contains, count, limit=limit).points
