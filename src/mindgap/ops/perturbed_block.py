"""The flat buffers of PerturbedOPT: all weights of one kind and device as one long vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mindgap.ops.uniform_noise import UniformNoise

BUFFERS = ("curvature", "gradient", "before", "spread")
Pieces = Mapping[int, Mapping[str, Tensor]]
_inside = torch.ops.aten.hardtanh_backward.grad_input  # its first argument where low < second < high, else 0: one pass


class PerturbedBlock:
    """Some weights, and what Algorithm 1 knows about them, in buffers of one element a weight.

    ``curvature`` is h, ``gradient`` is g, ``before`` are the weights one step ago, ``kept`` those of now, ``spread``
    is the perturbation u divided by a number. The weights stay the user's own tensors: they are copied to the buffers
    and back by view, so that a step costs 17 passes over long vectors and not as many calls a tensor. A pass costs by
    the vectors that it touches, so most of them write where they read. ``fresh`` are the members that have not met a
    gradient yet; they are not perturbed.
    """

    def __init__(self, members: Sequence[int], weights: Sequence[Tensor], pieces: Pieces, seed: int, pool: int) -> None:
        self.members, self.weights = list(members), list(weights)
        self.sizes = [weight.numel() for weight in weights]
        kind = torch.promote_types(weights[0].dtype, torch.float32)
        self.kept, self.before, self.curvature, self.gradient, self.spread, self.reach = (
            torch.zeros(sum(self.sizes), dtype=kind, device=weights[0].device) for _ in range(6)
        )
        self.floor = torch.zeros((), dtype=kind, device=weights[0].device)
        self.kept_views, self.before_views = self._views(self.kept), self._views(self.before)
        self.gradient_views, self.spread_views = self._views(self.gradient), self._views(self.spread)
        self.noise = UniformNoise(sum(self.sizes), seed, pool=pool, like=self.kept)
        self.fresh = {member for member in self.members if member not in pieces}
        for name in BUFFERS:
            for member, part in zip(self.members, getattr(self, name).split(self.sizes), strict=True):
                if name in pieces.get(member, {}):
                    part.copy_(pieces[member][name])

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = zip(flat.split(self.sizes), self.weights, strict=True)
        return [part.view(weight.shape) for part, weight in parts]

    def keep(self) -> None:
        """Copy the weights of now."""
        torch._foreach_copy_(self.kept_views, self.weights)

    def squared_move(self, *, slope: float, floor: float, limit: float) -> float:
        """Squared length of the last step; the weights before it become the reach κ of this one, 0 past the limit."""
        if self.fresh:
            for member, now, old in zip(self.members, self.kept_views, self.before_views, strict=True):
                if member in self.fresh:
                    old.copy_(now)
        torch.abs(self.before, out=self.reach)
        torch.add(self.floor.fill_(floor), self.reach, alpha=slope, out=self.reach)
        _inside(self.reach, self.gradient, -limit, limit, grad_input=self.reach)
        self.before.sub_(self.kept)
        return float(self.before.dot(self.before))

    def draw(self, step: int, *, forget: float, weight: float) -> None:
        """Enter the last gradient into the curvature and draw the perturbation, in units of 1/(ln(1 + epoch) √η).

        With y = h - g² the new curvature is h - (1 - β₁)y, and |h_t - h_{t-1}| = (1 - β₁)|y|.
        """
        spread = torch.addcmul(self.curvature, self.gradient, self.gradient, value=-1, out=self.spread)
        self.curvature.add_(spread, alpha=-forget)
        torch.addcmul(self.curvature, spread.abs_(), self.reach, value=weight, out=spread)
        torch.minimum(spread.rsqrt_(), self.reach, out=spread)
        spread.mul_(self.noise(step))
        if self.fresh:
            for member, view in zip(self.members, self.spread_views, strict=True):
                if member in self.fresh:
                    view.zero_()

    def push(self, scale: float) -> None:
        """Add the perturbation to the weights in place."""
        torch._foreach_add_(self.weights, self.spread_views, alpha=scale)

    def restore(self) -> None:
        """Put the kept weights back, bit for bit."""
        torch._foreach_copy_(self.weights, self.kept_views)

    def take_gradients(self) -> None:
        """Copy the gradients (a missing one is zero, a sparse one is filled up) and call the weights of now old."""
        given = [weight.grad for weight in self.weights if weight.grad is not None]
        if len(given) == len(self.weights) and all(gradient.layout is torch.strided for gradient in given):
            torch._foreach_copy_(self.gradient_views, given)
        else:
            for view, weight in zip(self.gradient_views, self.weights, strict=True):
                view.copy_(torch.zeros_like(view) if weight.grad is None else weight.grad.to_dense())
        self.kept, self.before = self.before, self.kept
        self.kept_views, self.before_views = self.before_views, self.kept_views
        self.fresh.clear()

    def state(self, names: Sequence[str]) -> dict[str, object]:
        """The buffers themselves, not copies, with the members they belong to."""
        return {"members": self.members, "fresh": sorted(self.fresh), **{name: getattr(self, name) for name in names}}
