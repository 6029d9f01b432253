"""Partial derivatives of black-box functions by central differences."""

import functools
import itertools
import math

import torch
from torch import Tensor

from mindgap.core import InputError, integer, number

MultiIndex = tuple[int, ...]
Rule = dict[int, float]  # offset in steps → weight
MOST = 20_000  # partial derivatives that are worth computing one by one


class Stencil:
    """The offsets that all partial derivatives up to an order need, each offset once.

    Args:
        dimension: Number of inputs.
        order: Highest order of the derivatives.
        step: Width of a difference.

    >>> Stencil(dimension=2, order=2, step=0.1).offsets.shape
    torch.Size([9, 2])
    """

    def __init__(self, dimension: int, order: int, step: float) -> None:
        integer("dimension", dimension, 1)
        self.order, self.step = integer("order", order, 1), number("step", step, 0)
        if not self.step > 0:
            raise InputError(
                f"step must be above 0, got {step}. Pass the width of a difference, such as 1e-3."
            )
        self.indices = [
            index for rank in range(1, order + 1) for index in multi_indices(dimension, rank)
        ]
        rules = [_product(index) for index in self.indices]
        cells = sorted(set(itertools.chain.from_iterable(rules)))
        column_of = {cell: number for number, cell in enumerate(cells)}
        self.offsets = torch.tensor(cells, dtype=torch.float64) * self.step
        self.weights = torch.zeros(len(rules), len(cells), dtype=torch.float64)
        for row, rule in enumerate(rules):
            columns = [column_of[cell] for cell in rule]
            self.weights[row, columns] = torch.tensor(list(rule.values()), dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.offsets)

    def around(self, points: Tensor) -> Tensor:
        """List where to evaluate: points × offsets × inputs."""
        return points[:, None] + self.offsets.to(points)

    def derivatives(self, values: Tensor) -> dict[MultiIndex, Tensor]:
        """Compute all partial derivatives from values of shape points × offsets × outputs."""
        found = torch.einsum("rq,nqo->rno", self.weights, values.detach().double().cpu())
        return {
            index: found[row] / self.step ** sum(index) for row, index in enumerate(self.indices)
        }

    def terms(self, values: Tensor) -> Tensor:
        """Compute the terms of the Taylor metric, one column per order."""
        terms = torch.zeros(len(values), self.order, dtype=torch.float64)
        for index, value in self.derivatives(values).items():
            terms[:, sum(index) - 1] += value.square().sum(1) / factorial(index)
        return terms


@functools.lru_cache(maxsize=4096)
def _product(index: MultiIndex) -> dict[MultiIndex, float]:
    """Multiply one rule per input to the rule of a mixed derivative."""
    rules = [central_rule(entry).items() for entry in index]
    return {
        tuple(offset for offset, _ in chosen): math.prod(weight for _, weight in chosen)
        for chosen in itertools.product(*rules)
    }


def central_rule(order: int) -> Rule:
    """Compute the weights of f(x + j·step) for a derivative, exact up to degree ``order + 1``.

    An even order is the central difference; an odd one is the mean of the two differences that are
    half a step to each side.

    >>> central_rule(1), central_rule(2)
    ({-1: -0.5, 1: 0.5}, {-1: 1.0, 0: -2.0, 1: 1.0})
    """
    if order % 2 == 0:
        half = order // 2
        return {
            step - half: float((-1) ** (order - step) * math.comb(order, step))
            for step in range(order + 1)
        }
    rule: Rule = {}
    for offset, weight in central_rule(order - 1).items():
        rule[offset + 1] = rule.get(offset + 1, 0.0) + weight / 2
        rule[offset - 1] = rule.get(offset - 1, 0.0) - weight / 2
    return {offset: rule[offset] for offset in sorted(rule) if rule[offset]}


def multi_indices(dimension: int, order: int) -> list[MultiIndex]:
    """List the multi-indices of all partial derivatives of one order.

    >>> multi_indices(2, 2)
    [(2, 0), (1, 1), (0, 2)]
    """
    count = math.comb(dimension + order - 1, order)
    if count > MOST:
        raise InputError(
            f"Derivatives of order {order} in {dimension} inputs must be at most {MOST} in number, "
            f"got {count}. Lower the order, or estimate the variance around each point instead "
            "(sampled_variance)."
        )
    chosen = itertools.combinations_with_replacement(range(dimension), order)
    return [tuple(axes.count(axis) for axis in range(dimension)) for axes in chosen]


def factorial(index: MultiIndex) -> int:
    """Multiply the factorials of all entries.

    >>> factorial((2, 0, 3))
    12
    """
    return math.prod(math.factorial(entry) for entry in index)


def axes_of(index: MultiIndex) -> list[int]:
    """List the inputs to differentiate by, one after the other.

    >>> axes_of((2, 0, 1))
    [0, 0, 2]
    """
    return [axis for axis, times in enumerate(index) for _ in range(times)]
