"""Draw until enough points lie inside: exact draws from what a set leaves of a distribution."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mindgap.core import InputError

Contains = Callable[[Tensor], Any]
LIMIT = 2_000_000
BATCH = 2**18


class Accepted(NamedTuple):
    """The points inside, in the order they were drawn, and how many of the draws lay inside."""

    points: Tensor
    hits: int
    proposed: int

    @property
    def acceptance(self) -> float:
        """The share of the draws that lay inside."""
        return self.hits / self.proposed


def accept(
    propose: Callable[[int], Tensor],
    contains: Contains,
    count: int,
    *,
    limit: int = LIMIT,
    advice: str = "",
) -> Accepted:
    """Ask ``propose`` for batches of points until ``count`` of them lie inside.

    The first batch has ``count`` points; later ones are as large as the acceptance so far asks for.
    After ``limit`` draws, or ten times ``count`` if that is more, it is given up.

    >>> generator = torch.Generator().manual_seed(0)
    >>> found = accept(
    ...     lambda size: torch.rand(size, 1, generator=generator), lambda x: x[:, 0] < 0.5, 1000
    ... )
    >>> len(found.points), round(found.acceptance, 1)
    (1000, 0.5)
    """
    kept: list[Tensor] = []
    hits, proposed, size, limit = 0, 0, count, max(limit, 10 * count)
    while hits < count:
        if proposed >= limit:
            raise InputError(
                f"The domain must hold a fair share of what is drawn, got {hits} of {proposed} "
                "points inside "
                f"(acceptance {hits / proposed:.2g}) where {count} were wanted. "
                f"{advice or 'Tighten its bounds.'}"
            )
        points = propose(min(size, limit - proposed))
        inside = points[mask(contains, points)]
        kept.append(inside)
        hits, proposed = hits + len(inside), proposed + len(points)
        size = next_size(count - hits, hits / proposed, proposed)
    return Accepted(torch.cat(kept)[:count], hits, proposed)


def mask(contains: Contains, points: Tensor) -> Tensor:
    """The answer of a ``contains`` function, which must be one truth value a point."""
    inside = torch.as_tensor(contains(points))
    if inside.dtype != torch.bool or inside.shape != (len(points),):
        raise InputError(
            f"contains(points) must return {len(points)} truth values, one a point, got "
            f"{inside.dtype} of shape "
            f"{tuple(inside.shape)}. Compare along the rows, as in (points ** 2).sum(1) < 1."
        )
    return inside


def next_size(missing: int, acceptance: float, proposed: int) -> int:
    """How many to draw next: a tenth more than the acceptance asks for, or twice as many as before if none hit.

    >>> next_size(100, 0.5, 1000), next_size(100, 0.0, 1000)
    (221, 2000)
    """
    wanted = 2 * proposed if acceptance == 0 else math.ceil(1.1 * missing / acceptance)
    return max(1, min(wanted, BATCH))
