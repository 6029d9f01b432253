"""The passes of PerturbedOPT compiled by numba, where it is installed: one loop for what takes torch a dozen.

The functions below are plain Python, to be read and tested as such; ``kernels`` compiles them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

SMALLEST = 50_000  # weights; with fewer, the second that compiling takes is not earned back
MOST_THREADS = 4  # torch runs its passes on all its threads, a compiled loop runs on one
_RUN = 4096  # numbers that are summed in their own precision, before the sums are summed in double


def squared_distance(now: Any, before: Any) -> float:
    """‖now - before‖².

    >>> squared_distance(np.array([1.0, 2.0]), np.array([1.0, 5.0]))
    9.0
    """
    total = 0.0
    for start in range(0, now.size, _RUN):
        part = now.dtype.type(0)
        for i in range(start, min(start + _RUN, now.size)):
            move = now[i] - before[i]
            part += move * move
        total += part
    return float(total)


def perturbed(
    now: Any, before: Any, curvature: Any, gradient: Any, moved: Any, noise: Any,
    slope: Any, floor: Any, limit: Any, forget: Any, scale: Any, weight: Any,
) -> None:  # fmt: skip
    """Enter the gradient into the curvature and write the perturbed weights, as ``PerturbedBlock`` does by passes."""
    zero, one = now.dtype.type(0), now.dtype.type(1)
    for i in range(now.size):
        change = curvature[i] - gradient[i] * gradient[i]
        curved = curvature[i] - forget * change
        curvature[i] = curved
        past = gradient[i] <= -limit or gradient[i] >= limit
        reach = zero if past else floor + slope * abs(before[i])
        spread = one / np.sqrt(curved + weight * abs(change) * reach)
        spread = reach if reach < spread else spread  # what is not a number stays so
        moved[i] = now[i] + scale * spread * noise[i]


class Kernels(NamedTuple):
    """The functions above, compiled."""

    squared_distance: Callable[..., float]
    perturbed: Callable[..., None]


def kernels_for(device: torch.device, count: int) -> Kernels | None:
    """The compiled loops where they can be had, and beat torch, for so many weights."""
    fit = device.type == "cpu" and count >= SMALLEST and torch.get_num_threads() <= MOST_THREADS
    return _kernels() if fit else None


@functools.cache
def _kernels() -> Kernels | None:
    try:
        numba = importlib.import_module("numba")
    except ImportError:
        return None
    compiled = functools.partial(numba.njit, error_model="numpy", nogil=True)
    return Kernels(
        compiled(squared_distance, fastmath={"contract", "reassoc"}), compiled(perturbed, fastmath={"contract"})
    )
