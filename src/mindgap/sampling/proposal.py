"""The proposal: new points drawn from a density that follows the acquisition function."""

import dataclasses
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from mindgap.core import InputError, choice, implements, integer, number
from mindgap.ops.mixture.fit import LARGEST_CHOICE, choose_mixture, fit_mixture
from mindgap.ops.mixture.model import Mixture
from mindgap.sampling.box import Domain

Kind = Literal["pool", "exact", "mixture"]
PROPOSALS: tuple[str, ...] = get_args(Kind)
SMALLEST_POOL = 1024
AT_ONCE = 2**24  # distances held at once


@implements("T1", "T2", cites=("novello2020variance",))
@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    r"""The proposal density of Taylor Based Sampling: how acquisition values become new points.

    Formula: $p(x) ∝ \min(a(x), q)^\tau, \quad x \in S$

    Reading: S is the domain, a the acquisition function, q its quantile at the level ``cap`` and τ
    is ``temper``. Acquisition values are often heavy-tailed: taken as they are, nearly all new
    points fall on a few spots. Capping and tempering spread them. ``cap=1, temper=1`` with the kind
    ``"mixture"`` is the published algorithm.

    Assumes: The known points have met the places where the function changes. A ``uniform_share``
    above zero guards against places that they have missed.

    Args:
        kind: ``"pool"`` draws from uniform candidates, in proportion to the values carried over
            from the known points around each. ``"exact"`` computes the acquisition function at
            every candidate, which costs ``pool`` times as many evaluations of it as there are new
            points. ``"mixture"`` draws from a Gaussian mixture that is fitted to the known points,
            weighted by their values, and truncated to the domain.
        temper: Power to which capped values are raised.
        cap: Quantile at which values are capped; 1 caps nothing.
        uniform_share: Share of the new points that are uniform.
        pool: Candidates per new point.
        components: Gaussians of the mixture; 0 lets BIC choose up to six.
        restarts: Times that the mixture is fitted; the best fit counts.

    >>> Proposal(temper=0.5, cap=1).weights(torch.tensor([0.0, 1.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    """

    kind: Kind = "pool"
    temper: float = 0.5
    cap: float = 0.99
    uniform_share: float = 0.0
    pool: int = 8
    components: int = 3
    restarts: int = 5

    def __post_init__(self) -> None:
        choice("proposal", self.kind, PROPOSALS)
        integer("pool", self.pool, 1)
        integer("components", self.components, 0)
        integer("restarts", self.restarts, 1)
        number("uniform_share", self.uniform_share, 0, 1)
        number("temper", self.temper, 0, 1)
        if not number("cap", self.cap, 0, 1) > 0:
            raise InputError(
                f"cap must be above 0, got {self.cap}. It is a quantile; 1 caps nothing."
            )

    def weights(self, acquisition: Tensor) -> Tensor:
        """Cap and temper acquisition values, and scale the largest to one.

        Where no value is above zero, all weights are equal.
        """
        clean = acquisition.double().nan_to_num(0.0, 0.0, 0.0).clamp_min(0)
        high = clean.sort().values[max(0, round(self.cap * len(clean)) - 1)]
        # A single spike among zeros lies above the quantile, which is then zero and caps nothing.
        high = high if high > 0 else clean.max()
        if not high > 0:
            return torch.ones_like(clean)
        return (clean.clamp_max(high) / high) ** self.temper

    def points(
        self,
        count: int,
        domain: Domain,
        known: Tensor,
        acquisition: Tensor,
        anywhere: Callable[[Tensor], Tensor] | None,
        random: torch.Generator,
        *,
        even: bool = True,
    ) -> Tensor:
        """Draw new points, the uniform ones last.

        Args:
            count: Number of new points.
            domain: Where they may lie.
            known: Points whose values are known, one row per point.
            acquisition: Acquisition values of the known points.
            anywhere: The acquisition function itself, which the kind ``"exact"`` needs.
            random: Source of randomness.
            even: Whether the known points are spread evenly over the domain.
        """
        uniform = round(self.uniform_share * count)
        parts = [domain.uniform(uniform, random)] if uniform else []
        if count > uniform:
            if self.kind == "mixture":
                weights = self.weights(acquisition)
                # Known points that earlier rounds gathered in one place would attract the next
                # round by their number as well as by their values. Their cells undo the former.
                weights = weights if even else weights * cell_shares(known, domain, random)
                parts.insert(0, self._from_mixture(count - uniform, domain, known, weights, random))
            else:
                parts.insert(
                    0,
                    self._from_pool(count - uniform, domain, known, acquisition, anywhere, random),
                )
        return torch.cat(parts)

    def mixture(self, known: Tensor, weights: Tensor, seed: int) -> Mixture:
        """Fit the mixture that the kind ``"mixture"`` draws from."""
        distinct = len(known[weights > 0].unique(dim=0))
        if self.components == 0:
            sizes = range(1, min(LARGEST_CHOICE, distinct) + 1)
            return choose_mixture(known, weights, sizes, restarts=self.restarts, seed=seed)
        return fit_mixture(
            known, weights, min(self.components, distinct), restarts=self.restarts, seed=seed
        )

    def _from_mixture(
        self, count: int, domain: Domain, known: Tensor, weights: Tensor, random: torch.Generator
    ) -> Tensor:
        seed = int(torch.randint(2**31, (1,), generator=random))
        return (
            self.mixture(known, weights, seed).sample_inside(count, domain.contains, random).points
        )

    def _from_pool(
        self,
        count: int,
        domain: Domain,
        known: Tensor,
        acquisition: Tensor,
        anywhere: Callable[[Tensor], Tensor] | None,
        random: torch.Generator,
    ) -> Tensor:
        candidates = domain.uniform(max(self.pool * count, SMALLEST_POOL), random)
        if self.kind == "exact":
            if anywhere is None:
                raise InputError(
                    "proposal='exact' must have an acquisition function that can be computed "
                    "anywhere, got none. Pass the function to sample, or proposal='pool'."
                )
            weights = self.weights(anywhere(candidates))
        else:
            weights = carried(self.weights(acquisition), known, candidates, domain)
        return candidates[drawn(weights, count, random)]


