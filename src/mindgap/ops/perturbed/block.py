"""The flat buffers of PerturbedOPT: all weights of one kind and device as one long vector.

The passes of PerturbedOPT compiled by numba, where it is installed: one loop for what takes torch a
dozen.

The functions below are plain Python, to be read and tested as such; ``kernels`` compiles them.
"""

import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from mindgap.ops.perturbed.noise import UniformNoise

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
        compiled(squared_distance, fastmath={"contract", "reassoc"}),
        compiled(perturbed, fastmath={"contract"}),
    )


BUFFERS = ("curvature", "gradient", "before", "moved")
Pieces = Mapping[int, Mapping[str, Tensor]]
_inside = (
    torch.ops.aten.hardtanh_backward.grad_input
)  # its first argument where low < second < high, else 0: one pass


class Numbers(NamedTuple):
    """What a step does to all weights alike, in units of ``scale`` = 1/(ln(1 + epoch) √η).

    κ = slope · |w| + floor, 0 where |g| reaches ``limit``; ``forget`` is 1 - β₁.
    """

    slope: float
    floor: float
    limit: float
    forget: float
    scale: float


class PerturbedBlock:
    """Some weights, and what Algorithm 1 knows about them, in buffers of one element per weight.

    ``curvature`` is h, ``gradient`` is g, ``kept`` are the weights of now, ``before`` those one
    step ago and, once the perturbation is drawn, those of now. ``moved`` are the perturbed weights.
    The weights stay the user's own tensors: for a perturbed pass their data point into ``moved``,
    and then again to where they were, so nothing is copied back. A step costs 14 passes over long
    vectors and not as many calls a tensor. ``fresh`` are the members that have not met a gradient
    yet; they are not perturbed.
    """

    def __init__(
        self,
        members: Sequence[int],
        weights: Sequence[Tensor],
        pieces: Pieces,
        seed: int,
        pool: int,
    ) -> None:
        self.members, self.weights = list(members), list(weights)
        self.sizes = [weight.numel() for weight in weights]
        kind = torch.promote_types(weights[0].dtype, torch.float32)
        self.kept, self.before, self.curvature, self.gradient, self.moved = (
            torch.zeros(sum(self.sizes), dtype=kind, device=weights[0].device) for _ in range(5)
        )
        self.kept_views, self.before_views = self._views(self.kept), self._views(self.before)
        self.gradient_views, self.moved_views = self._views(self.gradient), self._views(self.moved)
        self.homes: list[
            tuple[Tensor, Tensor]
        ] = []  # weights that point into ``moved``, and their own data
        self.noise = UniformNoise(sum(self.sizes), seed, pool=pool, like=self.kept)
        self.fresh = {member for member in self.members if member not in pieces}
        for name in BUFFERS:
            for member, part in zip(
                self.members, getattr(self, name).split(self.sizes), strict=True
            ):
                if name in pieces.get(member, {}):
                    part.copy_(pieces[member][name])

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = zip(flat.split(self.sizes), self.weights, strict=True)
        return [part.view(weight.shape) for part, weight in parts]

    def keep(self) -> None:
        """Copy the weights of now."""
        torch._foreach_copy_(self.kept_views, self.weights)

    def squared_move(self) -> float:
        """Squared length of the last step."""
        if self.fresh:
            self._stay(self.before_views)
        return self._squared_move()

    def draw(self, step: int, numbers: Numbers, weight: float) -> None:
        """Enter the last gradient into the curvature and perturb; ``weight`` · |h - g²| is ρ, and may be infinite."""
        self._draw(self.noise(step), numbers, self._finite(weight))
        if self.fresh:
            self._stay(self.moved_views)

    def _finite(self, weight: float) -> float:
        """The weight, or one so large that its product with |h - g²| is just a number: ∞ · 0 is none."""
        most = torch.finfo(self.kept.dtype).max
        if weight <= math.sqrt(most):
            return weight
        change = (
            torch.addcmul(self.curvature, self.gradient, self.gradient, value=-1)
            .abs_()
            .nan_to_num_(0, 0)
            .max()
        )
        return min(weight, most / max(1.0, float(change)))

    def _stay(self, views: list[Tensor]) -> None:
        for member, now, view in zip(self.members, self.kept_views, views, strict=True):
            if member in self.fresh:
                view.copy_(now)

    def age(self) -> None:
        """Call the weights of now old."""
        self.kept, self.before = self.before, self.kept
        self.kept_views, self.before_views = self.before_views, self.kept_views

    def follow(self) -> None:
        """Perturb as was drawn, also if the weights were changed since."""
        if not torch.equal(self.kept, self.before):
            self.moved.add_(self.kept.sub(self.before))
            self.age()

    def push(self) -> None:
        """Move the weights, until ``restore``."""
        for weight, moved in zip(self.weights, self.moved_views, strict=True):
            if weight.dtype is moved.dtype and weight.is_contiguous():
                self.homes.append((weight, weight.data))
                weight.data = moved
                increment_version(
                    weight
                )  # so that a backward pass on the wrong side of the change is refused
            else:
                weight.copy_(moved)

    def restore(self) -> None:
        """Put the weights back, bit for bit."""
        for weight, home in self.homes:
            weight.data = home
            increment_version(weight)
        if len(self.homes) < len(self.weights):
            torch._foreach_copy_(self.weights, self.before_views)
        self.homes = []

    def take_gradients(self) -> None:
        """Copy the gradients; a missing one is zero, a sparse one is filled up."""
        given = [weight.grad for weight in self.weights if weight.grad is not None]
        if len(given) == len(self.weights) and all(
            gradient.layout is torch.strided for gradient in given
        ):
            torch._foreach_copy_(self.gradient_views, given)
        else:
            for view, weight in zip(self.gradient_views, self.weights, strict=True):
                view.copy_(
                    torch.zeros_like(view) if weight.grad is None else weight.grad.to_dense()
                )
        self.fresh.clear()

    def state(self, names: Sequence[str]) -> dict[str, object]:
        """The buffers themselves, not copies, with the members they belong to."""
        return {
            "members": self.members,
            "fresh": sorted(self.fresh),
            **{name: getattr(self, name) for name in names},
        }

    def _squared_move(self) -> float:
        move = torch.sub(self.kept, self.before, out=self.moved)
        return float(move.dot(move))

    def _draw(self, noise: Tensor, numbers: Numbers, weight: float) -> None:
        """With y = h - g² the new curvature is h - (1 - β₁)y, and |h_t - h_{t-1}| = (1 - β₁)|y|."""
        floor = self.before.new_tensor(numbers.floor)
        reach = torch.add(floor, self.before.abs_(), alpha=numbers.slope, out=self.before)
        _inside(reach, self.gradient, -numbers.limit, numbers.limit, grad_input=reach)
        spread = torch.addcmul(
            self.curvature, self.gradient, self.gradient, value=-1, out=self.moved
        )
        self.curvature.add_(spread, alpha=-numbers.forget)
        torch.addcmul(self.curvature, spread.abs_(), reach, value=weight, out=spread)
        torch.minimum(spread.rsqrt_(), reach, out=spread)
        torch.addcmul(self.kept, spread, noise, value=numbers.scale, out=self.moved)


class CompiledBlock(PerturbedBlock):
    """The same with two compiled loops in place of twelve passes."""

    def __init__(self, kernels: Kernels, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kernels = kernels
        self.arrays = [
            flat.numpy()
            for flat in (self.kept, self.before, self.curvature, self.gradient, self.moved)
        ]

    def age(self) -> None:
        """Call the weights of now old."""
        super().age()
        self.arrays[:2] = self.arrays[1], self.arrays[0]

    def _squared_move(self) -> float:
        return self.kernels.squared_distance(*self.arrays[:2])

    def _draw(self, noise: Tensor, numbers: Numbers, weight: float) -> None:
        kind = self.arrays[0].dtype.type
        self.kernels.perturbed(*self.arrays, noise.numpy(), *map(kind, numbers), kind(weight))


def block_of(
    members: Sequence[int], weights: Sequence[Tensor], pieces: Pieces, seed: int, pool: int
) -> PerturbedBlock:
    """The buffers for these weights, compiled where that is faster."""
    found = kernels_for(weights[0].device, sum(weight.numel() for weight in weights))
    whole = (members, weights, pieces, seed, pool)
    return PerturbedBlock(*whole) if found is None else CompiledBlock(found, *whole)
