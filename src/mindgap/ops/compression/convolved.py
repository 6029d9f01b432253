"""Cushions of a chain with convolutions and pooling, by Definitions 4 and 6 to 9 of Arora et al.

The norm of a convolution is that of its kernel here. Interlayer cushions are larger by the root of
the number of places, because noise that is independent from place to place passes a Jacobian so
much weaker. For dense layers, which have one place, all definitions are the usual ones.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import Undefined, generator, implements
from mindgap.ops.compression.cushions import Cushions, ratio
from mindgap.ops.paths.chain import Chain, Rectifier, Step, Weights

EXACT = 128  # outputs of a layer up to which every row of its Jacobians is computed
PROBES = 64  # random rows of larger ones: the norms are right to about 1/√128, or 9 %
ROWS = 2**22  # numbers that one pass holds at once


@dataclasses.dataclass(frozen=True)
class _Layer:
    """A layer with weights, and the activation and pooling behind it."""

    weights: Weights
    behind: tuple[Step, ...]

    def activate(self, units: Tensor) -> Tensor:
        """Apply what lies between this layer and the next."""
        for step in self.behind:
            units = units * step.gate(units) if isinstance(step, Rectifier) else step(units)
        return units

    def fan(self, shape: tuple[int, ...]) -> float:
        """Count the inputs that noise has to pass: all of them, over the places of the output.

        The mean square of a map at noise is its squared norm over the number of inputs. Squared
        weights applied to ones give the squared rows of the map.
        """
        squares = dataclasses.replace(self.weights, weight=self.weights.weight.square(), bias=None)
        rows = float(squares(torch.ones(1, *shape, dtype=torch.double)).sum())
        kernel = float(self.weights.weight.square().sum())
        return math.prod(shape) * kernel / rows if rows > 0 else math.prod(shape)

    @property
    def overlap(self) -> int:
        """The windows that see an input: ⌈κ/s⌉, of the axis that has more."""
        window = self.weights.window
        if window is None:
            return 1
        return max(
            -(-size // stride) for size, stride in zip(window.size, window.stride, strict=True)
        )


@implements("E11", cites=("arora2018stronger",))
def convolved_cushions(chain: Chain, inputs: Tensor, seed: int = 0) -> Cushions:
    r"""Measure the cushions of a chain of layers with convolutions, for every sample.

    Formula: $\mu_{i,j} = \frac{\sqrt{n_1^i n_2^i}\, \lVert x^j \rVert}{\lVert J^{i,j} \rVert_F \lVert
    x^i \rVert}, \quad \beta = \max_{i, j, a, b} \frac{\sqrt{n_1^i n_2^i}\, \lVert [J^{i,j}]_{:, a, b}
    \rVert_F}{\lVert J^{i,j} \rVert_F}$

    Reading: As for dense layers, with the norm of a kernel in the place of that of a matrix, for
    images of n₁ by n₂ places. β is 1 if all places matter equally. Jacobians are never formed: their
    rows come from vector-Jacobian products. A layer of more than 128 outputs gets 64 random ones,
    whose mean square is that of all rows in expectation; the standard error is returned as
    ``error``. Pooling counts as a part of the activation, so that the contraction tells what it
    drops.

    Assumes: A chain of dense layers and convolutions, with ReLU or leaky ReLU and pooling.

    Args:
        chain: The network.
        inputs: Samples, in the shape of the network's input.
        seed: Seed of the random rows.

    >>> from mindgap.ops.paths.chain import read_chain
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1, bias=False), torch.nn.Flatten())
    >>> found = convolved_cushions(read_chain(net, (1, 2, 2)), torch.ones(1, 1, 2, 2))
    >>> round(float(found.layer[0, 0]), 4), found.widths  # ‖w‖ times the ones at every place
    (1.0, (2,))
    """
    layers, random = _layers(chain), generator(seed)
    parts = [
        _chunk(layers, rows, random) for rows in chain.shaped(inputs).split(_samples(layers, chain))
    ]
    first = parts[0]
    return Cushions(
        torch.cat([part.layer for part in parts], 1),
        {pair: torch.cat([part.interlayer[pair] for part in parts]) for pair in first.interlayer},
        torch.cat([part.contraction for part in parts], 1),
        first.widths,
        first.fans,
        first.overlap,
        torch.cat([part.spread for part in parts]),
        max(part.error for part in parts),
    )


def convolved_smoothness(chain: Chain, other: Chain, inputs: Tensor) -> Tensor:
    """Return interlayer smoothness ρ under the noise of another chain's weights, per sample.

    It is defined as :func:`mindgap.ops.compression.project.smoothness` is.

    Args:
        chain: The network.
        other: The same with compressed weights.
        inputs: Samples, in the shape of the network's input.

    >>> from mindgap.ops.paths.chain import read_chain
    >>> chain = read_chain(
    ...     torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.Conv2d(1, 1, 1)), (1, 2, 2)
    ... )
    >>> convolved_smoothness(chain, chain, torch.ones(1, 1, 2, 2)).tolist()  # linear: no bend
    [inf]
    """
    layers, others = _layers(chain), _layers(other)
    least = torch.full((len(inputs),), torch.inf, dtype=torch.double)
    entered = chain.shaped(inputs)
    clean = [layers[0].weights(entered)]
    for before, layer in itertools.pairwise(layers):
        clean.append(layer.weights(before.activate(clean[-1])))
    for first in range(len(layers) - 1):
        moved = others[first].weights(entered)
        entered = layers[first].activate(moved)
        passed = moved - clean[first]
        size = _sizes(passed) / _sizes(clean[first])
        for later in range(first + 1, len(layers)):
            forward = _step(layers[later - 1], layers[later])
            # The slope of one step, at the clean signal, along the noise.
            passed = torch.autograd.functional.jvp(forward, clean[later - 1], passed)[1]
            moved = forward(moved)
            bent, left = _sizes(moved - clean[later] - passed), _sizes(clean[later])
            straight = bent <= 1e-12 * left  # rounding is no bend
            least = torch.minimum(least, torch.where(straight, torch.inf, size * left / bent))
    return least


def _step(before: _Layer, layer: _Layer) -> Callable[[Tensor], Tensor]:
    return lambda units: layer.weights(before.activate(units))


def _sizes(units: Tensor) -> Tensor:
    sizes: Tensor = torch.linalg.vector_norm(units.flatten(1), dim=1)
    return sizes


def convolved_work(chain: Chain) -> int:
    """Count the multiplications that the Jacobians of one sample take."""
    layers = _layers(chain)
    units, total, widths = torch.zeros(1, *chain.shape, dtype=torch.double), 0, list[int]()
    for place, layer in enumerate(layers):
        left = layer.weights(units)
        # Every weight of a convolution is used at all places of its output.
        uses = layer.weights.weight.numel() * left[0, 0].numel()
        total += uses if place else 0
        widths.append(left.numel())
        units = layer.activate(left)
    return 2 * total * sum(map(_rows, widths[1:]))


def _layers(chain: Chain) -> list[_Layer]:
    found = list[_Layer]()
    for step in chain.steps:
        if isinstance(step, Weights):
            found.append(_Layer(step, ()))
        elif found:
            found[-1] = dataclasses.replace(found[-1], behind=(*found[-1].behind, step))
        else:
            raise Undefined("needs a network that begins with a dense layer or a convolution")
    if found[-1].behind:
        raise Undefined("needs a network whose outputs are those of a dense layer or a convolution")
    return found


def _rows(width: int) -> int:
    return width if width <= EXACT else PROBES


def _samples(layers: list[_Layer], chain: Chain) -> int:
    units, largest = torch.zeros(1, *chain.shape, dtype=torch.double), 1
    for layer in layers:
        left = layer.weights(units)
        largest, units = max(largest, left.numel()), layer.activate(left)
    return max(1, ROWS // (largest * max(EXACT, PROBES)))


def _chunk(layers: list[_Layer], inputs: Tensor, random: torch.Generator) -> Cushions:
    entered, left = [inputs], list[Tensor]()
    for layer in layers:
        left.append(layer.weights(entered[-1]))
        entered.append(layer.activate(left[-1]))
    sizes = [part.flatten(1).norm(dim=1) for part in left]
    given = [part.flatten(1).norm(dim=1) for part in entered[:-1]]
    cushion = [
        ratio(made, layer.weights.weight.norm() * size)
        for layer, made, size in zip(layers, sizes, given, strict=True)
    ]
    places = [math.prod(part.shape[2:]) for part in left]
    between, error = dict[tuple[int, int], Tensor](), 0.0
    spread = torch.ones_like(sizes[0])
    for last in range(1, len(layers)):
        for first, found in enumerate(_norms(layers[: last + 1], left[0], random)):
            signal = math.sqrt(places[first]) * sizes[last]
            between[first + 1, last + 1] = ratio(signal, found.norm * sizes[first])
            spread, error = torch.maximum(spread, found.spread), max(error, found.error)
    contraction = [ratio(*pair) for pair in zip(sizes[:-1], given[1:], strict=True)]
    hidden = torch.stack(contraction) if contraction else inputs.new_ones(0, len(inputs))
    fans = [layer.fan(tuple(part.shape[1:])) for layer, part in zip(layers, entered, strict=False)]
    return Cushions(
        torch.stack(cushion),
        between,
        hidden,
        tuple(part.shape[1] for part in left),
        tuple(fans),
        tuple(layer.overlap for layer in layers),
        spread,
        error,
    )


@dataclasses.dataclass(frozen=True)
class _Norm:
    """The norm of a Jacobian for every sample, β, and the largest relative standard error."""

    norm: Tensor
    spread: Tensor
    error: float


def _norms(layers: list[_Layer], start: Tensor, random: torch.Generator) -> list[_Norm]:
    """Return ‖J‖ of the last layer's output by that of every layer before it.

    One backward pass serves all of them: the products with a row are the gradients on its way.
    """
    with torch.enable_grad():
        rows, scale = _probes(_width(layers, start.detach()), random)
        units = [start.detach().repeat_interleave(len(rows), 0).requires_grad_()]
        for before, layer in itertools.pairwise(layers):
            units.append(layer.weights(before.activate(units[-1])))
        vectors = rows.repeat(len(start), 1).view_as(units[-1])
        slopes = torch.autograd.grad(units[-1], units[:-1], vectors)
    return [_norm(slope.unflatten(0, (len(start), len(rows))), scale) for slope in slopes]


def _norm(slope: Tensor, scale: float) -> _Norm:
    """Add up the squares of a Jacobian's rows: samples, rows, channels, height and width."""
    squares = slope.square().sum(2).flatten(2)  # by place
    by_row, by_place = squares.sum(2), squares.sum(1)
    total = by_row.sum(1)
    uneven = by_place.amax(1) * by_place.shape[1] / total
    spread = torch.where(total > 0, uneven, 1.0).sqrt()
    error = 0.0 if scale == 1 else _relative_error(by_row)
    return _Norm((scale * total).sqrt(), spread, error)


def _width(layers: list[_Layer], start: Tensor) -> int:
    units = start[:1]
    for before, layer in itertools.pairwise(layers):
        units = layer.weights(before.activate(units))
    return units.numel()


def _probes(width: int, random: torch.Generator) -> tuple[Tensor, float]:
    """Return the rows to multiply with, and what their sum of squares is multiplied by."""
    if width <= EXACT:
        return torch.eye(width, dtype=torch.double), 1.0
    signs = torch.randint(2, (PROBES, width), generator=random, dtype=torch.double)
    return 2 * signs - 1, 1 / PROBES


def _relative_error(squares: Tensor) -> float:
    """Half the relative standard error of the mean square, as a root has it; the largest one."""
    mean, spread = squares.mean(1), squares.std(1) / math.sqrt(squares.shape[1])
    known = mean > 0
    return float((spread[known] / (2 * mean[known])).max()) if bool(known.any()) else 0.0
