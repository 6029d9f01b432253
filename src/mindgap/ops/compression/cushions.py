"""Layer cushion, interlayer cushion and activation contraction (Arora et al. 2018), per sample.

The paper's networks have no biases, so that Aφ(x) and Jx are the outputs of the layers. With biases
the outputs themselves take their places: the proof needs the noise in proportion to them.
"""

import dataclasses

import torch
from torch import Tensor

from mindgap.core import implements
from mindgap.ops.compression.dense import DenseNet

CHUNK = 2**22  # numbers of the Jacobians that are held at once


@dataclasses.dataclass(frozen=True)
class Cushions:
    """Noise stability of every layer for every sample; columns are samples.

    Args:
        layer: Layer cushions μᵢ, one row per layer.
        interlayer: Interlayer cushions μᵢⱼ by pair of layers i < j, counted from 1.
        contraction: Activation contraction, one row per hidden layer.
        widths: Outputs of every layer; channels of a convolution.
        fans: Inputs of every layer; of a convolution, those that noise would have to pass.
        overlap: ⌈κ/s⌉ for filters of width κ and stride s, one per layer.
        spread: β of every sample: how unevenly Jacobians are spread over the places of images.
        error: Largest relative standard error of an interlayer cushion; 0 if all are exact.
    """

    layer: Tensor
    interlayer: dict[tuple[int, int], Tensor]
    contraction: Tensor
    widths: tuple[int, ...]
    fans: tuple[float, ...]
    overlap: tuple[int, ...]
    spread: Tensor
    error: float = 0.0

    @property
    def minimal(self) -> Tensor:
        """Minimal interlayer cushions: the least over all later layers, and 1/√h, per sample."""
        return torch.stack([self._least(number + 1) for number in range(len(self.widths))])

    def _least(self, first: int) -> Tensor:
        own = torch.full_like(self.layer[0], self.widths[first - 1] ** -0.5)
        later = [row for (one, _), row in self.interlayer.items() if one == first]
        return torch.stack([own, *later]).amin(0)


@implements("E11", cites=("arora2018stronger",))
def cushions(net: DenseNet, inputs: Tensor) -> Cushions:
    r"""Measure how much larger the signal of each layer is than noise would be, for every sample.

    Formula: $\mu_i = \frac{\lVert x^i \rVert}{\lVert A_i \rVert_F \lVert \phi(x^{i-1}) \rVert},
    \quad \mu_{i,j} = \frac{\lVert x^j \rVert}{\lVert J^{i,j} \rVert_F \lVert x^i \rVert}, \quad
    c = \frac{\lVert x^i \rVert}{\lVert \phi(x^i) \rVert}$

    Reading: Random noise has a cushion of about one over the square root of the number of units
    that it enters by. A larger one means that a layer passes the signal on better than noise.

    Assumes: Dense layers with ReLU or leaky ReLU; see convolved_cushions for others. The theorem
    takes the least cushion over the training samples.

    Args:
        net: The network.
        inputs: One row per sample.

    >>> net = DenseNet((torch.eye(2), torch.ones(1, 2)), (None, None), (0.0,))
    >>> found = cushions(net, torch.tensor([[1.0, 1.0]]))
    >>> [round(float(row), 4) for row in found.layer], round(float(found.interlayer[1, 2]), 4)
    ([0.7071, 1.0], 1.0)
    """
    parts = [_chunk(net, rows) for rows in inputs.split(_rows(net))]
    pairs = parts[0].interlayer
    return Cushions(
        torch.cat([part.layer for part in parts], 1),
        {pair: torch.cat([part.interlayer[pair] for part in parts]) for pair in pairs},
        torch.cat([part.contraction for part in parts], 1),
        parts[0].widths,
        parts[0].fans,
        parts[0].overlap,
        torch.cat([part.spread for part in parts]),
    )


def jacobian_work(net: DenseNet) -> int:
    """Count the multiplications that all Jacobians of one sample take."""
    widths = [len(weight) for weight in net.weights]
    return sum(
        widths[j] * widths[j - 1] * widths[i]
        for i in range(net.depth)
        for j in range(i + 2, net.depth)
    )


def _rows(net: DenseNet) -> int:
    widths = sorted(len(weight) for weight in net.weights)
    return max(1, CHUNK // (widths[-1] * widths[-2] if len(widths) > 1 else 1))


def _chunk(net: DenseNet, inputs: Tensor) -> Cushions:
    seen = net.run(inputs)
    left, entered = ([part.norm(dim=1) for part in side] for side in (seen.left, seen.entered))
    layer = [
        ratio(made, weight.norm() * given)
        for made, weight, given in zip(left, net.weights, entered, strict=True)
    ]
    between = {
        (first + 1, second + 1): ratio(left[second], norm * left[first])
        for first in range(net.depth - 1)
        for second, norm in _jacobian_norms(net, seen.gates, first)
    }
    contraction = [ratio(*pair) for pair in zip(left[:-1], entered[1:], strict=True)]
    hidden = torch.stack(contraction) if contraction else inputs.new_ones(0, len(inputs))
    widths, fans = zip(*(weight.shape for weight in net.weights), strict=True)
    alone = (1,) * net.depth
    return Cushions(
        torch.stack(layer), between, hidden, widths, fans, alone, torch.ones_like(layer[0])
    )


def _jacobian_norms(net: DenseNet, gates: list[Tensor], first: int) -> list[tuple[int, Tensor]]:
    """Return ‖J‖ of every later layer's output by the output of one layer, for every sample."""
    jacobian, found = torch.empty(0), list[tuple[int, Tensor]]()
    for later in range(first + 1, net.depth):
        gate, weight = gates[later - 1], net.weights[later]
        if later == first + 1:
            # The first one is a product with a diagonal matrix, whose norm needs no product at all.
            found.append((later, (gate.square() @ weight.square().sum(0)).sqrt()))
            jacobian = weight * gate[:, None, :] if later + 1 < net.depth else jacobian
        else:
            jacobian = weight @ (gate[:, :, None] * jacobian)
            found.append((later, jacobian.flatten(1).norm(dim=1)))
    return found


def ratio(above: Tensor, below: Tensor) -> Tensor:
    """Divide; where nothing comes in, noise does no harm, however small the signal is."""
    return torch.where(below > 0, above / below, torch.inf)
