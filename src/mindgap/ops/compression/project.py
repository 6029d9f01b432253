"""Matrix-Project and the compression of a network (Algorithm 1 of Arora et al. 2018), with constants.

The paper takes ln(1/η)/ε² projections, from a tail exp(−kε²) that is lighter than the normal one to
which the errors converge. Here their number follows from the tails of sums of random signs
(Achlioptas 2003, Lemma 5). The errors of layers are those of the paper's own induction, its Lemma 3.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mindgap.core import InputError, implements
from mindgap.core.special import bisect
from mindgap.ops.compression.cushions import Cushions
from mindgap.ops.compression.dense import DenseNet, Pass
from mindgap.ops.paths.chain import Chain, Weights

CHUNK = 2**21  # signs that are held at once


@implements("E11", cites=("arora2018stronger",))
def matrix_project(
    matrix: Tensor, count: int, seed: int = 0, *, levels: int | None = None
) -> Tensor:
    r"""Approximate a matrix by the sum of its projections on random matrices of signs.

    Formula: $\hat A = \frac{1}{k} \sum_{j=1}^{k} \langle A, M_j \rangle M_j, \qquad M_j \sim
    \{-1, 1\}^{h_1 \times h_2}$

    Reading: ``count`` numbers and the seed describe the result. Its expectation is the matrix
    itself. With :func:`projections_needed` numbers, u'Âv is right up to ε‖A‖‖u‖‖v‖ for any fixed
    vectors.

    Assumes: The seed was chosen before the matrix was seen.

    Args:
        matrix: A, of any shape.
        count: k, the number of projections.
        seed: Seed of the signs.
        levels: Round every projection to one of so many values, from −3‖A‖ to 3‖A‖.

    >>> matrix = torch.tensor([[1.0, 2.0], [0.0, -1.0]], dtype=torch.float64)
    >>> found = matrix_project(matrix, 100_000)
    >>> bool((found - matrix).abs().max() < 0.05)
    True
    """
    if count < 1:
        raise InputError(f"count must be at least 1, got {count}. Pass the number of projections.")
    flat, random = matrix.detach().cpu().flatten(), np.random.default_rng(seed)
    step, size = _step(flat, levels), max(1, CHUNK // len(flat))
    total = torch.zeros_like(flat, dtype=torch.float64)
    for start in range(0, count, size):
        signs = _signs(min(size, count - start), len(flat), random)
        numbers = _rounded((signs @ flat.float()).double(), step, levels)
        total += (numbers.float() @ signs).double()
    return (total / count).view(matrix.shape).to(matrix)


def _signs(rows: int, columns: int, random: np.random.Generator) -> Tensor:
    """Draw signs; bits of random bytes are several times cheaper than random numbers."""
    bits = np.unpackbits(random.integers(256, size=-(-rows * columns // 8), dtype=np.uint8))
    return torch.from_numpy(bits[: rows * columns]).view(rows, columns).float().mul_(2).sub_(1)


def _step(flat: Tensor, levels: int | None) -> float:
    """The distance of two levels, as a single-precision number, which takes 32 bits to write."""
    return 0.0 if levels is None else float(torch.tensor(6 * float(flat.norm()) / levels))


def _rounded(values: Tensor, step: float, levels: int | None) -> Tensor:
    if levels is None or step == 0:
        return values
    most = (levels - 1) / 2
    return ((values / step + most).round().clamp(0, 2 * most) - most) * step


def rounded(values: Tensor, levels: int) -> Tensor:
    """Round numbers to one of so many equally spaced values, from −m to m, m the largest of them.

    >>> rounded(torch.tensor([-1.0, 0.1, 1.0]), 3).tolist()
    [-1.0, 0.0, 1.0]
    """
    step = float(torch.tensor(2 * float(values.abs().max()) / max(levels - 1, 1)))
    return _rounded(values, step, levels)


def projections_needed(epsilon: float, failure: float) -> int:
    """Return how many projections make u'Âv right up to ε‖A‖‖u‖‖v‖, but for a probability.

    By Achlioptas' tails, each of four one-sided events has probability exp(−k(ε²/4 − ε³/6)).

    Args:
        epsilon: ε, above 0 and at most 1.
        failure: The probability.

    >>> projections_needed(0.5, 0.01)
    144
    """
    return math.ceil(math.log(4 / failure) / (epsilon**2 / 4 - epsilon**3 / 6))


def promised_error(count: int, failure: float) -> float:
    """Return the ε that so many projections promise; infinite if they promise none up to 1.

    >>> round(promised_error(144, 0.01), 2), promised_error(10, 0.01)
    (0.5, inf)
    """
    if projections_needed(1.0, failure) > count:
        return math.inf
    wanted = math.log(4 / failure) / count
    return bisect(lambda error: error**2 / 4 - error**3 / 6 - wanted, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the theorem asks of every layer, for a relative error ε of the outputs.

    Args:
        layer: Least layer cushion of every layer.
        minimal: Least minimal interlayer cushion of every layer.
        contraction: c, at least 1.
        failure: Probability with which one product u'Âv may be off.
    """

    layer: Sequence[float]
    minimal: Sequence[float]
    contraction: float
    failure: float

    def factors(self) -> list[float]:
        """Return by how much ε is divided, layer by layer: 6cd / (μᵢ μᵢ→).

        Three terms of the induction get ε/3d each. The two of the smoothness take ρ ≥ 3d between
        them; the one of the projection sees an input of up to twice its norm, hence six.
        """
        scale = 6 * self.contraction * len(self.layer)
        return [scale / (one * two) for one, two in zip(self.layer, self.minimal, strict=True)]

    def counts(self, epsilon: float) -> list[int]:
        """Return the projections of every layer that promise ε ≤ 1."""
        return [projections_needed(epsilon / factor, self.failure) for factor in self.factors()]

    def promise(self, counts: Sequence[int]) -> float:
        """Return the ε that given projections promise; nothing is promised above 1."""
        pairs = zip(counts, self.factors(), strict=True)
        found = max(promised_error(count, self.failure) * factor for count, factor in pairs)
        return found if found <= 1 else math.inf


