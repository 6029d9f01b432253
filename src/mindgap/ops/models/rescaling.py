"""Dinh's rescaling of ReLU networks: different weights, the same function."""

import copy
from collections import Counter
from itertools import pairwise

import torch
from torch import nn

from mindgap.core import InputError, implements, integer
from mindgap.ops.models.sequence import in_sequence, is_sequence

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
HOMOGENEOUS = (
    nn.ReLU, nn.LeakyReLU, nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d,
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
)  # f(αx) = αf(x) for every α > 0  # fmt: skip


@implements("P8", cites=("dinh2017sharp",))
def rescaled(model: nn.Module, factor: float, *, layer: int = 0) -> nn.Module:
    r"""Copy a model with one layer ``factor`` times larger and the next as much smaller.

    Formula: $W_{l+1} \mathrm{ReLU}(W_l x) = \frac{W_{l+1}}{\alpha} \mathrm{ReLU}(\alpha W_l x)$

    Reading: The function stays the same up to rounding, but the Hessian's spectrum changes without
    limit. A measure of sharpness that follows it says nothing about generalization.

    Assumes: Between the two layers there are only modules that commute with a positive factor
    (ReLU, pooling, dropout …).

    Args:
        model: The model, which is, or holds, an ``nn.Sequential``.
        factor: α, above 0.
        layer: Index of the first of the two layers, among the pairs that can be rescaled.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> other = rescaled(model, 8.0)
    >>> x = torch.ones(1, 2)
    >>> torch.equal(model(x), other(x)), bool((other[0].weight == 8 * model[0].weight).all())
    (True, True)
    """
    if not 0 < factor < float("inf"):
        raise InputError(f"factor must be a finite number above 0, got {factor}. Pass, say, 10.")
    other = copy.deepcopy(model)
    pairs = _rescalable(other)
    if not pairs:
        raise InputError(
            "Rescaling needs two layers with ReLU or pooling between them in a chain of modules, "
            "got none. Pass a model that is, or holds, an nn.Sequential of them."
        )
    first, second = pairs[integer("layer", layer, 0, len(pairs) - 1, "the last pair of layers")]
    with torch.no_grad():
        for part in first.parameters(recurse=False):
            part.mul_(factor)
        second.weight.div_(factor)  # type: ignore[operator]
    return other


def _rescalable(model: nn.Module) -> list[tuple[nn.Module, nn.Module]]:
    """Find consecutive layers with only positively homogeneous modules between them."""
    found, chains = [], _chains(model)
    # A weight that is used elsewhere too would be rescaled there as well.
    uses = Counter(id(part.weight) for row in chains for part in row if isinstance(part, LAYERS))
    for chain in chains:
        layers = [number for number, module in enumerate(chain) if isinstance(module, LAYERS)]
        for left, right in pairwise(layers):
            between = chain[left + 1 : right]
            alone = uses[id(chain[left].weight)] == uses[id(chain[right].weight)] == 1
            if alone and all(isinstance(module, HOMOGENEOUS) for module in between):
                found.append((chain[left], chain[right]))
    return found


def _chains(model: nn.Module) -> list[list[nn.Module]]:
    """Find modules that are called one after the other; only nn.Sequential promises that."""
    if is_sequence(model):
        return _sequences(in_sequence(model))
    return [chain for child in model.children() for chain in _chains(child)]


def _sequences(chain: list[nn.Module]) -> list[list[nn.Module]]:
    inner = [
        found
        for module in chain
        if not isinstance(module, (*LAYERS, *HOMOGENEOUS))
        for found in _chains(module)
    ]
    return [chain, *inner]
