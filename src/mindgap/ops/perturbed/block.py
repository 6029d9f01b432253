"""The flat buffers of PerturbedOPT: all weights of one dtype and device as one long vector.

If numba is installed, two compiled loops replace a dozen passes of torch. The loops are plain
Python at the end of this file, to be read and tested as such.
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

SMALLEST = 50_000  # weights; with fewer, the second that compiling takes does not pay off
MOST_THREADS = 4  # torch runs its passes on all its threads, a compiled loop runs on one
_RUN = 4096  # numbers summed in their own precision; these sums are then summed in double
BUFFERS = ("curvature", "gradient", "before", "moved")
Pieces = Mapping[int, Mapping[str, Tensor]]
# One pass: its first argument where low < second argument < high, and 0 elsewhere.
_inside = torch.ops.aten.hardtanh_backward.grad_input


def block_of(
    members: Sequence[int], weights: Sequence[Tensor], pieces: Pieces, seed: int, pool: int
) -> "PerturbedBlock":
    """Create the buffers for some weights, compiled if that is faster.

    Args:
        members: Numbers of the weights among all that are trained.
        weights: The weights, of one dtype and device.
        pieces: Known buffers of some members.
        seed: Seed of the noise.
        pool: Size of the pool of noise.
    """
    found = kernels_for(weights[0].device, sum(weight.numel() for weight in weights))
    whole = (members, weights, pieces, seed, pool)
    return PerturbedBlock(*whole) if found is None else CompiledBlock(found, *whole)


class Numbers(NamedTuple):
    """The constants of a step, in units of ``scale`` = 1/(ln(1 + epoch) √η).

    κ is slope · |w| + floor, and 0 where |g| is at least ``limit``. ``forget`` is 1 - β₁.
    """

    slope: float
    floor: float
    limit: float
    forget: float
    scale: float


class PerturbedBlock:
    """Some weights and their state in Algorithm 1, in buffers of one element per weight.

    The weights stay the user's own tensors. For a perturbed pass their data point into ``moved``,
    and afterwards to their own memory again, so nothing is copied back. A step costs 14 passes over
    long vectors instead of 14 calls per tensor.

    Attributes:
        curvature: h.
        gradient: g.
        kept: The current weights.
        before: The weights one step ago; once the perturbation is drawn, the current ones.
        moved: The perturbed weights.
        fresh: Members that have had no gradient yet; they are not perturbed.
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
        ] = []  # weights that point into moved; their own data
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
        """Copy the current weights."""
        torch._foreach_copy_(self.kept_views, self.weights)

    def squared_move(self) -> float:
        """Compute the squared length of the last step."""
        if self.fresh:
            self._stay(self.before_views)
        return self._squared_move()

    def draw(self, step: int, numbers: Numbers, weight: float) -> None:
        """Update the curvature by the last gradient and draw a perturbation.

        Args:
            step: Number of the step, which selects the noise.
            numbers: Constants of the step.
            weight: Factor of |h - g²| in ρ; may be infinite.
        """
        self._draw(self.noise(step), numbers, self._finite(weight))
        if self.fresh:
            self._stay(self.moved_views)

    def _finite(self, weight: float) -> float:
        """Replace an infinite weight by one whose product with |h - g²| is finite: ∞ · 0 is NaN."""
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
        """Make the current weights the old ones."""
        self.kept, self.before = self.before, self.kept
        self.kept_views, self.before_views = self.before_views, self.kept_views

    def follow(self) -> None:
        """Apply the drawn perturbation to the current weights if they changed since the draw."""
        if not torch.equal(self.kept, self.before):
            self.moved.add_(self.kept.sub(self.before))
            self.age()

    def push(self) -> None:
        """Move the weights, until ``restore``."""
        for weight, moved in zip(self.weights, self.moved_views, strict=True):
            if weight.dtype is moved.dtype and weight.is_contiguous():
                self.homes.append((weight, weight.data))
                weight.data = moved
                # Assigning .data bypasses autograd's check. With a new version, a backward pass
                # through a graph from before the change is refused instead of silently wrong.
                increment_version(weight)
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
        """Copy the gradients; a missing one is zero, a sparse one is made dense."""
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
        """Return the buffers themselves, not copies, with the members they belong to."""
        return {
            "members": self.members,
            "fresh": sorted(self.fresh),
            **{name: getattr(self, name) for name in names},
        }

    def _squared_move(self) -> float:
        move = torch.sub(self.kept, self.before, out=self.moved)
        return float(move.dot(move))

    def _draw(self, noise: Tensor, numbers: Numbers, weight: float) -> None:
        # With y = h - g² the new curvature is h - (1 - β₁)y, and |h_t - h_{t-1}| = (1 - β₁)|y|.
        floor = self.before.new_tensor(numbers.floor)
        reach = torch.add(floor, self.before.abs_(), alpha=numbers.slope, out=self.before)
        _inside(reach, self.gradient, -numbers.limit, numbers.limit, grad_input=reach)
        spread = torch.addcmul(
            self.curvature, self.gradient, self.gradient, value=-1, out=self.moved
        )
        self.curvature.add_(spread, alpha=-numbers.forget)
        torch.addcmul(self.curvature, spread.abs_(), reach, value=weight, out=spread)
        torch.pow(spread, -0.5, out=spread)  # the same bits as rsqrt, in half of its time
        torch.minimum(spread, reach, out=spread)
        torch.addcmul(self.kept, spread, noise, value=numbers.scale, out=self.moved)


