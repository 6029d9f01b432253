"""Equal rows made one, in an order that depends on the rows alone and not on the order they came in."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mindgap.ops.nearest.ragged import starts

BLOCK = 8192


@dataclasses.dataclass(frozen=True)
class Distinct:
    """The distinct rows of a table; row ``u`` came from the ``member[start[u]:start[u + 1]]`` of the table."""

    rows: Tensor
    member: Tensor
    start: Tensor

    @property
    def owner(self) -> Tensor:
        """The distinct row of every row of the table."""
        owner = torch.empty_like(self.member)
        owner[self.member] = torch.repeat_interleave(torch.arange(len(self.rows)), self.start.diff())
        return owner


def distinct(table: Tensor, labels: Tensor | None = None, on_disk: bool = False) -> Distinct:
    """The distinct rows in the order of their hashes; equal rows in the order of their labels' hashes.

    Every later sum then runs in the same order however the table was shuffled, so that its bits agree too.
    """
    keys = hashes(table)
    minor = torch.arange(len(table)) if labels is None else hashes(labels.reshape(len(table), -1))
    order = torch.from_numpy(np.lexsort((minor.numpy(), keys.numpy())))
    fresh = torch.ones(len(table), dtype=torch.bool)
    same = (keys[order][1:] == keys[order][:-1]).nonzero()[:, 0]
    fresh[same + 1] = (table[order[same + 1]] != table[order[same]]).any(1)
    first = fresh.nonzero()[:, 0]
    return Distinct(_taken(table, order[first], on_disk), order, starts(_lengths(first, len(table))))


def hashes(table: Tensor) -> Tensor:
    """A 64-bit hash of each row's numbers; 0.0 and -0.0 are one number."""
    odd = torch.randint(-(2**62), 2**62, (table.shape[1],), generator=torch.Generator().manual_seed(0)) * 2 + 1
    return torch.cat([_mixed(block, odd) for block in table.split(BLOCK)])


def _mixed(block: Tensor, odd: Tensor) -> Tensor:
    bits = (block.double() + 0.0).view(torch.int64) * odd  # wraps around, which is what a hash wants
    bits = (bits ^ (bits >> 32)) * odd.flip(0)
    return (bits ^ (bits >> 29)).sum(1)


def _lengths(first: Tensor, total: int) -> Tensor:
    return torch.cat([first, first.new_tensor([total])]).diff()


def _taken(table: Tensor, order: Tensor, on_disk: bool) -> Tensor:
    if not on_disk:
        return table[order]
    copy = disk_table(len(order), table.shape[1], table.dtype)
    for place, index in zip(range(0, len(order), BLOCK), order.split(BLOCK), strict=True):
        copy[place : place + len(index)] = table[index]
    return copy


def disk_table(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """A table in a nameless temporary file, which vanishes with the last tensor that looks at it."""
    with tempfile.TemporaryDirectory(prefix="mindgap-") as folder:
        kind = np.dtype("float32" if dtype == torch.float32 else "float64")
        mapped = np.memmap(Path(folder) / "rows", dtype=kind, mode="w+", shape=(rows, columns))
        return torch.from_numpy(mapped)
