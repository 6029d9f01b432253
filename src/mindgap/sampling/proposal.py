"""Where to evaluate next: draws from a density that follows the interest of the points known so far."""

import dataclasses
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from mindgap.core import InputError, choice, integer, number
from mindgap.ops.mixture.fit import LARGEST_CHOICE, Mixture, choose_mixture, fit_mixture
from mindgap.sampling.box import Domain

Density = Literal["pool", "exact", "mixture"]
DENSITIES: tuple[str, ...] = get_args(Density)
SMALLEST_POOL = 1024
AT_ONCE = 2**24  # distances held at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draw:
    """How interest becomes new points.

    ``density`` is one of

    - ``"pool"``: uniform candidates, each with the interest of the known points around it, drawn in
        proportion;
    - ``"exact"``: the same with the interest of every candidate computed from the function. More
      exact, and as expensive as the function's derivatives at ``pool`` times as many points;
    - ``"mixture"``: a Gaussian mixture fitted to the known points, each weighted by its interest,
      cut off at the border of the domain: the published algorithm. Once known points are no longer
      spread evenly, each also counts by the share of the domain that lies nearest to it; else every
      round would crowd where the last one did.

    Interest is often heavy-tailed, so that nearly all draws fall on few points; it is first capped
    at its quantile ``cap`` and raised to the power ``temper``. ``cap=1, temper=1`` is interest as
    it stands. ``uniform_share`` of the points are uniform: a safeguard where the interest is wrong.
    ``components`` counts a mixture's Gaussians; 0 leaves the number, up to six, to BIC.
    """

    density: Density = "pool"
    temper: float = 0.5
    cap: float = 0.99
    uniform_share: float = 0.0
    pool: int = 8
    components: int = 3
    restarts: int = 5

    def __post_init__(self) -> None:
        choice("density", self.density, DENSITIES)
        (
            integer("pool", self.pool, 1),
            integer("components", self.components, 0),
            integer("restarts", self.restarts, 1),
        )
        number("uniform_share", self.uniform_share, 0, 1), number("temper", self.temper, 0, 1)
        if not number("cap", self.cap, 0, 1) > 0:
            raise InputError(
                f"cap must be above 0, got {self.cap}. It is a quantile; 1 caps nothing."
            )

    def weights(self, interest: Tensor) -> Tensor:
        """Interest capped and tempered, the largest scaled to one; all equal where nothing is of interest.

        >>> Draw(temper=0.5, cap=1).weights(torch.tensor([0.0, 1.0, 4.0])).tolist()
        [0.0, 0.5, 1.0]
        """
        clean = interest.double().nan_to_num(0.0, 0.0, 0.0).clamp_min(0)
        high = clean.sort().values[max(0, round(self.cap * len(clean)) - 1)]
        high = high if high > 0 else clean.max()
        if not high > 0:
            return torch.ones_like(clean)
        return (clean.clamp_max(high) / high) ** self.temper

    def points(
        self,
        count: int,
        domain: Domain,
        known: Tensor,
        interest: Tensor,
        anywhere: Callable[[Tensor], Tensor] | None,
        random: torch.Generator,
        *,
        even: bool = True,
    ) -> Tensor:
        """``count`` new points, the uniform ones last; ``even`` says that the known points are spread evenly."""
        uniform = round(self.uniform_share * count)
        parts = [domain.uniform(uniform, random)] if uniform else []
        if count > uniform:
            if self.density == "mixture":
                weights = self.weights(interest)
                weights = weights if even else weights * cell_shares(known, domain, random)
                parts.insert(0, self._from_mixture(count - uniform, domain, known, weights, random))
            else:
                parts.insert(
                    0, self._from_pool(count - uniform, domain, known, interest, anywhere, random)
                )
        return torch.cat(parts)

    def mixture(self, known: Tensor, weights: Tensor, seed: int) -> Mixture:
        """The mixture that the density ``"mixture"`` draws from."""
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
        interest: Tensor,
        anywhere: Callable[[Tensor], Tensor] | None,
        random: torch.Generator,
    ) -> Tensor:
        candidates = domain.uniform(max(self.pool * count, SMALLEST_POOL), random)
        if self.density == "exact":
            if anywhere is None:
                raise InputError(
                    "density='exact' must have a function whose interest can be computed "
                    "anywhere, got none. Pass the "
                    "function, or density='pool'."
                )
            weights = self.weights(anywhere(candidates))
        else:
            weights = carried(self.weights(interest), known, candidates, domain)
        return candidates[drawn(weights, count, random)]


def carried(weights: Tensor, known: Tensor, candidates: Tensor, domain: Domain) -> Tensor:
    """The weight of each candidate from the known points next to it, nearer ones counting more.

    As many as a simplex has corners, by the inverse of the squared distance in units of the
    domain's box; at a known point it is that point's weight.
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
    """The share of the domain that lies nearest to each known point, times their number, by uniform draws."""
    rows = domain.box.to_unit(known)
    draws = domain.box.to_unit(domain.uniform(each * len(known), random))
    blocks = draws.split(max(1, AT_ONCE // len(rows)))
    nearest = torch.cat([torch.cdist(block, rows).argmin(1) for block in blocks])
    return torch.bincount(nearest, minlength=len(known)).double() / each


def drawn(weights: Tensor, count: int, random: torch.Generator) -> Tensor:
    """Places drawn one after the other without replacement, by weight; places of weight zero come last.

    The largest of log-weights plus Gumbel noise are such a draw.
    """
    noise = torch.rand(len(weights), dtype=torch.float64, generator=random).clamp_min(1e-300)
    keys = weights.log() - (-noise.log()).log()
    order = torch.where(weights > 0, keys, noise - 1e6)
    return order.topk(count).indices
