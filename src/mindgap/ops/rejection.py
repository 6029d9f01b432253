"""Rejection sampling: exact draws from a distribution truncated to a set."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mindgap.core import InputError

Contains = Callable[[Tensor], Any]
LIMIT = 2_000_000  # proposals
BATCH = 2**18  # most proposals at once


class Accepted(NamedTuple):
    """Accepted points.

    Attributes:
        points: The points, in the order in which they were drawn.
        hits: Number of proposals inside the set.
        proposed: Number of proposals.
    """

    points: Tensor
    hits: int
    proposed: int

    @property
    def acceptance(self) -> float:
        """The share of the proposals inside the set."""
        return self.hits / self.proposed


def accept(
    propose: Callable[[int], Tensor],
    contains: Contains,
    count: int,
    *,
    limit: int = LIMIT,
    advice: str = "",
) -> Accepted:
    """Draw batches of proposals until ``count`` of them are inside a set.

    The first batch has ``count`` points. Later ones are sized by the acceptance rate so far.

    Args:
        propose: Returns so many proposals, one row each.
        contains: Maps points to truth values.
        count: Number of points to accept.
        limit: Proposals after which an error is raised, at least ten times ``count``.
        advice: What the error tells the user to do.

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
                f"The domain must contain a fair share of the proposals, got {hits} of {proposed} "
                f"points inside (acceptance {hits / proposed:.2g}) where {count} were wanted. "
                f"{advice or 'Tighten its bounds.'}"
            )
        points = propose(min(size, limit - proposed))
        inside = points[mask(contains, points)]
        kept.append(inside)
        hits, proposed = hits + len(inside), proposed + len(points)
        size = _next_size(count - hits, hits / proposed, proposed)
    return Accepted(torch.cat(kept)[:count], hits, proposed)


def mask(contains: Contains, points: Tensor) -> Tensor:
    """Evaluate a ``contains`` function, which must return one truth value per point.

    Args:
        contains: The function.
        points: One row per point.

    >>> mask(lambda points: points[:, 0] > 0, torch.tensor([[1.0], [-1.0]]))
    tensor([ True, False])
    """
    inside = torch.as_tensor(contains(points))
    if inside.dtype != torch.bool or inside.shape != (len(points),):
        raise InputError(
            f"contains(points) must return {len(points)} truth values, one per point, got "
            f"{inside.dtype} of shape {tuple(inside.shape)}. Compare along the rows, as in (points "
            "** 2).sum(1) < 1."
        )
    return inside


def _next_size(missing: int, acceptance: float, proposed: int) -> int:
    """Size the next batch: a tenth more than needed, or double if none was accepted.

    >>> _next_size(100, 0.5, 1000), _next_size(100, 0.0, 1000)
    (221, 2000)
    """
    wanted = 2 * proposed if acceptance == 0 else math.ceil(1.1 * missing / acceptance)
    return max(1, min(wanted, BATCH))
