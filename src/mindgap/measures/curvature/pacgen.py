"""pacGen, the PAC-Bayes generalization metric of Wang, Keskar, Xiong and Socher."""

import math
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import (
    Bar,
    Estimate,
    InputError,
    Measure,
    Subject,
    Undefined,
    generator,
    option,
    standard_error,
)
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.hessian_diagonal import CURVATURES, hessian_diagonal, running_squares
from mindgap.ops.curvature.pacgen import (
    EPSILON,
    GAMMA,
    PacGenTerms,
    pacgen_null,
    pacgen_parts,
    radii,
)


class Pacgen(Measure):
    r"""Sum over the weights of the logarithm of their size times the root of the curvature.

    Formula: $\Psi_\kappa = \sum_i \ln\left( (|w_i| + \kappa_i) \max\left( \sqrt{\max(0, H_{ii} +
    \rho \sqrt{m} \kappa_i)}, \frac{1}{\kappa_i} \right) \right), \quad \kappa_i = \gamma |w_i| +
    \epsilon, \quad \rho = \max_i \frac{|H_{ii}(w+u) - H_{ii}(w)|}{|u_i|}$

    Reading: Claimed to be larger where a model generalizes worse; only models of one architecture
    can be compared. Always compare it with ``null``, the same sum with a Hessian of zero, which
    depends on the sizes of the weights alone, and with the weight norm and the training loss. Where
    ``null`` ranks models as Ψ does, the curvature explains nothing. ``rho_only`` keeps ρ and sets
    the diagonal to zero: where it equals Ψ, the single number ρ accounts for all curvature.
    ``capped`` is the share of weights whose term does not depend on the curvature (1/κ is larger),
    ``clipped`` the share of negative curvature set to zero. The paper's squared gradients
    (``squared-gradient``) are a curvature only near the optimum of a likelihood; ``gauss-newton`` is
    the true diagonal of a ReLU network.

    Assumes: A training loss that is convex around the weights, which nobody checks, and a Hessian
    whose Lipschitz constant ρ shows in ``draws`` random steps, of full size κ and random signs.

    >>> Pacgen().curvature
    'squared-gradient'
    """

    method = ("P6",)
    cites = ("wang2018identifying",)
    direction = "lower"
    needs = frozenset({"gradients"})
    invariant_to = frozenset({"sample-order", "duplication"})
    rescaling = "logarithmic"
    cost = "expensive"

    curvature: Literal["squared-gradient", "exact", "gauss-newton", "hutchinson"] = option(
        "squared-gradient", help="what is taken for the diagonal of the Hessian", choices=CURVATURES
    )
    gamma: float = option(GAMMA, help="radius of the noise as a part of the weight's size", low=0)
    epsilon: float = option(EPSILON, help="radius of the noise on a weight of zero", above=0)
    batch_size: int = option(
        128, help="samples whose gradient is squared, for squared gradients", low=1
    )
    probes: int = option(32, help="random directions, for Hutchinson's estimate", low=1)
    draws: int = option(
        4, help="random steps, each of which gives a ρ; their spread gives the error", low=1
    )
    as_published: bool = option(
        False,
        help=(
            "running mean of squared gradients, which depends on the order, and steps of random "
            "size"
        ),
    )
    seed: int = option(0, help="seed of steps and probes", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Ψ, its null, and what every tensor contributes."""
        flat = FlatLoss(subject)
        place = flat.point
        try:
            here = self._diagonal(flat, place, self.seed)
            rhos = [
                self._lipschitz(flat, place, here, self.seed + 1 + draw)
                for draw in range(self.draws)
            ]
        except InputError as error:
            raise Undefined(str(error)) from error
        found = [self._parts(place, here, rho) for rho in rhos]
        values = [float(parts.terms.sum()) for parts in found]
        names = zip(
            flat.named,
            torch.stack([parts.terms for parts in found]).mean(0).split(flat.sizes),
            strict=True,
        )
        parts = {name: float(part.sum()) for name, part in names}
        return Estimate(
            value=math.fsum(values) / self.draws,
            status="heuristic",
            standard_error=standard_error(values) if self.draws > 1 else None,
            terms={
                "null": float(
                    pacgen_null(place.double(), gamma=self.gamma, epsilon=self.epsilon).sum()
                ),
                "rho_only": math.fsum(
                    self._total(place, torch.zeros_like(here), rho) for rho in rhos
                )
                / self.draws,
                "weight_norm": float(place.double().norm()),
                "train_loss": subject.mean_loss("train"),
                "rho": math.fsum(rhos) / self.draws,
                "clipped": _share([parts.clipped for parts in found]),
                "capped": _share([parts.capped for parts in found]),
            },
            details={"by_tensor": parts},
            charts=(
                Bar.of(parts, title="pacGen by tensor", y_label="Ψ", horizontal=True, wide=False),
            ),
        )

    def _diagonal(self, flat: FlatLoss, place: Tensor, seed: int) -> Tensor:
        if self.as_published and self.curvature == "squared-gradient":
            return running_squares(flat, place, batch_size=self.batch_size, seed=seed)
        return hessian_diagonal(
            flat, place, self.curvature, batch_size=self.batch_size, probes=self.probes, seed=seed
        )

    def _lipschitz(self, flat: FlatLoss, place: Tensor, here: Tensor, seed: int) -> float:
        """Estimate ρ from one random step, with the probes of ``here``, so that their noise cancels."""
        radius, source = radii(place.double(), self.gamma, self.epsilon), generator(seed)
        random = torch.rand(len(place), generator=source, dtype=torch.float64).to(place.device)
        factor = 2 * random - 1 if self.as_published else torch.where(random < 0.5, -1.0, 1.0)
        moved = place + (factor * radius).to(place)
        step = (moved - place).abs().double()
        change = (self._diagonal(flat, moved, self.seed) - here).abs()
        return float((change[step > 0] / step[step > 0]).max()) if bool((step > 0).any()) else 0.0

    def _total(self, place: Tensor, diagonal: Tensor, rho: float) -> float:
        return float(self._parts(place, diagonal, rho).terms.sum())

    def _parts(self, place: Tensor, diagonal: Tensor, rho: float) -> PacGenTerms:
        return pacgen_parts(place.double(), diagonal, rho, gamma=self.gamma, epsilon=self.epsilon)


def _share(marks: list[Tensor]) -> float:
    return float(torch.stack(marks).double().mean())
