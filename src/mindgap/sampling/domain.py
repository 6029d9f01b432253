"""Domains to sample: boxes, simplices, their products, and the points that obey a rule."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError, choice, integer, number, validated
from mindgap.ops.mixture.points import as_rows
from mindgap.ops.rejection import LIMIT, Accepted, Contains, accept, mask
from mindgap.sampling.box import Box, Domain

__all__ = ["Box", "Domain", "Product", "Simplex", "Where", "from_dict"]

ROUNDING = 1e-12


@validated
@dataclasses.dataclass(frozen=True)
class Simplex(Domain):
    """Parts of a whole: coordinates of at least 0 that sum to at most ``total``.

    The remainder to ``total`` is one further part, so n fractions that sum to one are a simplex of
    dimension n - 1. In n coordinates they would be a set without volume, which no draw from a
    density ever hits.

    Args:
        size: Number of coordinates, one less than there are parts.
        total: Sum of all parts.

    >>> Simplex(2).contains([[0.2, 0.3], [0.7, 0.7]])
    tensor([ True, False])
    """

    size: int
    total: float = 1.0

    def __post_init__(self) -> None:
        integer("size", self.size, 1)
        if not number("total", self.total) > 0:
            raise InputError(
                f"total must be a number above 0, got {self.total}. Use 1 for fractions."
            )

    @property
    def box(self) -> Box:
        return Box([0.0] * self.size, [self.total] * self.size)

    @property
    def volume(self) -> float:
        return math.exp(self.size * math.log(self.total) - math.lgamma(self.size + 1))

    def contains(self, points: Any) -> Tensor:
        rows = as_rows(points, dimension=self.size)
        return (rows >= 0).all(1) & (rows.sum(1) <= self.total * (1 + ROUNDING))

    def uniform(self, count: int, generator: torch.Generator) -> Tensor:
        """Divide exponential waiting times by their sum: the shares are uniform on the simplex."""
        times = torch.empty(integer("count", count), self.size + 1, dtype=torch.float64)
        times.exponential_(generator=generator)
        return self.total * (times / times.sum(1, keepdim=True))[:, :-1]

    def parts(self, points: Any) -> Tensor:
        """Add the last part to every point, so that each row sums to ``total``.

        >>> Simplex(2).parts([[0.25, 0.5]]).tolist()
        [[0.25, 0.5, 0.25]]
        """
        rows = as_rows(points, dimension=self.size)
        return torch.cat([rows, (self.total - rows.sum(1, keepdim=True)).clamp_min(0)], dim=1)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "simplex", "size": self.size, "total": self.total}


@validated
@dataclasses.dataclass(frozen=True)
class Product(Domain):
    """The Cartesian product of domains: first the coordinates of the first one, and so on.

    Args:
        factors: The domains.

    >>> heat_and_mixture = Product((Box(0, 10), Simplex(2)))
    >>> heat_and_mixture.contains([[7.0, 0.2, 0.3], [7.0, 0.9, 0.3]])
    tensor([ True, False])
    """

    factors: tuple[Domain, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", tuple(self.factors))
        if not self.factors or not all(isinstance(factor, Domain) for factor in self.factors):
            raise InputError(
                f"factors must be one domain or more, got {self.factors!r}. Pass for instance "
                "Box(0, 1)."
            )

    @property
    def box(self) -> Box:
        low, high = zip(*(factor.bounds for factor in self.factors), strict=True)
        return Box(torch.cat(low), torch.cat(high))

    @property
    def volume(self) -> float | None:
        known = [factor.volume for factor in self.factors]
        return None if None in known else math.prod(volume or 0.0 for volume in known)

    def contains(self, points: Any) -> Tensor:
        sizes = [factor.dimension for factor in self.factors]
        columns = as_rows(points, dimension=sum(sizes)).split(sizes, dim=1)
        inside = [
            factor.contains(column) for factor, column in zip(self.factors, columns, strict=True)
        ]
        return torch.stack(inside).all(0)

    def uniform(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.cat([factor.uniform(count, generator) for factor in self.factors], dim=1)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "product", "factors": [factor.to_dict() for factor in self.factors]}


@validated
@dataclasses.dataclass(frozen=True)
class Where(Domain):
    """The points of a domain that obey a rule.

    Args:
        inside: The domain to draw from.
        rule: Takes points as a double-precision tensor, one row per point, and returns one truth
            value per point.
        limit: Most points to draw from ``inside`` before too few that obey the rule are an error.

    >>> ring = Where(Box([-1, -1], [1, 1]), lambda points: (points**2).sum(1) > 0.5)
    >>> ring.contains([[0.0, 0.0], [0.9, 0.9]])
    tensor([False,  True])
    """

    inside: Domain
    rule: Contains
    limit: int = LIMIT

    def __post_init__(self) -> None:
        integer("limit", self.limit)

    @property
    def box(self) -> Box:
        return self.inside.box

    def contains(self, points: Any) -> Tensor:
        rows = as_rows(points, dimension=self.dimension)
        result = self.inside.contains(rows)
        # Outside the domain a rule need not make sense, so it never sees those points.
        result[result.clone()] = mask(self.rule, rows[result])
        return result

    def uniform(self, count: int, generator: torch.Generator) -> Tensor:
        return self.accepted(count, generator).points

    def accepted(self, count: int, generator: torch.Generator) -> Accepted:
        """Draw uniform points and count the draws, whose accepted share estimates the volume."""
        advice = "Tighten the bounds around the rule, or raise limit."
        integer("count", count)
        return accept(
            lambda size: self.inside.uniform(size, generator),
            self.rule,
            count,
            limit=self.limit,
            advice=advice,
        )

    def to_dict(self) -> dict[str, Any]:
        """Refuse: code does not belong into a file of data."""
        raise InputError(
            "A domain must be a Box, a Simplex or a Product of these to be saved, got one with a "
            "rule in Python. Pass the domain again when you load."
        )


def from_dict(description: Mapping[str, Any]) -> Domain:
    """Rebuild the domain that ``to_dict`` described.

    Args:
        description: What ``to_dict`` returned.

    >>> from_dict(Box(0, 1).to_dict()) == Box(0, 1)
    True
    """
    fields = dict(description)
    kind = choice("kind", str(fields.pop("kind", None)), ("box", "simplex", "product"))
    try:
        if kind == "product":
            return Product(tuple(from_dict(factor) for factor in fields.pop("factors")))
        return Box(**fields) if kind == "box" else Simplex(**fields)
    except (TypeError, KeyError) as error:
        raise InputError(
            f"A {kind} must be described by the fields that to_dict writes, got "
            f"{', '.join(fields) or 'none'}. Save it again."
        ) from error
