"""Inner products ⟨z(x), z(x')⟩ in path space, without listing a path."""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import implements
from mindgap.ops.paths.chain import Chain, Pool, Rectifier, Weights

NUMBERS = 2**24  # inner products that are in memory at once
CACHED = 2**20  # the same, at places of images, which pass many small steps


@dataclasses.dataclass(frozen=True)
class Gram:
    """Inner products, divided by exp(log_scale): the numbers of paths overflow in deep networks."""

    matrix: Tensor
    log_scale: float


# Products of the units of two groups of samples, channels summed: all pairs, or each with itself.
_Product = Callable[[Tensor, Tensor], Tensor]


@implements("K4", cites=("kawaguchi2017generalization",))
def gram(chain: Chain, inputs: Tensor) -> Gram:
    r"""Compute the inner products of all pairs of samples in path space.

    Formula: $K \leftarrow (K + 1) \cdot \langle \sigma_l(x), \sigma_l(x') \rangle, \quad K_0 =
    \langle x, x' \rangle, \quad \langle z(x), z(x') \rangle = K_L + 1$

    Reading: All units of a layer see the same incoming paths, so a product over layers replaces the
    sum over paths. The ones are there for layers with a bias. Behind a convolution, K is kept for
    each place of the image.

    Assumes: A chain of layers; no two of its channels may see different paths, as they do behind a
    grouped convolution or a residual connection.

    Args:
        chain: The network.
        inputs: The samples.

    >>> from mindgap.nets import MLP
    >>> from mindgap.ops.paths.chain import read_chain
    >>> chain = read_chain(MLP((1, 3, 1)), (1,))
    >>> found = gram(chain, torch.tensor([[1.0], [2.0]]))
    >>> found.matrix.shape
    torch.Size([2, 2])
    """
    count = len(inputs)
    places = most_places(chain)
    size = max(1, (NUMBERS if places == 1 else CACHED) // (places * max(count, 1)))
    _, gates = chain.run(inputs)
    whole = _features(chain, inputs, gates, slice(None))
    parts = [
        _inner(chain, _features(chain, inputs, gates, slice(k, k + size)), whole, _all_pairs)
        for k in range(0, count, size)
    ]
    return Gram(torch.cat([part.matrix for part in parts]), parts[0].log_scale)


def squared_norms(chain: Chain, inputs: Tensor) -> Gram:
    """Compute ‖z(x)‖² of every sample.

    >>> from mindgap.nets import MLP
    >>> from mindgap.ops.paths.chain import read_chain
    >>> chain = read_chain(MLP((2, 3), bias=False), (2,))
    >>> found = squared_norms(chain, torch.tensor([[3.0, 4.0]]))
    >>> round(float(found.matrix * math.exp(found.log_scale)), 12)
    25.0
    """
    _, gates = chain.run(inputs)
    own = _features(chain, inputs, gates, slice(None))
    found = _inner(chain, own, own, lambda one, other: (one * other).sum(-1, keepdim=True))
    return Gram(found.matrix.flatten(), found.log_scale)


def most_places(chain: Chain) -> int:
    """Return the largest number of places, times places in a pooling window, of any step."""
    units, most, window = torch.zeros(1, *chain.shape, dtype=torch.double), 1, 1
    for step in chain.steps:
        if isinstance(step, Rectifier):
            continue
        window = 1 if isinstance(step, Weights) else window * math.prod(step.window.size)
        units = step(units)
        most = max(most, window * units.shape[2] * units.shape[3])
    return most


def _features(
    chain: Chain, inputs: Tensor, gates: list[Tensor | None], rows: slice
) -> tuple[Tensor, list[Tensor | None]]:
    """Return inputs and gates of some samples, with samples and channels as last dimensions."""
    moved = [
        gate if gate is None else gate[..., rows, :, :, :].movedim((-4, -3), (-2, -1))
        for gate in gates
    ]
    units, first = chain.shaped(inputs[rows]), chain.steps[0]
    if isinstance(first, Weights) and first.window is None:
        units = units.flatten(1)[..., None, None]  # no place of an image is left to tell apart
    return units.permute(2, 3, 0, 1), moved


def _all_pairs(one: Tensor, other: Tensor) -> Tensor:
    return (one @ other.transpose(-1, -2)).double()


def _inner(
    chain: Chain,
    left: tuple[Tensor, list[Tensor | None]],
    right: tuple[Tensor, list[Tensor | None]],
    product: _Product,
) -> Gram:
    """Carry inner products from step to step.

    ``inner`` holds, for each place in pooling windows, row and column, the products of the paths
    that arrive at any one channel; ``one`` and ``other`` what the channels make of it: the inputs
    themselves at first, later the gates since the last layer.
    """
    one, other = left[0][None], right[0][None]
    inner, log_scale = torch.ones(*one.shape[:3], 1, 1, dtype=torch.double), 0.0
    for step, own, others in zip(chain.steps, left[1], right[1], strict=True):
        if isinstance(step, Weights):
            fan_in = one.shape[-1] * _seen(step, one)
            log_scale += math.log(fan_in)
            inner = _arriving(step, inner * product(one, other)) / fan_in
            if step.bias is not None:
                inner = inner + math.exp(-log_scale)
            one, other = (_open(inner, len(step.weight), each.shape[-2]) for each in (one, other))
        else:
            assert own is not None
            assert others is not None
            one, other = _gated(step, one, own), _gated(step, other, others)
            inner = _spread(step, inner) if isinstance(step, Pool) else inner
    # The last step is a layer with one place, whose channels are the outputs.
    return Gram(inner[0, 0, 0], log_scale)


def _seen(step: Weights, units: Tensor) -> int:
    """Return how many places of the units before it a unit of the layer sees."""
    if step.window is None:
        return math.prod(units.shape[:3])
    return len(units) * math.prod(step.window.size)


def _arriving(step: Weights, products: Tensor) -> Tensor:
    """Add up the products of all paths that arrive at a unit of the layer."""
    if step.window is None:
        return products.sum((0, 1, 2), keepdim=True)
    return step.window.sums(products[0] if len(products) == 1 else products.sum(0))[None]


def _open(inner: Tensor, channels: int, samples: int) -> Tensor:
    """Return gates that are all open. Products of 0 and 1 are exact in single precision."""
    return torch.ones((), dtype=torch.float32).expand(*inner.shape[:3], samples, channels)


def _gated(step: Rectifier | Pool, units: Tensor, gate: Tensor) -> Tensor:
    if isinstance(step, Pool):
        # Windows of an earlier pooling, if there are any, follow each other inside the new ones.
        gate, units = gate.repeat_interleave(len(units), 0), _spread(step, units)
    leaky = isinstance(step, Rectifier) and step.slope != 0
    return units * (gate if leaky else gate.to(units.dtype))


def _spread(step: Pool, values: Tensor) -> Tensor:
    """Take what the pooled units see at each place of their windows."""
    slices = step.window.slices(values.movedim(0, 2))
    return torch.cat([part.movedim(2, 0) for part in slices])
