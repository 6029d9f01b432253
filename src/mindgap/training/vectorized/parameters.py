"""Store: the parameters of all members in one flat tensor, and their gradients in another."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mindgap.training.vectorized.problem import Unsupported

Number = float | Tensor  # a tensor has one entry per parameter


class Store:
    """Segments of shape (members, …), one after the other in ``weights`` and in ``gradient``.

    This is the :class:`~mindgap.core.remedy.Stack` that remedies see. An engine lays the segments
    out as it likes, so ``views`` says where each named parameter lies in ``weights``. ``rate`` is
    set before every epoch.

    Args:
        members: How many models are trained at once.
        shapes: The shape of every segment, without the dimension of the members.
        like: A tensor with the precision and device of the weights.
        members_last: Lay a segment out as (…, members) in memory. This is faster where every
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
        self.weights = torch.zeros(size, dtype=like.dtype, device=like.device)
        self.gradient = torch.zeros_like(self.weights)
        self.segments = self.cut(self.weights)
        self.gradients = self.cut(self.gradient)
        self.rate: Number = 0.0
        self.views: dict[str, Tensor] = {}

    def cut(self, flat: Tensor) -> list[Tensor]:
        """View a tensor that is laid out like ``weights`` as segments of shape (members, …)."""
        pieces = flat.split([self.members * math.prod(shape) for shape in self.shapes])
        if self.members_last:
            return [
                p.view(*shape, self.members).movedim(-1, 0)
                for p, shape in zip(pieces, self.shapes, strict=True)
            ]
        return [p.view(self.members, *shape) for p, shape in zip(pieces, self.shapes, strict=True)]

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """View a tensor that is laid out like ``weights`` by parameter name."""
        return {
            name: flat.as_strided(view.shape, view.stride(), view.storage_offset())
            for name, view in self.views.items()
        }

    def spread(self, values: Sequence[float]) -> Number:
        """Repeat one number per member for each of its parameters; one number if all are equal."""
        if len(set(values)) == 1:
            return float(values[0])
        numbers = torch.tensor(values, dtype=torch.float64).to(self.weights)
        flat = torch.empty_like(self.weights)
        for segment in self.cut(flat):
            segment.copy_(numbers.view(-1, *[1] * (segment.ndim - 1)).expand_as(segment))
        return flat


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
