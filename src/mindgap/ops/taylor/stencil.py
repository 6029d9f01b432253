"""Central differences: where to evaluate a black-box function, and what its values say about derivatives.

Multi-indices: which partial derivatives there are, and what each counts in a Taylor expansion.
"""

import functools
import itertools
import math

import torch
from torch import Tensor

from mindgap.core import InputError, integer, number

MultiIndex = tuple[int, ...]
MOST = 20_000  # partial derivatives that are worth computing one by one


def multi_indices(dimension: int, order: int) -> list[MultiIndex]:
    """All ways to share ``order`` derivatives among ``dimension`` inputs.

    >>> multi_indices(2, 2)
    [(2, 0), (1, 1), (0, 2)]
    """
    count = math.comb(dimension + order - 1, order)
    if count > MOST:
        raise InputError(
            f"Derivatives of order {order} in {dimension} inputs must be at most {MOST} in "
            f"number, got {count}. "
            "Lower the order, or measure the variance around each point instead (sampled_variance)."
        )
    chosen = itertools.combinations_with_replacement(range(dimension), order)
    return [tuple(places.count(place) for place in range(dimension)) for places in chosen]


def factorial(index: MultiIndex) -> int:
    """The product of the factorials of all entries.

    >>> factorial((2, 0, 3))
    12
    """
    return math.prod(math.factorial(entry) for entry in index)


def places(index: MultiIndex) -> list[int]:
    """The inputs to differentiate by, one after the other.

    >>> places((2, 0, 1))
    [0, 0, 2]
    """
    return [place for place, times in enumerate(index) for _ in range(times)]


Rule = dict[int, float]


def central_rule(order: int) -> Rule:
    """Weights of f(x + j·step) for the derivative of this order, exact for polynomials up to ``order + 1``.

    Even orders are the central difference; odd ones the mean of the two that lie half a step to
    each side.

    >>> central_rule(1), central_rule(2)
    ({-1: -0.5, 1: 0.5}, {-1: 1.0, 0: -2.0, 1: 1.0})
    """
    if order % 2 == 0:
        half = order // 2
        return {
            place - half: float((-1) ** (order - place) * math.comb(order, place))
            for place in range(order + 1)
        }
    below = central_rule(order - 1)
    rule: Rule = {}
    for place, weight in below.items():
        rule[place + 1] = rule.get(place + 1, 0.0) + weight / 2
        rule[place - 1] = rule.get(place - 1, 0.0) - weight / 2
    return {place: rule[place] for place in sorted(rule) if rule[place]}


class Stencil:
    """The grid of offsets that all partial derivatives up to an order need, each offset once.

    >>> Stencil(dimension=2, order=2, step=0.1).offsets.shape
    torch.Size([9, 2])
    """

    def __init__(self, dimension: int, order: int, step: float) -> None:
        integer("dimension", dimension, 1)
        self.order, self.step = integer("order", order, 1), number("step", step, 0)
        if not self.step > 0:
            raise InputError(
                f"step must be above 0, got {step}. It is the width of a difference, e.g. 1e-3."
            )
        self.indices = [
            index for rank in range(1, order + 1) for index in multi_indices(dimension, rank)
        ]
        rules = [_product(index) for index in self.indices]
        cells = sorted(set(itertools.chain.from_iterable(rules)))
        place = {cell: number for number, cell in enumerate(cells)}
        self.offsets = torch.tensor(cells, dtype=torch.float64) * self.step
        self.weights = torch.zeros(len(rules), len(cells), dtype=torch.float64)
        for row, rule in enumerate(rules):
            columns = [place[cell] for cell in rule]
            self.weights[row, columns] = torch.tensor(list(rule.values()), dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.offsets)

    def around(self, points: Tensor) -> Tensor:
        """Where to evaluate: points × offsets × inputs."""
        return points[:, None] + self.offsets.to(points)

    def derivatives(self, values: Tensor) -> dict[MultiIndex, Tensor]:
        """All partial derivatives from values of shape points × offsets × outputs."""
        found = torch.einsum("rq,nqo->rno", self.weights, values.detach().double().cpu())
        return {
            index: found[row] / self.step ** sum(index) for row, index in enumerate(self.indices)
        }

    def terms(self, values: Tensor) -> Tensor:
        """The terms of Df, one column per order."""
        terms = torch.zeros(len(values), self.order, dtype=torch.float64)
        for index, value in self.derivatives(values).items():
            terms[:, sum(index) - 1] += value.square().sum(1) / factorial(index)
        return terms


@functools.lru_cache(maxsize=4096)
def _product(index: MultiIndex) -> dict[MultiIndex, float]:
    """The rule of a mixed derivative: the product of one rule per input."""
    rules = [central_rule(entry).items() for entry in index]
    return {
        tuple(place for place, _ in chosen): math.prod(weight for _, weight in chosen)
        for chosen in itertools.product(*rules)
    }
