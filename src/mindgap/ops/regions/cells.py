"""Intervals and convex polygons that are cut by many lines at once.

A function that is affine on a cell is known by its values at the anchors 0 and 1 of a line, or (0, 0),
(1, 0) and (0, 1) of a plane: its value elsewhere is their mean with barycentric weights. So all cells
of a layer are one tensor of shape (cells, anchors, units).
"""

from typing import Protocol

import torch
from torch import Tensor

NEAR = 1e-11  # distance, in units of the anchors, below which a point lies on a line
ROUNDING = 1e-13  # of the largest value at the anchors: what rounding leaves of zero
_ENTRIES = 2**22  # of a block of units that are looked at together


class Cells(Protocol):
    """The cells of a line or a plane."""

    anchors: int

    def __len__(self) -> int:
        """The number of cells."""

    def cut(self, values: Tensor) -> Tensor:
        """Cut cells where affine functions are zero; return the old cell of every new one.

        Args:
            values: At the anchors, of shape (cells, anchors, functions).
        """

    def largest(self, values: Tensor, candidates: Tensor) -> Tensor:
        """Cut cells where the largest of some functions changes; return the old cells.

        Args:
            values: At the anchors, of shape (cells, anchors, maxima, functions).
            candidates: Which functions take part in a maximum, of shape (maxima, functions).
        """

    def centers(self) -> Tensor:
        """Return barycentric weights of a point inside every cell, of shape (cells, anchors)."""


