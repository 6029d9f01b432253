"""The Taylor metric Df: how much a function changes around a point, from its derivatives."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.func import jvp

from mindgap.core import InputError, choice, implements, integer
from mindgap.ops.taylor.stencil import MOST, MultiIndex, Stencil, axes_of, factorial, multi_indices

Function = Callable[[Tensor], Tensor]
Method = Literal["forward", "differences"]
BATCH = 2**15  # rows per pass; with fewer the overhead of a pass counts (benchmarks/taylor.py)
OUTPUTS = 4  # per input, up to which two backward passes are faster than nested forward ones


@implements("V2", cites=("novello2020variance",))
def taylor_metric(
    function: Function,
    points: Tensor,
    *,
    epsilon: float | Sequence[float],
    order: int = 2,
    method: Method = "forward",
    step: float | None = None,
    batch_size: int = BATCH,
) -> Tensor:
    r"""Compute the Taylor metric Df at every point.

    Formula: $Df_\epsilon^n(x) = \sum_{r=1}^{n} \epsilon^r \sum_{|k| = r} \frac{\| \partial^k f(x)
    \|^2}{k!}$

    Reading: Large where the function changes quickly. For n = 2 it is ε‖∇f‖² + ½ε²‖H‖², the
    variance of the second Taylor polynomial under noise of variance ε. The variance of f itself has
    a further term of that order, ε²∇f·∇Δf, from the third derivatives. Outputs are summed.

    Assumes: A function with n derivatives, which treats every row by itself.

    Args:
        function: Takes rows and returns one value or row of values for each.
        points: Where to evaluate, one row per point.
        epsilon: Variance ε of the noise, or several of them.
        order: Highest order n of the derivatives.
        method: ``"forward"`` (differentiation by torch, exact) or ``"differences"`` (central
            differences, for functions that torch cannot differentiate).
        step: Width of the differences; chosen by rounding and truncation errors if None.
        batch_size: Points that are differentiated at once.

    Returns:
        One number per point; one row of them per ``epsilon`` if there are several.

    >>> x = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
    >>> taylor_metric(lambda z: z[:, 0] * z[:, 1] ** 2, x, epsilon=0.5, order=2).tolist()
    [0.0, 20.5]
    """
    several = [epsilon] if isinstance(epsilon, int | float) else list(epsilon)
    if not several or any(not value > 0 for value in several):
        raise InputError(
            f"epsilon must be above 0, got {epsilon!r}. Pass the variance of the noise, such as "
            "1e-3."
        )
    terms = taylor_terms(function, points, order, method=method, step=step, batch_size=batch_size)
    powers = torch.tensor(several, dtype=torch.float64)[:, None] ** torch.arange(1, order + 1)
    found = powers @ terms.T
    return found[0] if isinstance(epsilon, int | float) else found


def taylor_terms(
    function: Function,
    points: Tensor,
    order: int = 2,
    *,
    method: Method = "forward",
    step: float | None = None,
    batch_size: int = BATCH,
) -> Tensor:
    """Compute the terms of Df at every point, one column per order, without powers of ε.

    The arguments are those of :func:`taylor_metric`.

    >>> x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    >>> taylor_terms(lambda z: z[:, 0] * z[:, 1] ** 2, x).tolist()
    [[32.0, 18.0]]
    """
    integer("order", order, 1)
    integer("batch_size", batch_size, 1)
    choice("method", method, ("forward", "differences"))
    checked = _checked(points)
    if method == "differences":
        stencil = Stencil(checked.shape[1], order, step or _default_step(checked, order))
        return torch.cat(
            [
                stencil.terms(_called(function, stencil, block))
                for block in checked.split(batch_size)
            ]
        )
    if step is not None:
        raise InputError(
            f"step must be None with method='forward', got {step}. Leave it out, or pass "
            "method='differences'."
        )
    _check_rows(function, checked)
    return torch.cat([_exact_terms(function, block, order) for block in checked.split(batch_size)])


def partial_derivatives(function: Function, points: Tensor, order: int) -> dict[MultiIndex, Tensor]:
    """Compute all partial derivatives up to ``order`` by nested forward-mode differentiation.

    A nested pass along the axes of a derivative of the highest order also gives the lower ones. So
    there is at most one pass per derivative of the highest order, each 2^order times the cost of
    the function.

    Args:
        function: Takes rows and returns one value or row of values for each.
        points: Where to evaluate, one row per point.
        order: Highest order.

    Returns:
        A table (points, outputs) for each multi-index.

    >>> found = partial_derivatives(lambda z: z[:, :1] ** 3, torch.tensor([[2.0]]), 2)
    >>> {index: float(value) for index, value in found.items()}
    {(1,): 12.0, (2,): 12.0}
    """
    dimension = points.shape[1]
    found: dict[MultiIndex, Tensor] = {}
    for top in multi_indices(dimension, integer("order", order, 1)):
        axes = axes_of(top)
        if order > 1 and not any(
            _index(axes, chosen, dimension) not in found for chosen in _subsets(order)
        ):
            continue
        values = _nested(function, points, [torch.eye(dimension).to(points)[axis] for axis in axes])
        for chosen, value in zip(_subsets(order), values[1:], strict=True):
            found.setdefault(
                _index(axes, chosen, dimension), value.detach().reshape(len(points), -1)
            )
    return found


def _default_step(points: Tensor, order: int) -> float:
    """Choose the step at which rounding and truncation errors of a difference are about equal.

    >>> 1e-4 < _default_step(torch.rand(9, 2, dtype=torch.float64), 2) < 1e-3
    True
    """
    scale = max(float(points.abs().max()), 1.0)
    return float(scale * torch.finfo(points.dtype).eps ** (1 / (order + 2)))


def _exact_terms(function: Function, points: Tensor, order: int) -> Tensor:
    found = _backward_terms(function, points) if order == 2 else None
    return _forward_terms(function, points, order) if found is None else found


def _backward_terms(function: Function, points: Tensor) -> Tensor | None:
    """Differentiate all rows backward twice: with few outputs several times as fast as forward.

    None if there are many outputs, or if torch cannot do it; then it may still be done forward.
    """
    with torch.enable_grad():
        rows = points.clone().requires_grad_()
        try:
            outputs = function(rows).reshape(len(points), -1)
            passes, inputs = outputs.shape[1] * (1 + points.shape[1]), points.shape[1]
            if passes > min(MOST, OUTPUTS * inputs * (1 + inputs)) or not outputs.requires_grad:
                return None
            terms = points.new_zeros(len(points), 2, dtype=torch.float64)
            for output in outputs.T:
                slopes = _slopes(output, rows, again=True)
                terms[:, 0] += slopes.detach().double().square().sum(1)
                for slope in slopes.T if slopes.requires_grad else ():
                    curves = _slopes(slope, rows)
                    terms[:, 1] += curves.double().square().sum(1) / 2
        except (RuntimeError, TypeError, AttributeError, NotImplementedError):
            return None
    return terms


def _slopes(values: Tensor, rows: Tensor, again: bool = False) -> Tensor:
    """Return the gradient of every row's value, since no value depends on another row."""
    (slopes,) = torch.autograd.grad(
        values.sum(), rows, retain_graph=True, create_graph=again, materialize_grads=True
    )
    return slopes


