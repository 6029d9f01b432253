"""A penalty on the distance of every layer from an orthogonal map."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Remedy, TrainingState, option
from mindgap.ops.norms.weighted import CONVOLUTIONS, TRANSPOSED

_CONVOLVE: tuple[Any, ...] = (nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d)


class OrthogonalRegularization(Remedy):
    r"""Pulls dense layers and convolutions towards orthogonal maps, whose singular values are one.

    Formula: $\nabla_w \left( L + \lambda \sum_l \lVert A_l A_l^\top - I \rVert_F^2 \right)$

    Reading: Orthogonal layers neither stretch nor shrink what passes through them, so that slopes
    and gradients keep their size over depth. A is the whole linear map. Of a convolution, the kernel
    is correlated with itself at all shifts that two outputs can have: the rows of the map itself, the
    border aside, and not of the kernel written as a matrix. Columns instead of rows give the same
    gradient. Zero turns it off.

    Assumes: Linear layers and convolutions of any geometry; all others are left alone.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> _ = layer.weight.data.copy_(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    >>> distance_from_orthogonal(layer).item()
    9.0
    """

    method = ("S5",)
    cites = ("cisse2017parseval", "wang2020orthogonal")
    strength = "factor"
    treats = frozenset({"adversarial inputs", "noise sensitivity"})
    cost = 1.3

    factor: float = option(1e-3, help="factor λ of the squared distance; 0 is off", low=0)

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        """Add the penalty's gradient to the one that the closure leaves."""
        loss, layers = closure(), _layers(state.model)
        with torch.enable_grad():
            total = torch.stack([distance_from_orthogonal(layer) for layer in layers]).sum()
            weights = [layer.weight for layer in layers]
            slopes = torch.autograd.grad(self.factor * total, weights)
        for weight, slope in zip(weights, slopes, strict=True):
            if weight.grad is not None:  # a layer that this step does not train stays as it is
                weight.grad.add_(slope)
        return loss


def distance_from_orthogonal(layer: Any) -> Tensor:
    """Compute ‖AAᵀ − I‖² for one output position of a layer, with its graph.

    Args:
        layer: A dense layer, a convolution or a transposed one.
    """
    weight: Tensor = layer.weight
    if isinstance(layer, nn.Linear):
        rows = weight if len(weight) <= weight.shape[1] else weight.T
        return (rows @ rows.T - torch.eye(len(rows)).to(rows)).square().sum()
    # Outputs are s places apart, kernel entries d: they meet every s / gcd(s, d) entries.
    pairs = zip(layer.stride, layer.dilation, strict=True)
    steps = [stride // math.gcd(stride, dilation) for stride, dilation in pairs]
    reach = [
        step * ((size - 1) // step) for step, size in zip(steps, weight.shape[2:], strict=True)
    ]
    convolve = _CONVOLVE[weight.ndim - 3]
    # A transposed convolution is the adjoint of one with the same kernel.
    return torch.stack(
        [_off_center(convolve(part, part, stride=tuple(steps), padding=tuple(reach)))
         for part in weight.chunk(layer.groups)]
    ).sum()  # fmt: skip


def _off_center(gram: Tensor) -> Tensor:
    """Sum the squares after subtracting the identity at shift zero."""
    wanted = torch.zeros_like(gram)
    middle = tuple(size // 2 for size in gram.shape[2:])
    wanted.permute(*range(2, gram.ndim), 0, 1)[middle] = torch.eye(len(gram)).to(gram)
    return (gram - wanted).square().sum()


def _layers(model: nn.Module) -> list[Any]:
    kinds = (nn.Linear, *CONVOLUTIONS, *TRANSPOSED)
    found = [one for one in model.modules() if isinstance(one, kinds) and one.weight.requires_grad]
    if not found:
        raise InputError(
            "Orthogonal regularization must have a linear layer or a convolution, got none in "
            f"{type(model).__name__}. Leave the remedy out."
        )
    return found
