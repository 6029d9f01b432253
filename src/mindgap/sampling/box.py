"""Domain, the set inside which a function is evaluated, and its simplest form: a box."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError, integer, validated
from mindgap.ops.mixture.points import as_numbers, as_rows


class Domain(ABC):
    """A bounded, closed set of points.

    >>> from mindgap.sampling import Box, Product, Simplex
    >>> domain = Product((Box(0, 1), Simplex(3)))
    >>> isinstance(domain, Domain), domain.dimension
    (True, 4)
    """

    @property
    @abstractmethod
    def box(self) -> "Box":
        """The smallest known box around it."""

    @abstractmethod
    def contains(self, points: Any) -> Tensor:
        """Tell which points lie inside.

        Args:
            points: One row per point.

        Returns:
            One truth value per point.
        """

    @abstractmethod
    def uniform(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw independent points from the uniform distribution.

        Args:
            count: Number of points.
            generator: Source of randomness.

        Returns:
            The points, ``(count, dimension)`` in double precision.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Describe the domain as plain data, which ``from_dict`` reads back."""

    @property
    def dimension(self) -> int:
        """Number of coordinates of a point."""
        return self.box.dimension

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest value of every coordinate."""
        return self.box.ends

    @property
    def volume(self) -> float | None:
        """Its volume, or None where it is not known."""
        return None


@validated
@dataclasses.dataclass(frozen=True)
class Box(Domain):
    """All points between two corners, coordinate by coordinate.

    Args:
        low: Lowest value of every coordinate; a number means one coordinate.
        high: Highest value of every coordinate.

    >>> Box([-1, 0], [1, 10]).contains([[0.5, 3], [2, 3]])
    tensor([ True, False])
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __init__(
        self, low: Sequence[float] | float | Tensor, high: Sequence[float] | float | Tensor
    ) -> None:
        object.__setattr__(self, "low", _corner(low, "low"))
        object.__setattr__(self, "high", _corner(high, "high"))
        if len(self.low) != len(self.high):
            raise InputError(
                f"low and high must be equally long, got {len(self.low)} and {len(self.high)}. "
                "Pass one number per coordinate."
            )
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise InputError(
                f"low must be below high, got {list(self.low)} and {list(self.high)}. Exchange "
                "them."
            )

    @classmethod
    def unit(cls, dimension: int) -> "Box":
        """Make the unit cube.

        Args:
            dimension: Number of coordinates.

        >>> Box.unit(2)
        Box(low=(0.0, 0.0), high=(1.0, 1.0))
        """
        return cls([0.0] * integer("dimension", dimension), [1.0] * dimension)

    @property
    def box(self) -> "Box":
        return self

    @property
    def dimension(self) -> int:
        return len(self.low)

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Both corners as tensors."""
        return torch.tensor(self.low, dtype=torch.float64), torch.tensor(
            self.high, dtype=torch.float64
        )

    @property
    def volume(self) -> float:
        return math.prod(high - low for low, high in zip(self.low, self.high, strict=True))

    def contains(self, points: Any) -> Tensor:
        rows, (low, high) = as_rows(points, dimension=self.dimension), self.ends
        return ((rows >= low) & (rows <= high)).all(1)

    def uniform(self, count: int, generator: torch.Generator) -> Tensor:
        return self.from_unit(
            torch.rand(
                integer("count", count), self.dimension, dtype=torch.float64, generator=generator
            )
        )

    def to_unit(self, points: Any) -> Tensor:
        """Map points of the box to coordinates from 0 to 1.

        >>> Box(-1, 3).to_unit([[-1.0], [1.0], [3.0]]).tolist()
        [[0.0], [0.5], [1.0]]
        """
        low, high = self.ends
        return (as_rows(points, dimension=self.dimension) - low) / (high - low)

    def from_unit(self, points: Any) -> Tensor:
        """Map coordinates from 0 to 1 to points of the box; 0 and 1 give its ends exactly."""
        low, high = self.ends
        rows = as_rows(points, dimension=self.dimension)
        return torch.lerp(low.expand_as(rows), high.expand_as(rows), rows)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "box", "low": list(self.low), "high": list(self.high)}


def _corner(values: Sequence[float] | float | Tensor, name: str) -> tuple[float, ...]:
    corner = as_numbers(values, name).reshape(-1)
    if len(corner) == 0 or not bool(corner.isfinite().all()):
        raise InputError(
            f"{name} must be one finite number per coordinate, got {values!r}. Bound every "
            "coordinate."
        )
    return tuple(corner.tolist())
