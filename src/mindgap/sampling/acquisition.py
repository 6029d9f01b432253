"""The acquisition function: how much an expensive function changes around a point."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, implements, integer, number
from mindgap.ops.taylor.metric import taylor_metric
from mindgap.ops.variance.local import local_variance, sampled_variance
from mindgap.sampling.box import Domain

Function = Callable[[Tensor], Any]
Kind = Literal["derivative", "differences", "sampled", "neighbors"]
ACQUISITIONS: tuple[str, ...] = get_args(Kind)


@implements("T1", "T2", cites=("novello2020variance",))
@dataclasses.dataclass(frozen=True, kw_only=True)
class Acquisition:
    r"""The acquisition function of Taylor Based Sampling: large where a function changes fast.

    Formula: $Df_\epsilon^n(x) = \sum_{1 \le |k| \le n} \epsilon^{|k|} \frac{\lVert \partial^k f(x)
    \rVert^2}{k!}$

    Reading: Without derivatives, the variance of f around x takes the place of Df. New points are
    drawn where it is large. It is zero where the function is flat, and also where no known point
    has met a change yet.

    Assumes: The function is smooth at the scale $\sqrt\epsilon$. The kind ``"derivative"`` needs a
    torch function; ``"differences"`` and ``"sampled"`` call any function at further points;
    ``"neighbors"`` needs the known values only.

    Args:
        kind: ``"derivative"``, the Taylor metric Df by forward-mode differentiation;
            ``"differences"``, Df by central differences; ``"sampled"``, the variance of the
            function under Gaussian noise; or ``"neighbors"``, the variance of the known values
            among the nearest points.
        epsilon: Variance of the noise.
        order: Order of the Taylor metric.
        step: Width of the central differences; chosen by the order and the points if None.
        draws: Calls of the function per point for ``"sampled"``.
        neighbors: Nearest points for ``"neighbors"``, the point itself included; 0 means two per
            input and the point itself.

    >>> acquisition = Acquisition(epsilon=0.01, order=1)
    >>> points = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> acquisition.anywhere(lambda x: x[:, 0] ** 2, points).tolist()
    [0.0, 0.04]
    """

    kind: Kind = "derivative"
    epsilon: float = 1e-3
    order: int = 2
    step: float | None = None
    draws: int = 64
    neighbors: int = 0

    def __post_init__(self) -> None:
        choice("acquisition", self.kind, ACQUISITIONS)
        integer("order", self.order, 1)
        integer("draws", self.draws, 2)
        integer("neighbors", self.neighbors, 0)
        if self.step is not None and not number("step", self.step) > 0:
            raise InputError(f"step must be above 0, got {self.step}. Pass a small width, or None.")
        if not number("epsilon", self.epsilon) > 0:
            raise InputError(
                f"epsilon must be above 0, got {self.epsilon}. It is the variance of the noise."
            )

    @property
    def calls(self) -> bool:
        """Whether computing it calls or differentiates the function."""
        return self.kind != "neighbors"

    def needed(self, domain: Domain) -> int:
        """Count the values that must be known before it can be computed."""
        return 1 if self.calls else self._neighbors(domain)

    def anywhere(self, function: Function, points: Tensor, seed: int = 0) -> Tensor:
        """Compute it from the function itself, at points that need not be evaluated yet.

        Args:
            function: Takes n rows and returns n values or rows.
            points: One row per point.
            seed: Seed of the noise of ``"sampled"``.
        """
        if self.kind == "sampled":
            random = generator(seed)
            return sampled_variance(
                _as_tensor(function),
                points,
                epsilon=self.epsilon,
                samples=self.draws,
                generator=random,
            )
        method: Any = "forward" if self.kind == "derivative" else "differences"
        wrapped = function if self.kind == "derivative" else _as_tensor(function)
        return taylor_metric(
            wrapped, points, epsilon=self.epsilon, order=self.order, method=method, step=self.step
        )

    def of(
        self,
        function: Function | None,
        points: Tensor,
        values: Tensor,
        domain: Domain,
        seed: int = 0,
    ) -> Tensor:
        """Compute it at points whose values are known.

        Args:
            function: Takes n rows and returns n values or rows; None is enough for ``"neighbors"``.
            points: One row per point.
            values: One row per point.
            domain: Its box sets the units in which ``"neighbors"`` measures distances.
            seed: Seed of the noise of ``"sampled"``.
        """
        if not self.calls:
            k = min(self._neighbors(domain), len(points))
            if k < 2:
                return torch.ones(len(points), dtype=torch.float64)
            return local_variance(
                domain.box.to_unit(points), values, k=k, task="regression"
            ).variance
        if function is None:
            raise InputError(
                f"acquisition={self.kind!r} must have a function to call, got none. Pass one, or "
                "acquisition='neighbors'."
            )
        return self.anywhere(function, points, seed)

    def _neighbors(self, domain: Domain) -> int:
        return self.neighbors or 2 * domain.dimension + 1


def _as_tensor(function: Function) -> Callable[[Tensor], Tensor]:
    return lambda rows: torch.as_tensor(function(rows))