class Polygons:
    """Convex polygons in a plane, as one padded tensor of corners.

    Args:
        corners: The corners of one polygon in order, of shape (corners, 2).

    >>> cells = Polygons(torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=torch.double))
    >>> diagonal = torch.tensor([[[0.0], [1.0], [-1.0]]], dtype=torch.double)
    >>> cells.cut(diagonal).tolist(), cells.counts.tolist()
    ([0, 0], [3, 3])
    """

    anchors = 3

    def __init__(self, corners: Tensor) -> None:
        self.corners, self.counts = corners[None].double(), torch.tensor([len(corners)])

    def __len__(self) -> int:
        return len(self.corners)

    def cut(self, values: Tensor) -> Tensor:
        """Cut along the zero lines, one function after the other, all cells at once."""
        origin = torch.arange(len(self))
        crossed = self._crossed(values)
        for function in crossed.any(0).nonzero().flatten().tolist():
            rows = crossed[origin, function].nonzero().flatten()
            heights = self._heights(rows, values[origin[rows], :, function])
            both = (heights > 0).any(1) & (heights < 0).any(1)
            rows, heights = rows[both], heights[both]
            if len(rows):
                upper, lower = self._clipped(rows, heights), self._clipped(rows, -heights)
                self._replace(rows, upper, lower)
                origin = torch.cat([origin, origin[rows]])
        return origin

    def largest(self, values: Tensor, candidates: Tensor) -> Tensor:
        """Clip a copy of a cell for every function to where that function is the largest."""
        origin = torch.arange(len(self))
        for place in range(values.shape[2]):
            some = candidates[place].nonzero().flatten()
            mine = values[origin, :, place][:, :, some]  # (cells, anchors, functions)
            first = torch.einsum("ka,kaf->kf", self.centers(), mine).argmax(1)
            ahead = mine.gather(2, first[:, None, None].expand(-1, mine.shape[1], 1)) - mine
            rows = self._below(ahead).nonzero().flatten()
            if len(rows):
                origin = self._split_at_ties(rows, mine[rows], origin)
        return origin

    def centers(self) -> Tensor:
        """Return the means of the corners."""
        mask = self._mask()[..., None]
        middle = (self.corners * mask).sum(1) / self.counts[:, None]
        return _weights(middle)

    def areas(self) -> Tensor:
        """Return the area of every polygon."""
        following = self._following(self.corners)
        cross = self.corners[..., 0] * following[..., 1] - self.corners[..., 1] * following[..., 0]
        areas: Tensor = (cross * self._mask()).sum(1).abs() / 2
        return areas

    def _mask(self) -> Tensor:
        return torch.arange(self.corners.shape[1]) < self.counts[:, None]

    def _following(self, values: Tensor) -> Tensor:
        """Return what belongs to the next corner, in a circle."""
        index = (torch.arange(values.shape[1]) + 1).expand(len(values), -1)
        index = torch.where(index < self.counts[: len(values), None], index, 0)
        shape = (*index.shape, *[1] * (values.ndim - 2))
        return values.gather(1, index.view(shape).expand_as(values))

    def _heights(self, rows: Tensor, values: Tensor) -> Tensor:
        """Return functions at the corners, exactly zero near their zero line and at padding."""
        heights = torch.einsum("kva,ka->kv", _weights(self.corners[rows]), values)
        near = heights.abs() <= _tolerance(values)[:, None]
        return heights.masked_fill(near | ~self._mask()[rows], 0.0)

    def _crossed(self, values: Tensor) -> Tensor:
        """Tell which functions change their sign in which cells."""
        weights = _weights(self.corners) * self._mask()[..., None]
        size = max(1, _ENTRIES // (weights.shape[0] * weights.shape[1]))
        found = []
        for part in values.split(size, dim=2):
            heights, near = weights @ part, _tolerance(part)
            found.append((heights.amax(1) > near) & (heights.amin(1) < -near))
        return torch.cat(found, 1)

    def _below(self, ahead: Tensor) -> Tensor:
        """Tell in which cells one of several functions falls below zero somewhere."""
        heights = (_weights(self.corners) * self._mask()[..., None]) @ ahead
        return (heights.amin(1) < -_tolerance(ahead)).any(1)

    def _split_at_ties(self, rows: Tensor, values: Tensor, origin: Tensor) -> Tensor:
        kept = torch.ones(len(self), dtype=torch.bool)
        kept[rows] = False
        parts, sources = [self._taken(kept.nonzero().flatten())], [origin[kept]]
        for winner in range(values.shape[2]):
            part, alive = self._taken(rows), torch.arange(len(rows))
            for other in range(values.shape[2]):
                if other == winner or not len(alive):
                    continue
                ahead = values[alive, :, winner] - values[alive, :, other]
                heights = part._heights(torch.arange(len(part)), ahead)
                # Functions that are equal on a cell have one winner, the first.
                equal = (heights == 0).all(1)
                inside = (heights > 0).any(1) | (equal & (winner < other))
                some = inside.nonzero().flatten()
                clipped = part._clipped(some, heights[some])
                part, alive = _made(*clipped), alive[some]
            parts.append(part)
            sources.append(origin[rows[alive]])
        joined = _joined(parts)
        self.corners, self.counts = joined.corners, joined.counts
        return torch.cat(sources)

    def _taken(self, rows: Tensor) -> "Polygons":
        return _made(self.corners[rows], self.counts[rows])

    def _clipped(self, rows: Tensor, heights: Tensor) -> tuple[Tensor, Tensor]:
        """Keep of polygons what lies where the heights at their corners are not negative."""
        own = self._taken(rows)
        corners, mask = own.corners, own._mask()
        after, beyond = own._following(heights), own._following(corners)
        crossing = mask & (heights * after < 0)
        share = torch.where(crossing, heights / (heights - after), 0.0)
        meeting = corners + share[..., None] * (beyond - corners)
        both = torch.stack([corners, meeting], 2).flatten(1, 2)
        keep = torch.stack([mask & (heights >= 0), crossing], 2).flatten(1)
        counts = keep.sum(1)
        most = int(counts.max()) if len(counts) else 1
        order = (~keep).to(torch.int8).argsort(dim=1, stable=True)[:, :most]
        return both.gather(1, order[..., None].expand(-1, -1, 2)), counts

    def _replace(
        self, rows: Tensor, upper: tuple[Tensor, Tensor], lower: tuple[Tensor, Tensor]
    ) -> None:
        """Put one part of cut cells into their place and append the other."""
        width = max(self.corners.shape[1], upper[0].shape[1], lower[0].shape[1])
        self.corners = _padded(self.corners, width)
        self.corners[rows], self.counts[rows] = _padded(upper[0], width), upper[1]
        self.corners = torch.cat([self.corners, _padded(lower[0], width)])
        self.counts = torch.cat([self.counts, lower[1]])


class Intervals:
    """Intervals of a line, in order.

    Args:
        low: Where the first one begins.
        high: Where the last one ends.

    >>> cells = Intervals(0.0, 1.0)
    >>> cells.cut(torch.tensor([[[-1.0, -1.0], [1.0, 3.0]]], dtype=torch.double)).tolist()
    [0, 0, 0]
    >>> cells.ends.tolist()
    [0.0, 0.25, 0.5, 1.0]
    """

    anchors = 2

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        self.ends = torch.tensor([low, high], dtype=torch.double)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def cut(self, values: Tensor) -> Tensor:
        """Cut at all zeros at once."""
        start, slope = values[:, 0], values[:, 1] - values[:, 0]
        return self._cut_at(torch.where(slope == 0, torch.inf, -start / slope))

    def largest(self, values: Tensor, candidates: Tensor) -> Tensor:
        """Cut where two of the functions meet and no other is larger."""
        gone = torch.where(candidates, 0.0, -torch.inf).double()
        origin = torch.arange(len(self))
        for one in range(values.shape[3]):
            for other in range(one):
                mine = values[origin]
                gap = mine[..., one] - mine[..., other]  # (cells, anchors, maxima)
                start, slope = gap[:, 0], gap[:, 1] - gap[:, 0]
                at = torch.where(slope == 0, torch.inf, -start / slope)
                seen = torch.where(at.isfinite(), at, 0.0)[..., None]
                heights = mine[:, 0] + seen * (mine[:, 1] - mine[:, 0]) + gone
                size = mine.abs().amax((1, 3)) * ROUNDING
                top = heights[..., one] >= heights.amax(2) - size
                both = candidates[:, one] & candidates[:, other]
                origin = origin[self._cut_at(torch.where(top & both, at, torch.inf))]
        return origin

    def centers(self) -> Tensor:
        """Return the middles."""
        middle = (self.ends[1:] + self.ends[:-1]) / 2
        return torch.stack([1 - middle, middle], 1)

    def _cut_at(self, places: Tensor) -> Tensor:
        """Cut every cell at its own places, of shape (cells, places); others are ignored."""
        low, high = self.ends[:-1, None], self.ends[1:, None]
        inside = (places > low + NEAR) & (places < high - NEAR)
        # Cells are in order, so that sorting all places keeps each in its cell.
        added = places[inside].sort().values
        if len(added):
            apart = torch.cat([torch.tensor([True]), added.diff() > NEAR])
            before = self.ends
            self.ends = torch.cat([before, added[apart]]).sort().values
            middle = (self.ends[1:] + self.ends[:-1]) / 2
            return (torch.searchsorted(before, middle) - 1).clamp(0, len(before) - 2)
        return torch.arange(len(self))


def _weights(points: Tensor) -> Tensor:
    """Return barycentric weights of points of a plane: of (0, 0), (1, 0) and (0, 1)."""
    return torch.cat([1 - points.sum(-1, keepdim=True), points], -1)


def _tolerance(values: Tensor) -> Tensor:
    """Return the height of a function close to its zero line; the anchors are in dimension 1."""
    steep = (values[:, 1:] - values[:, :1]).square().sum(1).sqrt()
    return NEAR * steep + ROUNDING * values.abs().amax(1)


def _made(corners: Tensor, counts: Tensor) -> Polygons:
    made = object.__new__(Polygons)
    made.corners, made.counts = corners, counts
    return made


def _joined(parts: list[Polygons]) -> Polygons:
    width = max(part.corners.shape[1] for part in parts)
    corners = torch.cat([_padded(part.corners, width) for part in parts])
    return _made(corners, torch.cat([part.counts for part in parts]))


def _padded(corners: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(corners, (0, 0, 0, width - corners.shape[1]))