def _forward_terms(function: Function, points: Tensor, order: int) -> Tensor:
    terms = torch.zeros(len(points), order, dtype=torch.float64)
    for index, value in partial_derivatives(function, points, order).items():
        terms[:, sum(index) - 1] += value.double().square().sum(1) / factorial(index)
    return terms


def _nested(function: Function, points: Tensor, directions: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Compute the function and its derivatives along every subset of the directions.

    The derivatives are in the order of :func:`_subsets`.
    """

    def level(depth: int) -> Callable[[Tensor], tuple[Tensor, ...]]:
        if depth == 0:
            return lambda rows: (function(rows),)
        below, direction = level(depth - 1), directions[depth - 1]

        def differentiated(rows: Tensor) -> tuple[Tensor, ...]:
            found = jvp(below, (rows,), (direction.expand_as(rows),))
            return (*found[0], *found[1])

        return differentiated

    load_forward_mode()
    try:
        with torch.no_grad():
            return level(len(directions))(points)
    except (RuntimeError, TypeError, AttributeError, NotImplementedError) as error:
        raise InputError(
            f"The function must be one that torch can differentiate, got {type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}. Write it with torch, or pass "
            "method='differences'."
        ) from error


@functools.cache
def load_forward_mode() -> None:
    """Let torch load its forward-mode rules now, without the deprecation warnings of its parts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))


def _subsets(order: int) -> list[list[int]]:
    """List the directions of each output of a nested pass: the set bits of its number."""
    return [[bit for bit in range(order) if code >> bit & 1] for code in range(1, 2**order)]


def _index(axes: Sequence[int], chosen: Sequence[int], dimension: int) -> MultiIndex:
    taken = [axes[position] for position in chosen]
    return tuple(taken.count(axis) for axis in range(dimension))


def _called(function: Function, stencil: Stencil, points: Tensor) -> Tensor:
    """Evaluate the function around all points, in one call."""
    around = stencil.around(points)
    with torch.no_grad():
        values = torch.as_tensor(function(around.flatten(0, 1)))
    if len(values) != around.shape[0] * around.shape[1]:
        raise InputError(
            f"The function must return one value for each of {around.shape[0] * around.shape[1]} "
            f"rows, got the shape {tuple(values.shape)}. Return one row per row."
        )
    return values.reshape(*around.shape[:2], -1)


def _checked(points: Tensor) -> Tensor:
    if (
        not isinstance(points, Tensor)
        or points.ndim != 2
        or not points.is_floating_point()
        or not points.numel()
    ):
        shape = tuple(points.shape) if isinstance(points, Tensor) else type(points).__name__
        raise InputError(
            f"points must be a tensor of n rows of real numbers, got {shape}. Pass x[:, None] for "
            "one input."
        )
    return points.detach()


def _check_rows(function: Function, points: Tensor) -> None:
    """Raise unless every row is treated by itself.

    All rows are differentiated along one shared direction, which is right only if a row's value
    does not depend on the other rows.
    """
    with torch.no_grad():
        few = points[:2]
        together, alone = torch.as_tensor(function(few)), torch.as_tensor(function(few[:1]))
    if together.ndim == 0 or len(together) != len(few):
        raise InputError(
            f"The function must return one value per row, got the shape {tuple(together.shape)} "
            f"for {len(few)} rows. Return one row per row."
        )
    if not torch.allclose(together[:1], alone, rtol=1e-4, atol=1e-6, equal_nan=True):
        raise InputError(
            "The function must treat every row by itself, got different values for a row alone and "
            "in a batch. Put batch normalization and dropout into evaluation mode."
        )
