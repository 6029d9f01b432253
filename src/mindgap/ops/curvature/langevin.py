"""Langevin dynamics around the weights, in several chains at once."""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import Batch, generator, integer, number
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import differentiating
from mindgap.ops.models.parameters import vmap_or_loop


@dataclasses.dataclass(frozen=True)
class Shrink:
    """The matrix I + Σ (f − 1) v vᵀ, which makes steps along some directions shorter.

    Args:
        vectors: Orthonormal directions v, one per row.
        factors: Their factors f, above zero.

    >>> shrink = Shrink(torch.tensor([[1.0, 0.0]]), torch.tensor([0.25]))
    >>> shrink(torch.ones(1, 2)).tolist(), shrink.root(torch.ones(1, 2)).tolist()
    ([[0.25, 1.0]], [[0.5, 1.0]])
    """

    vectors: Tensor
    factors: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Multiply every row."""
        along = self.vectors.to(rows)
        return rows + (rows @ along.T * (self.factors.to(rows) - 1)) @ along

    def root(self, rows: Tensor) -> Tensor:
        """Multiply every row with the square root of the matrix."""
        return dataclasses.replace(self, factors=self.factors.sqrt())(rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Langevin:
    r"""Stochastic gradient Langevin dynamics that are tied to a point.

    .. math:: w_{t+1} = w_t - \tfrac{\epsilon}{2} \left( b\, g_t + \gamma (w_t - w^*) \right) +
        \sqrt{\epsilon}\, \tfrac{\xi_t + \xi_{t+1}}{2}, \quad g_t = \nabla \hat L_t(w_t) - \nabla
        \hat L_t(w^*) + \nabla \hat L(w^*)

    They sample the density :math:`\exp(-b \hat L(w) - \gamma \lVert w - w^* \rVert^2 / 2)`. Averaging
    the noise of two steps leaves no error of the step size where the loss is quadratic (Leimkuhler
    and Matthews, 2013), so that steps can be long. The gradient of the batch at the center keeps the
    noise of batches from heating the chains (Baker et al., 2019). A constant matrix P in front of
    gradients, and its root in front of the noise, leave the density alone.

    Args:
        inverse_temperature: b, the factor of the loss.
        localization: γ, the strength of the spring.
        step: ε, the step size.
        chains: Chains that run together.
        burn_in: Steps before anything is recorded.
        draws: Steps that are recorded.
        batch_size: Samples per step; all if there are no more.
        seed: Seed of noise and batches.

    >>> from torch import nn
    >>> from mindgap.core import Subject
    >>> data = (torch.ones(2, 1).double(), torch.zeros(2, 1))
    >>> model = nn.Linear(1, 1, bias=False).double()
    >>> _ = model.weight.data.zero_()
    >>> flat = FlatLoss(Subject(model, "mse", data))
    >>> dynamics = Langevin(inverse_temperature=10.0, localization=1e-9, step=0.02, draws=500)
    >>> rises = dynamics.rises(flat)  # the loss is w², so b times the mean rise is a half
    >>> rises.shape, abs(10 * float(rises.mean()) - 0.5) < 0.2
    (torch.Size([4, 500]), True)
    """

    inverse_temperature: float
    localization: float
    step: float
    chains: int = 4
    burn_in: int = 100
    draws: int = 100
    batch_size: int = 512
    seed: int = 0

    def rises(self, flat: FlatLoss, shrink: Shrink | None = None) -> Tensor:
        """Run all chains from the model's weights and return L(w_t) − L(w*), one row per chain.

        Both losses are those of the same samples, so that the noise of batches cancels.

        Args:
            flat: The loss.
            shrink: P, by which steps along directions of high curvature get shorter.
        """
        shrink = shrink or Shrink(torch.zeros(0, len(flat.point)), torch.ones(0))
        center, source = flat.point, generator(self.seed)
        places = center.repeat(integer("chains", self.chains) + 1, 1)  # the last stays at w*
        moving = torch.ones(len(places), 1, dtype=center.dtype, device=center.device)
        moving[-1] = 0
        whole_gradient = flat.gradient(center).to(center)
        whole = next(flat.batches(size=min(flat.samples, self.batch_size)))
        found, kick = list[Tensor](), shrink.root(self._noise(places, source))
        for turn in range(self.burn_in + self.draws):
            losses, slopes = self._evaluated(flat, places, self._batch(flat, whole, source))
            if turn >= self.burn_in:
                found.append((losses[:-1] - losses[-1]).double().cpu())
            last, kick = kick, shrink.root(self._noise(places, source))
            slopes = slopes - slopes[-1] + whole_gradient
            drift = self.inverse_temperature * slopes + self.localization * (places - center)
            noise = math.sqrt(number("step", self.step)) * (last + kick) / 2
            places = places + moving * (noise - self.step / 2 * shrink(drift))
        return torch.stack(found, 1)

    def _noise(self, places: Tensor, source: torch.Generator) -> Tensor:
        return torch.randn(places.shape, generator=source, dtype=torch.float64).to(places)

    def _batch(self, flat: FlatLoss, whole: Batch, source: torch.Generator) -> Batch:
        if flat.samples <= self.batch_size:
            return whole
        index = torch.randperm(flat.samples, generator=source)[: self.batch_size]
        return next(flat.batches(index, self.batch_size))

    def _evaluated(self, flat: FlatLoss, places: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the mean loss of a batch, and its gradient, at every place."""
        at = places.detach().requires_grad_()
        with differentiating(flat):
            losses = vmap_or_loop(lambda point: flat.sum(point, batch), at) / len(batch.target)
            (slopes,) = torch.autograd.grad(losses.sum(), at)
        return losses.detach(), slopes


def potential_scale_reduction(draws: Tensor) -> float:
    """Compute the R̂ of Gelman and Rubin: near one if the chains agree with each other.

    Args:
        draws: One row per chain.

    >>> potential_scale_reduction(torch.tensor([[0.0, 1.0], [0.0, 1.0]])) < 1.01
    True
    """
    length = draws.shape[1]
    within = float(draws.var(1).mean())
    between = float(draws.mean(1).var()) if len(draws) > 1 else 0.0
    if within <= 0:
        return 1.0 if between <= 0 else math.inf
    return math.sqrt((length - 1) / length + between / within)
