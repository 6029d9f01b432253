"""Store: the parameters of all members in one flat tensor, their gradients in another."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mindgap.training.vectorized.problem import Unsupported


class Store:
    """Segments of shape (members, …) that lie one after the other in ``flat`` and in ``gradient``.

    With ``members_last`` a segment lies in memory as (…, members), which is faster where every
    number of a model is an elementwise operation over the members.
    """

    def __init__(
        self,
        members: int,
        shapes: Sequence[tuple[int, ...]],
        like: Tensor,
        *,
        members_last: bool = False,
    ) -> None:
        self.members, self.shapes, self.members_last = members, tuple(shapes), members_last
        size = members * sum(math.prod(shape) for shape in shapes)
        self.flat = torch.zeros(size, dtype=like.dtype, device=like.device)
        self.gradient = torch.zeros_like(self.flat)
        self.segments = self.cut(self.flat)
        self.gradients = self.cut(self.gradient)

    def cut(self, flat: Tensor) -> list[Tensor]:
        """Views of shape (members, …) of a tensor laid out like ``flat``."""
        pieces = flat.split([self.members * math.prod(shape) for shape in self.shapes])
        if self.members_last:
            return [
                p.view(*shape, self.members).movedim(-1, 0)
                for p, shape in zip(pieces, self.shapes, strict=True)
            ]
        return [p.view(self.members, *shape) for p, shape in zip(pieces, self.shapes, strict=True)]

    def spread(self, values: Tensor) -> Tensor:
        """One number per member, repeated for each of its parameters."""
        flat = torch.empty_like(self.flat)
        for segment in self.cut(flat):
            segment.copy_(values.view(-1, *[1] * (segment.ndim - 1)).expand_as(segment))
        return flat

    def gradient_norms(self) -> Tensor:
        """The Euclidean norm of each member's gradient."""
        norms: Tensor = torch.stack(
            [piece.flatten(1).norm(dim=1) for piece in self.gradients]
        ).norm(dim=0)
        return norms


@torch.no_grad()
def load(views: dict[str, Tensor], models: Sequence[nn.Module]) -> None:
    """Copy the models' parameters into views of shape (members, …)."""
    tables = [dict(model.named_parameters()) for model in models]
    if any(
        set(views) - set(table) or table[name].shape != view.shape[1:]
        for table in tables
        for name, view in views.items()
    ):
        raise Unsupported("the models of different seeds differ in shape")
    for name, view in views.items():
        view.copy_(torch.stack([table[name].detach() for table in tables]))


@torch.no_grad()
def unload(views: dict[str, Tensor], member: int, model: nn.Module) -> None:
    """Copy one member's parameters into its model."""
    for name, parameter in model.named_parameters():
        if name in views:
            parameter.copy_(views[name][member])