class CompiledBlock(PerturbedBlock):
    """The same block with two compiled loops in place of twelve passes."""

    def __init__(self, kernels: "_Kernels", *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kernels = kernels
        self.arrays = [
            flat.numpy()
            for flat in (self.kept, self.before, self.curvature, self.gradient, self.moved)
        ]

    def age(self) -> None:
        """Make the current weights the old ones."""
        super().age()
        self.arrays[:2] = self.arrays[1], self.arrays[0]

    def _squared_move(self) -> float:
        return self.kernels.squared_distance(*self.arrays[:2])

    def _draw(self, noise: Tensor, numbers: Numbers, weight: float) -> None:
        kind = self.arrays[0].dtype.type
        self.kernels.perturbed(*self.arrays, noise.numpy(), *map(kind, numbers), kind(weight))


class _Kernels(NamedTuple):
    """The compiled loops."""

    squared_distance: Callable[..., float]
    perturbed: Callable[..., None]


def kernels_for(device: torch.device, count: int) -> _Kernels | None:
    """Return the compiled loops if they exist and are faster than torch for so many weights."""
    fit = device.type == "cpu" and count >= SMALLEST and torch.get_num_threads() <= MOST_THREADS
    return _kernels() if fit else None


@functools.cache
def _kernels() -> _Kernels | None:
    try:
        numba = importlib.import_module("numba")
    except ImportError:
        return None
    compiled = functools.partial(numba.njit, error_model="numpy", nogil=True)
    return _Kernels(
        compiled(squared_distance, fastmath={"contract", "reassoc"}),
        compiled(perturbed, fastmath={"contract"}),
    )


def squared_distance(now: Any, before: Any) -> float:
    """Compute ‖now - before‖².

    >>> squared_distance(np.array([1.0, 2.0]), np.array([1.0, 5.0]))
    9.0
    """
    total = 0.0
    for start in range(0, now.size, _RUN):
        # Slices from zero: a loop from ``start`` is not compiled to vector instructions.
        ours, theirs = now[start : start + _RUN], before[start : start + _RUN]
        part = now.dtype.type(0)
        for i in range(ours.size):
            move = ours[i] - theirs[i]
            part += move * move
        total += part
    return float(total)


def perturbed(
    now: Any, before: Any, curvature: Any, gradient: Any, moved: Any, noise: Any,
    slope: Any, floor: Any, limit: Any, forget: Any, scale: Any, weight: Any,
) -> None:  # fmt: skip
    """Update the curvature by the gradient and write the perturbed weights, in one loop."""
    zero, one = now.dtype.type(0), now.dtype.type(1)
    for i in range(now.size):
        change = curvature[i] - gradient[i] * gradient[i]
        curved = curvature[i] - forget * change
        curvature[i] = curved
        past = gradient[i] <= -limit or gradient[i] >= limit
        reach = zero if past else floor + slope * abs(before[i])
        spread = one / np.sqrt(curved + weight * abs(change) * reach)
        # Not np.minimum: a comparison with NaN is false, so a NaN stays, as in torch.minimum.
        spread = reach if reach < spread else spread
        moved[i] = now[i] + scale * spread * noise[i]
