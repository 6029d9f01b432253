"""How much held-out samples differ from training samples in path space, and what follows."""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import generator, implements
from mindgap.ops.paths.gram import Gram, gram
from mindgap.ops.paths.largest import BUDGET, largest_over_paths, path_bound, path_cost
from mindgap.ops.paths.norms import log_path_norms
from mindgap.ops.paths.spectrum import largest_eigenvalues
from mindgap.ops.paths.subject import Sides

ROUGH = 1e-4  # relative error of eigenvalues that are only compared
FEW = 19  # permutations where each is expensive; p-values are multiples of 1/20


@dataclasses.dataclass(frozen=True)
class Compared:
    """A number next to those of random divisions into held-out and training samples.

    Args:
        value: The number itself.
        null: The numbers of the random divisions.
        exact: Whether they are values; else they are upper bounds, all in the same way.
    """

    value: float
    null: Tensor
    exact: bool = True

    @property
    def p_value(self) -> float:
        """The share of divisions, the actual one included, with a number at least as large."""
        slack = 1e-9 * abs(self.value)
        return (1 + int((self.null >= self.value - slack).sum())) / (1 + len(self.null))

    @property
    def median(self) -> float:
        """The median of the random divisions."""
        return float(self.null.quantile(0.5))


def divisions(sides: Sides, count: int, seed: int) -> Tensor:
    """Return the weights of random divisions, one per column, into groups of the same sizes."""
    weights, random = sides.weights, generator(seed)
    columns = [weights[torch.randperm(len(weights), generator=random)] for _ in range(count)]
    return torch.stack(columns, 1)


def compared_moments(sides: Sides, null: Tensor) -> Compared:
    """Return β₁ relative to the mean squared norm of the features, which depends on the width.

    Args:
        sides: The samples.
        null: Weights of random divisions.
    """
    products, log_paths = gram(sides.chain, sides.inputs), _log_paths(sides)
    mean = float(products.matrix.diagonal().mean()) or 1.0
    value = largest_eigenvalues(products.matrix, sides.weights[:, None], log_paths)
    others = largest_eigenvalues(products.matrix, null, log_paths, tolerance=ROUGH)
    return Compared(float(value) / mean, others / mean)


def compared_targets(sides: Sides, null: Tensor, budget: float) -> Compared:
    """Return β₂, the largest over outputs and paths, exactly if the budget allows it.

    Args:
        sides: The samples.
        null: Weights of random divisions.
        budget: Multiplications that may be spent on all divisions together.
    """
    columns = torch.cat([sides.weights[:, None], null[:, :FEW]], 1)
    coefficients = (sides.targets[:, :, None] * columns[:, None, :]).flatten(1)
    cost = path_cost(sides.chain, sides.inputs, coefficients)
    if cost <= budget:
        whole = largest_over_paths(sides.chain, sides.inputs, coefficients, budget=budget)
        found, exact = whole.values, whole.exact
    else:
        found, exact = path_bound(sides.chain, sides.inputs, coefficients), False
    largest = found.view(-1, columns.shape[1]).amax(0)
    return Compared(float(largest[0]), largest[1:], exact)


def compared_squares(sides: Sides, null: Tensor) -> Compared:
    """Return β₃, the difference of the targets' mean squared norms."""
    squares = sides.targets.square().sum(1)
    # Rounding aside, classes have the same squares everywhere.
    value, others = float(sides.weights @ squares), null.T @ squares
    tiny = 1e-12 * float(squares.max())
    return Compared(
        0.0 if abs(value) <= tiny else value, torch.where(others.abs() <= tiny, 0.0, others)
    )