def carried(weights: Tensor, known: Tensor, candidates: Tensor, domain: Domain) -> Tensor:
    """Interpolate the weights of the known points to each candidate, nearer ones counting more.

    As many known points count as a simplex has corners, by the inverse of the squared distance in
    units of the domain's box. At a known point the result is that point's weight.
    """
    near = min(domain.dimension + 1, len(known))
    rows, others = domain.box.to_unit(known), domain.box.to_unit(candidates)
    found = []
    for block in others.split(max(1, AT_ONCE // len(rows))):
        distance, place = torch.cdist(block, rows).topk(near, dim=1, largest=False)
        closeness = 1 / distance.square().clamp_min(1e-24)
        found.append((closeness * weights[place]).sum(1) / closeness.sum(1))
    return torch.cat(found)


def cell_shares(known: Tensor, domain: Domain, random: torch.Generator, each: int = 32) -> Tensor:
    """Estimate the share of the domain nearest to each known point, times the number of points.

    ``each`` uniform draws per known point are counted where they fall.
    """
    rows = domain.box.to_unit(known)
    draws = domain.box.to_unit(domain.uniform(each * len(known), random))
    blocks = draws.split(max(1, AT_ONCE // len(rows)))
    nearest = torch.cat([torch.cdist(block, rows).argmin(1) for block in blocks])
    return torch.bincount(nearest, minlength=len(known)).double() / each


def drawn(weights: Tensor, count: int, random: torch.Generator) -> Tensor:
    """Draw indices by weight without replacement; those of weight zero come last."""
    # The largest of log-weights plus Gumbel noise are such a draw, without a loop over draws.
    noise = torch.rand(len(weights), dtype=torch.float64, generator=random).clamp_min(1e-300)
    keys = weights.log() - (-noise.log()).log()
    order = torch.where(weights > 0, keys, noise - 1e6)
    return order.topk(count).indices
