"""Where to evaluate a function first: points that fill a domain."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, integer
from mindgap.ops.rejection import LIMIT, accept
from mindgap.sampling.domain import Domain

Start = Literal["grid", "uniform", "sobol", "latin-hypercube"]
STARTS: tuple[str, ...] = get_args(Start)


def start_points(
    kind: Start, count: int, domain: Domain, seed: int = 0, *, limit: int = LIMIT
) -> Tensor:
    """Exactly ``count`` points inside the domain, ``(count, dimension)`` in double precision.

    ``"grid"`` A full grid, both ends of every axis included, the same number of levels on all axes
        or one more on the first ones. In one dimension this is ``linspace``. Where ``count`` is no
        such product of levels, the next finer grid is thinned out evenly to ``count`` points;
        ``seed`` plays no part.
    ``"uniform"``
        Independent points.
    ``"sobol"`` A scrambled Sobol sequence, which fills a box more evenly. It is at its best when
        ``count`` is a power of 2.
    ``"latin-hypercube"``
        On every axis one point in each of ``count`` equal slices, at random inside its slice.

    In a domain that is no box, points of its box are drawn until enough lie inside: the grid is
    refined, the sequence goes on, further hypercubes are drawn (their slices then no longer hold
    one point each).

    >>> from mindgap.sampling.domain import Box
    >>> start_points("grid", 5, Box(-1, 1)).flatten().tolist()
    [-1.0, -0.5, 0.0, 0.5, 1.0]
    """
    choice("kind", kind, STARTS)
    integer("count", count, 1), integer("limit", limit, 1)
    random = generator(seed)
    if kind == "uniform":
        return domain.uniform(count, random)
    if kind == "grid":
        return _grid(count, domain, max(limit, 10 * count))
    if kind == "sobol":
        return _sobol(count, domain, seed, limit)
    propose = lambda size: domain.box.from_unit(latin_hypercube(size, domain.dimension, random))  # noqa: E731
    return accept(propose, domain.contains, count, limit=limit).points


def latin_hypercube(count: int, dimension: int, random: torch.Generator) -> Tensor:
    """Points of the unit cube, one in each of ``count`` equal slices of every axis.

    >>> (
    ...     latin_hypercube(4, 1, torch.Generator().manual_seed(0)) * 4
    ... ).floor().flatten().sort().values.tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    noise = torch.rand(2, count, dimension, dtype=torch.float64, generator=random)
    slices = noise[0].argsort(0)
    return (slices + noise[1]) / count


def levels(count: int, dimension: int) -> list[int]:
    """How many levels each axis of the smallest near-equal grid of at least ``count`` points has.

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
    """The points of a grid in the unit cube, ends included; an axis of one level has it in the middle.

    >>> lattice([3, 1]).tolist()
    [[0.0, 0.5], [0.5, 0.5], [1.0, 0.5]]
    """
    size = torch.tensor(sizes)
    stride = math.prod(sizes) // size.cumprod(0)
    place = torch.arange(math.prod(sizes))[:, None] // stride % size
    return torch.where(size > 1, place.double() / (size - 1).clamp_min(1), 0.5)


def _grid(count: int, domain: Domain, limit: int) -> Tensor:
    wanted = count
    while wanted <= limit:
        sizes = levels(wanted, domain.dimension)
        points = domain.box.from_unit(lattice(sizes))
        inside = points[domain.contains(points)]
        if len(inside) >= count:
            return inside[torch.arange(count) * (len(inside) - 1) // max(1, count - 1)]
        wanted = max(
            len(points) + 1, len(points) * count // len(inside) if len(inside) else 2 * len(points)
        )
    raise InputError(
        f"The domain must hold a fair share of its box for a grid, got {len(inside)} of "
        f"{len(points)} points inside "
        f"where {count} were wanted. Tighten its bounds, raise limit, or start with 'uniform' "
        "points."
    )


def _sobol(count: int, domain: Domain, seed: int, limit: int) -> Tensor:
    largest = torch.quasirandom.SobolEngine.MAXDIM
    integer(
        "dimension",
        domain.dimension,
        1,
        largest,
        "what a Sobol sequence is known for",
        "start with 'uniform'",
    )
    engine = torch.quasirandom.SobolEngine(domain.dimension, scramble=True, seed=seed)
    propose = lambda size: domain.box.from_unit(engine.draw(size, dtype=torch.float64))  # noqa: E731
    return accept(propose, domain.contains, count, limit=limit).points
