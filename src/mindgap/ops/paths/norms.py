"""Norms of path weights by dynamic programming, in logarithms where products overflow."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from mindgap.core import implements
from mindgap.ops.paths.chain import Chain, Pool, Rectifier, Weights

# Turns the weights of an edge in two networks into one number, such as their product.
_Edge = Callable[[Tensor, Tensor], Tensor]


@implements("K4", cites=("kawaguchi2017generalization",))
def log_path_norms(chain: Chain, power: float) -> Tensor:
    r"""Compute the logarithm of the sum of |w|^p over all paths to each output.

    Formula: $a_l = |W_l|^p a_{l-1} + |b_l|^p, \quad a_0 = 1, \quad \sum_{path} |w_{path,k}|^p =
    (a_L)_k$

    Reading: With p = 1 it is $\ln \lVert w_k \rVert_1$, with p = 2 $\ln \lVert w_k \rVert_2^2$, with
    p = 0 the logarithm of the number of paths.

    Assumes: A chain of layers.

    Args:
        chain: The network.
        power: p.

    >>> from mindgap.nets import MLP
    >>> from mindgap.ops.paths.chain import read_chain
    >>> chain = read_chain(MLP((2, 3, 1)), (2,))
    >>> round(float(log_path_norms(chain, 0).exp()))  # 2 · 3 from inputs, 3 + 1 from biases
    10
    """
    sums, log_scale = _path_sums(chain, chain, lambda one, _: one.abs() ** power)
    return sums.log() + log_scale


def path_distance(one: Chain, other: Chain) -> float:
    r"""Compute the distance of two networks' weights in path space, over all outputs.

    Args:
        one: A network.
        other: A network with the same layers.

    >>> from mindgap.nets import MLP
    >>> from mindgap.ops.paths.chain import read_chain
    >>> chain = read_chain(MLP((2, 3, 1)), (2,))
    >>> path_distance(chain, chain)
    0.0
    """
    pairs = ((one, one), (other, other), (one, other))
    found = [_path_sums(left, right, torch.mul) for left, right in pairs]
    own, others, both = (float(sums.sum()) * math.exp(scale) for sums, scale in found)
    # What is below the rounding error of the three terms could be any smaller number.
    rounding = 64 * torch.finfo(torch.double).eps * (own + others)
    square = own + others - 2 * both
    return math.sqrt(square) if square > rounding else 0.0


def _path_sums(one: Chain, other: Chain, edge: _Edge) -> tuple[Tensor, float]:
    """Add up over all paths the products of a number per edge; return sums and their log scale."""
    sums, log_scale = torch.ones(1, *one.shape, dtype=torch.double), 0.0
    for step, twin in zip(one.steps, other.steps, strict=True):
        if isinstance(step, Rectifier):
            continue
        if isinstance(step, Pool):
            weight = torch.tensor(step.weight, dtype=torch.double)
            sums = step.summed(sums, float(edge(weight, weight)))
        else:
            assert isinstance(twin, Weights)
            sums = _through(step, edge(step.weight, twin.weight), sums)
            if step.bias is not None and twin.bias is not None:
                sums = sums + edge(step.bias, twin.bias)[:, None, None] * math.exp(-log_scale)
        largest = float(sums.abs().max()) or 1.0
        sums, log_scale = sums / largest, log_scale + math.log(largest)
    return sums.flatten(), log_scale


def _through(step: Weights, weight: Tensor, sums: Tensor) -> Tensor:
    if step.window is None:
        return functional.linear(sums.flatten(1), weight)[..., None, None]
    own = step.window
    return functional.conv2d(sums, weight, None, own.stride, own.padding, own.dilation)