def plan_of(found: Cushions, quantile: float, delta: float) -> Plan:
    """Return the plan for a quantile of the cushions over samples; 0 is the theorem's least one.

    Args:
        found: Cushions of the samples.
        quantile: Share of the samples that may have less of a cushion.
        delta: Probability with which the promise may fail for any sample.
    """
    rows = sum(sum(found.widths[number:]) for number in range(len(found.widths)))
    largest = -lowest(-found.contraction, quantile)
    return Plan(
        lowest(found.layer, quantile).tolist(),
        lowest(found.minimal, quantile).tolist(),
        max(1.0, *largest.tolist(), 1.0),
        delta / (found.layer.shape[1] * rows),
    )


def lowest(values: Tensor, quantile: float) -> Tensor:
    """Return the entry of every row below which at most a share of the row lies.

    >>> lowest(torch.tensor([[3.0, 1.0, 2.0]]), 0.0).tolist()
    [1.0]
    """
    place = math.ceil(quantile * values.shape[1]) - 1
    return values.sort(1).values[:, max(place, 0)]


def compressed(net: DenseNet, counts: Sequence[int], seed: int = 0) -> DenseNet:
    """Project every layer's matrix; biases stay as they are.

    Args:
        net: The network.
        counts: Projections of every layer.
        seed: Seed of the signs; every layer has its own.
    """
    return dataclasses.replace(net, weights=_projected(net.weights, counts, seed))


def compressed_chain(chain: Chain, counts: Sequence[int], seed: int = 0) -> Chain:
    """Project the weights of every layer; a kernel is projected once, for all its places.

    Args:
        chain: The network.
        counts: Projections of every layer.
        seed: Seed of the signs; every layer has its own.
    """
    weights = iter(_projected([layer.weight for layer in chain.layers], counts, seed))
    steps = (
        dataclasses.replace(step, weight=next(weights)) if isinstance(step, Weights) else step
        for step in chain.steps
    )
    return dataclasses.replace(chain, steps=tuple(steps))


def _projected(matrices: Sequence[Tensor], counts: Sequence[int], seed: int) -> tuple[Tensor, ...]:
    pairs = enumerate(zip(matrices, counts, strict=True))
    return tuple(matrix_project(one, count, 1000 * seed + k) for k, (one, count) in pairs)


def smoothness(net: DenseNet, other: DenseNet, seen: Pass) -> Tensor:
    r"""Return interlayer smoothness ρ under the noise of a compressed network, per sample.

    ρ is the largest number with ‖M(x+η) − M(x) − Jη‖ ≤ ‖η‖‖xʲ‖ / (ρ‖xⁱ‖) for all layers i < j,
    where the layers up to i are those of the compressed network.

    Args:
        net: The network.
        other: Its compressed form.
        seen: What the samples leave in the network.
    """
    least = torch.full_like(seen.left[0][:, 0], torch.inf)
    entered = seen.entered[0]
    for first in range(net.depth - 1):
        left = other.layer(first, entered)
        noise = left - seen.left[first]
        size, passed = noise.norm(dim=1) / seen.left[first].norm(dim=1), noise
        for later, made in enumerate(net.after(first, left), first + 1):
            passed = (passed * seen.gates[later - 1]) @ net.weights[later].T
            bent = (made - seen.left[later] - passed).norm(dim=1)
            ratio = size * seen.left[later].norm(dim=1) / bent
            # Rounding is no bend: a network that is linear there is smooth without limit.
            straight = bent <= 1e-12 * seen.left[later].norm(dim=1)
            least = torch.minimum(least, torch.where(straight, torch.inf, ratio))
        entered = net.activate(first, left)[0]
    return least
