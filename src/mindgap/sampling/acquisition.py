"""How interesting each evaluated point is: how much the function changes around it."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, integer, number
from mindgap.ops.taylor.metric import taylor_metric
from mindgap.ops.variance.local import local_variance, sampled_variance
from mindgap.sampling.box import Domain

Function = Callable[[Tensor], Any]
Kind = Literal["derivative", "differences", "sampled", "neighbors"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interest:
    """Which quantity says where a function changes quickly, and with which settings.

    ``kind`` is one of

    - ``"derivative"``: the Taylor metric Df by forward-mode differentiation; needs a torch
    function; - ``"differences"``: Df by central differences; costs further calls of the function
    around every point; - ``"sampled"``: the variance of the function under noise; costs ``draws``
    calls a point; - ``"neighbors"``: the variance of the known values among the nearest points: no
    derivatives, no further calls.

    ``epsilon`` is the variance of the noise and ``order`` that of Df. ``neighbors`` counts the
    point itself; 0 takes two an input and the point.
    """

    kind: Kind = "derivative"
    epsilon: float = 1e-3
    order: int = 2
    step: float | None = None
    draws: int = 64
    neighbors: int = 0

    def __post_init__(self) -> None:
        choice("interest", self.kind, KINDS)
        (
            integer("order", self.order, 1),
            integer("draws", self.draws, 2),
            integer("neighbors", self.neighbors, 0),
        )
        if not number("epsilon", self.epsilon) > 0:
            raise InputError(
                f"epsilon must be above 0, got {self.epsilon}. It is the variance of the noise."
            )

    @property
    def calls(self) -> bool:
        """Whether the function is called again, or differentiated, for it."""
        return self.kind != "neighbors"

    def needed(self, domain: Domain) -> int:
        """How many values must be known before it can be told."""
        return 1 if self.calls else self._neighbors(domain)

    def anywhere(self, function: Function, points: Tensor, seed: int = 0) -> Tensor:
        """The interest of any points, evaluated or not, from the function itself."""
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
        """The interest of points whose values are known."""
        if not self.calls:
            k = min(self._neighbors(domain), len(points))
            if k < 2:
                return torch.ones(len(points), dtype=torch.float64)
            return local_variance(
                domain.box.to_unit(points), values, k=k, task="regression"
            ).variance
        if function is None:
            raise InputError(
                f"interest={self.kind!r} must have a function to call, got none. Pass one, or "
                "interest='neighbors'."
            )
        return self.anywhere(function, points, seed)

    def _neighbors(self, domain: Domain) -> int:
        return self.neighbors or 2 * domain.dimension + 1


def _as_tensor(function: Function) -> Callable[[Tensor], Tensor]:
    return lambda rows: torch.as_tensor(function(rows))
