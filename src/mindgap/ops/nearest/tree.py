"""Exact neighbours in few dimensions by a k-d tree, with the same certificate and the same ties."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import torch
from torch import Tensor

from mindgap.core.errors import require
from mindgap.ops.nearest.exact import exact_blocks
from mindgap.ops.nearest.near import Near, kept, kth_square
from mindgap.ops.nearest.points import UNIT, Points

TRIES = 3


def installed() -> bool:
    """Whether there is a package that plants trees."""
    return importlib.util.find_spec("scipy") is not None


def tree_blocks(points: Points, rows: Tensor, k: int, memory: int) -> Iterator[Near]:
    """The neighbours of ``rows``; a row whose ties run beyond its candidates asks for more, then goes elsewhere."""
    place = points.centered(points.rows).numpy()
    tree = require("scipy.spatial", "neighbors").cKDTree(place)
    wide = min(k + max(4, k // 4), len(points))
    for _ in range(TRIES):
        left, size = [rows[:0]], max(1, memory // (16 * wide * points.rows.shape[1]))
        for block in rows.split(size) if len(rows) else ():
            distance, index = tree.query(place[block.numpy()], k=range(1, wide + 1))
            found, rest = _certified(points, block, torch.from_numpy(distance), torch.from_numpy(index), k)
            yield found
            left.append(rest)
        rows, wide = torch.cat(left), min(4 * wide, len(points))
    if len(rows):
        yield from exact_blocks(points, rows, k, memory)


def _certified(points: Points, rows: Tensor, distance: Tensor, index: Tensor, k: int) -> tuple[Near, Tensor]:
    square = points.squares(rows, index)
    kth = kth_square(points, index, square, k)
    rounded = 8 * UNIT * points.reach
    nearest_left_out = distance[:, -1] * (1 - (len(points.center) + 8) * UNIT) - rounded
    sure = nearest_left_out > (kth + points.ties(kth)).sqrt() * (1 + 4 * UNIT)
    if index.shape[1] == len(points):
        sure[:] = True
    return kept(points, rows[sure], index[sure], square[sure], kth[sure]), rows[~sure]
