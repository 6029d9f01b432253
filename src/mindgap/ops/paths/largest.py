"""The largest correlation of targets with a path: β₂, exact where it can be, else a bound."""

import dataclasses
import heapq
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mindgap.core import implements
from mindgap.ops.paths.chain import Chain, Rectifier, Weights

BLOCK = 2**22  # numbers of a block of paths
DOUBLE = 2e9  # multiplications up to which double precision is used
SEARCH = 1e4  # multiplications in a block in the time of one in a search
NODE, CHILD, ENTRY = 1e7, 4e5, 400  # multiplications in the time of a step, by what it handles
BUDGET = 4e11  # multiplications; about ten seconds in single precision


@dataclasses.dataclass(frozen=True)
class Largest:
    """The largest |Σ_i c_i z_i| over all paths, one number per column of c.

    Args:
        values: The largest values, or upper bounds.
        exact: Whether no value is only a bound.
    """

    values: Tensor
    exact: bool


@implements("K4", cites=("kawaguchi2017generalization",))
def largest_over_paths(
    chain: Chain, inputs: Tensor, coefficients: Tensor, *, budget: float = BUDGET
) -> Largest:
    r"""Compute the largest weighted sum of a path's feature, over all paths.

    Formula: $\beta_{2,k} = \max_{path} \left| \sum_i c_{ik} z_{i,path} \right|, \quad c_{ik} =
    \frac{y_{ik}}{n} \text{ or } -\frac{y_{ik}}{n'}$

    Reading: Exact for dense networks with one or two hidden layers, by trying all paths in blocks.
    Deeper networks are searched by branch and bound. If that would take more than the budget, or
    behind convolutions, it is an upper bound, and says so.

    Assumes: Gates from 0 to 1.

    Args:
        chain: The network.
        inputs: The samples.
        coefficients: c, one row per sample and one column per sum.
        budget: The number of multiplications to spend.

    >>> from mindgap.nets import MLP
    >>> from mindgap.ops.paths.chain import read_chain
    >>> chain = read_chain(MLP((1, 1), bias=False), (1,))
    >>> found = largest_over_paths(chain, torch.tensor([[1.0], [-3.0]]), torch.ones(2, 1))
    >>> found.values.tolist(), found.exact
    ([2.0], True)
    """
    coefficients = coefficients.double()
    layers = _dense_layers(chain)
    if layers is None:
        return Largest(_without_gates(chain, inputs, coefficients), exact=False)
    starts = _Starts.of(chain, layers, inputs)
    cost = starts.cost(coefficients)
    if len(starts.gates) > 2:
        return _searched(starts, coefficients, budget)
    if cost > budget:
        return Largest(_with_first_gates(starts, coefficients), exact=False)
    dtype = torch.double if cost <= DOUBLE else torch.float32
    return Largest(_tried(starts, coefficients, dtype), exact=True)


def path_bound(chain: Chain, inputs: Tensor, coefficients: Tensor) -> Tensor:
    """Bound the largest weighted sums without a search: only the first layer's gates count.

    Args:
        chain: The network.
        inputs: The samples.
        coefficients: c, one row per sample and one column per sum.
    """
    layers, coefficients = _dense_layers(chain), coefficients.double()
    if layers is None:
        return _without_gates(chain, inputs, coefficients)
    return _with_first_gates(_Starts.of(chain, layers, inputs), coefficients)


def path_cost(chain: Chain, inputs: Tensor, coefficients: Tensor) -> float:
    """Return the multiplications that exact sums take, more where a search would take them.

    Args:
        chain: The network; behind convolutions there is no exact search.
        inputs: The samples.
        coefficients: c, one row per sample and one column per sum.
    """
    layers = _dense_layers(chain)
    if layers is None:
        return math.inf
    starts = _Starts.of(chain, layers, inputs)
    # A search looks at fewer paths, but one by one.
    return starts.cost(coefficients) * (SEARCH if len(starts.gates) > 2 else 1)


def _dense_layers(chain: Chain) -> list[Weights] | None:
    """Return the layers of a dense network with a gate between any two, or None."""
    layers, gates = chain.steps[::2], chain.steps[1::2]
    dense = [step for step in layers if isinstance(step, Weights) and step.window is None]
    gated = all(isinstance(step, Rectifier) for step in gates)
    whole = len(dense) == len(layers) == len(gates) + 1
    return dense if whole and gated else None