@dataclasses.dataclass(frozen=True)
class Proposition:
    """The parts of Proposition 4, for the squared loss summed over outputs.

    Args:
        gap: Mean loss on held-out samples minus that on training samples.
        quadratic: The part of the gap that is quadratic in the outputs, exactly.
        linear: The part that is linear in them, exactly.
        beta_1: λ_max of the difference of second moments, infinite if it overflows.
        quadratic_limit: β₁ times the squared norm of all path weights; zero if β₁ is negative.
        beta_2: For each output the largest correlation of targets and a path.
        beta_3: The difference of the targets' mean squares, which is the rest of the gap.
        squares: Squared norms of the path weights, by output.
        sums: Sums of the path weights' sizes, by output.
        exact: Whether ``beta_2`` are values, not only upper bounds.
    """

    gap: float
    quadratic: float
    linear: float
    beta_1: float
    quadratic_limit: float
    beta_2: Tensor
    beta_3: float
    squares: Tensor
    sums: Tensor
    exact: bool

    @property
    def limit(self) -> float:
        """The right side, with the β₂ of each output."""
        linear = 2 * float((self.beta_2 * self.sums).sum())
        return self.quadratic_limit + linear + self.beta_3

    @property
    def as_published(self) -> float:
        """The right side, with the largest β₂ for all outputs."""
        linear = 2 * float(self.beta_2.max() * self.sums.sum())
        return self.quadratic_limit + linear + self.beta_3


@implements("K4", cites=("kawaguchi2017generalization",))
def proposition_4(sides: Sides, *, budget: float = BUDGET) -> Proposition:
    r"""Evaluate both sides of Proposition 4 on held-out and training samples.

    Formula: $\mathrm{gap} = \sum_k w_k^\top \Delta w_k + 2 \sum_k \langle c_k, w_k \rangle + b \le
    \beta_1 \sum_k \lVert w_k \rVert_2^2 + 2 \sum_k \beta_{2,k} \lVert w_k \rVert_1 + \beta_3$

    Reading: An inequality between sums over the given samples, so that it always holds. It says
    nothing about a population, because E[·] is the mean over the held-out samples.

    Assumes: The squared loss, summed over outputs. β₁ counts as zero if it is negative.

    Args:
        sides: The network with its held-out and training samples.
        budget: Multiplications to spend on β₂.

    >>> from mindgap.core import Subject
    >>> from mindgap.nets import MLP
    >>> from mindgap.ops.paths.subject import sides_of
    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> subject = Subject(MLP((1, 4, 1)), "mse", (x[::2], x[::2]), (x[1::2], x[1::2]))
    >>> found = proposition_4(sides_of(subject, 100, 0))
    >>> found.gap <= found.limit
    True
    """
    weights, outputs, targets = sides.weights, sides.outputs, sides.targets
    products: Gram = gram(sides.chain, sides.inputs)
    largest = float(largest_eigenvalues(products.matrix, weights[:, None], _log_paths(sides)))
    norms = log_path_norms(sides.chain, 2)
    correlated = largest_over_paths(
        sides.chain, sides.inputs, targets * weights[:, None], budget=budget
    )
    return Proposition(
        gap=sides.gap,
        quadratic=float(weights @ outputs.square().sum(1)),
        linear=float(-2 * (weights @ (outputs * targets).sum(1))),
        beta_1=_scaled(largest, products.log_scale),
        # In deep networks one factor overflows and the other underflows.
        quadratic_limit=_scaled(max(largest, 0), products.log_scale + float(norms.logsumexp(0))),
        beta_2=correlated.values,
        beta_3=float(weights @ targets.square().sum(1)),
        squares=norms.exp(),
        sums=log_path_norms(sides.chain, 1).exp(),
        exact=correlated.exact,
    )


def _scaled(value: float, log_scale: float) -> float:
    """Return a number times exp(log_scale), infinite if that is too large."""
    logarithm = log_scale + math.log(abs(value)) if value else -math.inf
    return math.copysign(math.exp(logarithm) if logarithm < 709 else math.inf, value)


def _log_paths(sides: Sides) -> float:
    return float(log_path_norms(sides.chain, 0)[0])
