"""The Gauss–Newton diagonal layer by layer, without a Jacobian by the weights.

The derivative of a sample's outputs by the weights of a layer is a product of the layer's input and
the derivative by its output. For a linear layer the squares of both factors suffice.
"""

import contextlib
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import Batch
from mindgap.ops.curvature.flat_loss import FlatLoss

Calls = dict[str, list[tuple[Tensor, Tensor]]]


def layers_of(flat: FlatLoss) -> dict[str, nn.Module] | None:
    """Return the linear and convolutional layers that hold all weights, or None if others do.

    Args:
        flat: The loss.

    >>> from mindgap.core.subject import Subject
    >>> data = (torch.ones(2, 1), torch.ones(2, 1))
    >>> list(layers_of(FlatLoss(Subject(nn.Sequential(nn.Linear(1, 1)), "mse", data))))
    ['0']
    """
    names = {name.rpartition(".")[0] for name in flat.named}
    found = {name: module for name, module in flat.model.named_modules() if name in names}
    return found if all(map(_is_known, found.values())) else None


def _is_known(layer: nn.Module) -> bool:
    if type(layer) is nn.Conv2d:
        return (
            layer.groups == 1
            and layer.padding_mode == "zeros"
            and not isinstance(layer.padding, str)
        )
    return type(layer) is nn.Linear


def gauss_newton_sums(
    flat: FlatLoss,
    point: Tensor,
    batch: Batch,
    roots: Callable[[Tensor], Tensor],
    layers: dict[str, nn.Module],
) -> Tensor | None:
    """Sum the diagonals of JᵀSJ over a batch; None if a layer is not called once per sample.

    Args:
        flat: The loss.
        point: The weights, as one flat vector.
        batch: The samples.
        roots: Computes, from the outputs, vectors s_k with Σ s_k s_kᵀ = S for each sample.
        layers: As :func:`layers_of` returns them.
    """
    with torch.enable_grad(), _recorded(layers) as calls:
        outputs = flat.outputs(point.detach().requires_grad_(), batch.inputs)
    if any(len(calls[name]) != 1 for name in layers):
        return None
    inputs, places = zip(*(calls[name][0] for name in layers), strict=True)
    if any(len(place) != len(outputs) for place in places):
        return None
    along = roots(outputs.detach()).transpose(0, 1)
    if not len(along):  # a loss without curvature
        return torch.zeros(len(point), dtype=torch.float64, device=point.device)
    slopes = torch.autograd.grad(
        outputs, places, along, is_grads_batched=True, materialize_grads=True
    )
    parts: dict[str, Tensor] = {}
    for name, given, slope in zip(layers, inputs, slopes, strict=True):
        found = _squares(layers[name], given.detach(), slope)
        if found is None:
            return None
        parts |= {f"{name}.weight".lstrip("."): found[0], f"{name}.bias".lstrip("."): found[1]}
    return torch.cat([parts[name].flatten().double() for name in flat.named])


@contextlib.contextmanager
def _recorded(layers: dict[str, nn.Module]) -> Iterator[Calls]:
    """Record inputs and outputs of all calls of some layers."""
    calls: Calls = {name: [] for name in layers}

    def recorder(name: str) -> object:
        return lambda _, given, output: calls[name].append((given[0], output))

    handles = [
        layer.register_forward_hook(recorder(name))  # type: ignore[arg-type]
        for name, layer in layers.items()
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _squares(layer: nn.Module, given: Tensor, slope: Tensor) -> tuple[Tensor, Tensor] | None:
    """Sum the squared derivatives by weight and bias over roots and samples."""
    if isinstance(layer, nn.Conv2d):
        assert not isinstance(layer.padding, str)
        patches = F.unfold(given, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        lines = slope.flatten(3).transpose(0, 1).flatten(1, 2)  # samples, roots × channels, places
        products = lines @ patches.transpose(1, 2)
        weight = products.unflatten(1, (len(slope), -1)).square().sum((0, 1))
        return weight.view(layer.weight.shape), slope.flatten(3).sum(3).square().sum((0, 1))
    if given.ndim != 2:
        return None
    squares = slope.square().sum(0)
    return squares.T @ given.square(), squares.sum(0)