@dataclasses.dataclass(frozen=True)
class _Starts:
    """Where paths start: inputs, with a column of ones for the first bias, and later biases.

    Args:
        inputs: One row per sample.
        gates: For each hidden layer, one row per sample and one column per unit.
        biased: For each layer after the first, whether it has a bias.
    """

    inputs: Tensor
    gates: list[Tensor]
    biased: list[bool]

    @classmethod
    def of(cls, chain: Chain, layers: Sequence[Weights], inputs: Tensor) -> "_Starts":
        rows = chain.shaped(inputs).flatten(1)
        if layers[0].bias is not None:
            rows = torch.cat([rows, torch.ones(len(rows), 1).double()], 1)
        gates = [gate.flatten(1) for gate in chain.run(inputs)[1] if gate is not None]
        return cls(rows, gates, [layer.bias is not None for layer in layers[1:]])

    def cost(self, coefficients: Tensor) -> float:
        used = float((coefficients != 0).sum())
        for gate in self.gates:
            used *= gate.shape[1]
        return used * self.inputs.shape[1]

    def of_samples(self, rows: Tensor) -> "_Starts":
        return _Starts(self.inputs[rows], [gate[rows] for gate in self.gates], self.biased)

    def late(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the hidden layers after the first that have a bias, with their gates."""
        for depth, gate in enumerate(self.gates[1:], 1):
            if self.biased[depth - 1]:
                yield depth, gate

    @property
    def output_biased(self) -> bool:
        return bool(self.gates) and self.biased[-1]


def _tried(starts: _Starts, coefficients: Tensor, dtype: torch.dtype) -> Tensor:
    """Try all paths of at most two hidden layers, for the columns with the same samples together."""
    found = torch.zeros(coefficients.shape[1], dtype=torch.double)
    for columns, rows in _alike(coefficients):
        part, own = coefficients[rows][:, columns], starts.of_samples(rows)
        best = part.sum(0).abs() if own.output_biased else torch.zeros(len(columns)).double()
        for _, gate in own.late():
            best = torch.maximum(best, (part.T @ gate).abs().amax(1))
        found[columns] = torch.maximum(best, _inputs_tried(own, part, dtype))
    return found


def _alike(coefficients: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Group columns by the samples that they use: those of a class, where targets are classes."""
    used = coefficients != 0
    patterns, group = used.T.unique(dim=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield (group == number).nonzero().flatten(), pattern.nonzero().flatten()


def _inputs_tried(starts: _Starts, part: Tensor, dtype: torch.dtype) -> Tensor:
    """Try the paths that start at an input or at a bias of the first layer."""
    columns = part.shape[1]
    weighted = (part.T[:, None, :] * starts.inputs.T).flatten(0, 1).to(dtype)
    gates = [gate.to(dtype) for gate in starts.gates]
    if len(gates) < 2:
        ends = gates[0] if gates else torch.ones(len(part), 1, dtype=dtype)
        return (weighted @ ends).abs().view(columns, -1).amax(1).double()
    best = torch.zeros(columns, dtype=torch.double)
    size = max(1, BLOCK // max(1, len(part) * gates[0].shape[1], len(weighted) * gates[0].shape[1]))
    for second in gates[1].split(size, dim=1):
        ends = (gates[0][:, :, None] * second[:, None, :]).flatten(1)
        best = torch.maximum(best, (weighted @ ends).abs().view(columns, -1).amax(1).double())
    return best


def _searched(starts: _Starts, coefficients: Tensor, budget: float) -> Largest:
    found = [_branch_and_bound(starts, c, budget / len(coefficients.T)) for c in coefficients.T]
    values = torch.tensor([value for value, _ in found], dtype=torch.double)
    return Largest(values, exact=all(exact for _, exact in found))


def _branch_and_bound(starts: _Starts, column: Tensor, budget: float) -> tuple[float, bool]:
    """Extend the most promising beginning of a path first.

    What follows multiplies each sample's part by 0 to 1, so a beginning whose parts are v leads to
    sums from -Σ(-v)₊ to Σ(v)₊.
    """
    rows = column.nonzero().flatten()
    own, column = starts.of_samples(rows), column[rows]
    best = float(column.sum().abs()) if own.output_biased else 0.0
    heap: list[tuple[float, int, int, Tensor]] = []
    number, spent, deepest = 0, 0.0, len(own.gates)

    def push(parts: Tensor, depth: int) -> None:
        nonlocal best, number
        if depth == deepest:
            best = max(best, float(parts.sum(1).abs().max()))
            return
        limits = torch.maximum(parts.clamp_min(0).sum(1), (-parts).clamp_min(0).sum(1))
        for place in (limits > best).nonzero().flatten().tolist():
            number += 1
            heapq.heappush(heap, (-float(limits[place]), number, depth, parts[place]))

    for depth, gate in own.late():
        push(column * gate.T, depth + 1)
    push(column * own.inputs.T, 0)
    while heap and -heap[0][0] > best:
        if spent > budget:
            return -heap[0][0], False
        _, _, depth, parts = heapq.heappop(heap)
        gate = own.gates[depth]
        spent += NODE + CHILD * gate.shape[1] + ENTRY * gate.numel()
        push(parts * gate.T, depth + 1)
    return best, True


def _with_first_gates(starts: _Starts, coefficients: Tensor) -> Tensor:
    """Bound all paths: later gates let through only the positive, or only the negative parts."""
    found = torch.zeros(coefficients.shape[1], dtype=torch.double)
    for columns, rows in _alike(coefficients):
        own, parts = starts.of_samples(rows), coefficients[rows][:, columns].T
        first = own.gates[0] if own.gates else torch.ones(len(rows), 1).double()
        limits = [parts.sum(1).abs()] if own.output_biased else []
        for signed in (parts, -parts):
            open_ = (signed[:, None, :] * own.inputs.T).clamp_min(0)
            limits.append((open_ @ first).amax((1, 2)))
            limits += [(signed.clamp_min(0) @ gate).amax(1) for _, gate in own.late()]
        found[columns] = torch.stack(limits).amax(0)
    return found


def _without_gates(chain: Chain, inputs: Tensor, coefficients: Tensor) -> Tensor:
    """Bound all paths of any chain, as if each gate could be open or closed at will."""
    rows = chain.shaped(inputs).flatten(1)
    if any(layer.bias is not None for layer in chain.layers):
        rows = torch.cat([rows, torch.ones(len(rows), 1).double()], 1)
    up, down = (rows.clamp_min(0), (-rows).clamp_min(0))
    plus, minus = coefficients.T.clamp_min(0), (-coefficients.T).clamp_min(0)
    limits = torch.stack([plus @ up + minus @ down, plus @ down + minus @ up])
    return limits.amax((0, 2))
