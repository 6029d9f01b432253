"""A sequence of layers whose constructor takes sizes, not layers."""

from __future__ import annotations

from typing import Any

from torch import nn


class Stack(nn.Sequential):
    """``nn.Sequential`` for subclasses: a slice of one is a plain ``nn.Sequential``.

    ``nn.Sequential`` would call the subclass's constructor with layers, which ours do not take.
    """

    def __getitem__(self, idx: slice | int) -> Any:
        """Return a layer, or a plain sequence of layers that shares its parameters with this one."""
        if isinstance(idx, slice):
            return nn.Sequential(*list(self)[idx])
        return super().__getitem__(idx)
