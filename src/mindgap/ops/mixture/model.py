"""A Gaussian mixture: its density, samples from it, and samples from it inside a domain."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError, integer
from mindgap.ops.mixture.covariance import SHAPES, Covariance
from mindgap.ops.mixture.points import as_numbers, as_rows
from mindgap.ops.rejection import LIMIT, Accepted, Contains, accept


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
    r"""A Gaussian mixture with density :math:`p(x) = \sum_c \pi_c N(x;\, \mu_c, \Sigma_c)`.

    Attributes:
        weights: π, (components).
        means: μ, (components, dimension).
        covariances: Σ, (components, dimension, dimension).
        covariance: ``"full"`` or ``"diagonal"``.
        history: Weighted mean log-likelihood before each iteration of the fit and after the last.
        converged: Whether the fit converged.
        floor: Smallest standard deviation, in units of each feature's.
        size: Effective number of points of the fit.

    >>> Mixture(torch.ones(1), torch.zeros(1, 1), torch.ones(1, 1, 1)).log_density([[0.0]]).exp()
    tensor([0.3989], dtype=torch.float64)
    """

    weights: Tensor
    means: Tensor
    covariances: Tensor
    covariance: Covariance = "full"
    history: tuple[float, ...] = ()
    converged: bool = False
    floor: float = 0.0
    size: float = math.nan

    def __post_init__(self) -> None:
        for name in ("weights", "means", "covariances"):
            object.__setattr__(self, name, as_numbers(getattr(self, name), name))
        components, dimension = as_rows(self.means, "means").shape
        if self.weights.shape != (components,) or self.covariances.shape != (
            components,
            dimension,
            dimension,
        ):
            raise InputError(
                "weights, means and covariances must have shapes (components), (components, "
                "dimension) and (components, dimension, dimension), got "
                f"{tuple(self.weights.shape)}, {tuple(self.means.shape)} and "
                f"{tuple(self.covariances.shape)}. Reshape them."
            )
        if not bool((self.weights >= 0).all()) or abs(float(self.weights.sum()) - 1) > 1e-6:
            raise InputError(
                "weights must be numbers of at least 0 that sum to 1, got "
                f"{self.weights.tolist()}. Divide by their sum."
            )

    @property
    def components(self) -> int:
        """Number of Gaussians."""
        return self.means.shape[0]

    @property
    def dimension(self) -> int:
        """Number of features."""
        return self.means.shape[1]

    @property
    def iterations(self) -> int:
        """Number of iterations of the fit."""
        return max(0, len(self.history) - 1)

    @property
    def log_likelihood(self) -> float:
        """Weighted mean of the log density at the points of the fit."""
        return self.history[-1] if self.history else math.nan

    @property
    def parameters(self) -> int:
        """Number of free parameters."""
        each = self.dimension + SHAPES[self.covariance].parameters(self.dimension)
        return self.components * each + self.components - 1

    @property
    def bic(self) -> float:
        r"""Bayesian information criterion :math:`p \log n - 2 n \ell`; lower is better."""
        return self.parameters * math.log(self.size) - 2 * self.size * self.log_likelihood

    def log_density(self, points: Any) -> Tensor:
        """Compute the log density at every point."""
        rows = as_rows(points, dimension=self.dimension)
        parts = SHAPES["full"].log_normal(rows, self.means, self.covariances)
        return (parts + self.weights.log()[:, None]).logsumexp(0)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw independent samples, ``(count, dimension)``."""
        integer("count", count, 1)
        owner = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        points = torch.randn(count, self.dimension, dtype=torch.float64, generator=generator)
        for component, factor in enumerate(torch.linalg.cholesky(self.covariances)):
            own = owner == component
            points[own] = self.means[component] + points[own] @ factor.mT
        return points

    def sample_inside(
        self, count: int, contains: Contains, generator: torch.Generator, *, limit: int = LIMIT
    ) -> Accepted:
        """Draw independent samples from the mixture truncated to a domain, by rejection.

        Args:
            count: Number of samples.
            contains: Maps points (n, dimension) to n truth values.
            generator: Source of the draws.
            limit: Proposals after which an error is raised, at least ten times ``count``.

        >>> mixture = Mixture(torch.ones(1), torch.zeros(1, 1), torch.ones(1, 1, 1))
        >>> found = mixture.sample_inside(
        ...     1000, lambda x: x[:, 0] > 0, torch.Generator().manual_seed(0)
        ... )
        >>> bool(found.points.min() > 0), round(found.acceptance, 1)
        (True, 0.5)
        """
        integer("count", count, 1)
        integer("limit", limit, 1)
        advice = "Fit the mixture to points inside the domain, lower its floor, or raise limit."
        return accept(
            lambda size: self.sample(size, generator), contains, count, limit=limit, advice=advice
        )
