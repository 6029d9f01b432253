"""The toy network of Appendix A of Wang et al. 2018, and the scores of its weights.

The network is a five-layer perceptron. All layers share one 2×2 matrix, whose diagonal is fixed and
whose other two entries are the free weights. Its samples come from three Gaussian clusters.

The paper leaves several choices open. Here the means of the clusters are Gaussian with standard
deviation 2; the clusters are round, with standard deviation 0.7, and equally likely. The label
separates the third cluster from the other two. The outputs of the fifth layer are the logits. The
paper reports many local optima, and their number depends on the scale of the matrix. Several
placements and scales of the fixed entries were tried on sixteen seeds. The one with the most local
minima was kept: a fixed diagonal of standard deviation 10 and free entries up to 30. Labels from a
threshold on the density were rejected, because the network barely fitted them.
"""

import dataclasses
import math
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from mindgap.core import generator, integer
from mindgap.ops.curvature.pacgen import pacgen_null, pacgen_parts, radii
from mindgap.studies.pacgen.calculus import derivatives, third_norm

LAYERS, CLUSTERS = 5, 3
MEANS, WIDTH, FIXED = 2.0, 0.7, 10.0  # standard deviations: means, a cluster, fixed entries
LARGEST = 30.0  # largest absolute value of a free weight
AT_ONCE = 500_000  # points times samples evaluated together


@dataclasses.dataclass(frozen=True)
class Toy:
    """The toy network with its training samples, in double precision.

    Args:
        means: Means of the clusters.
        fixed: Fixed diagonal of the shared matrix.
        inputs: Inputs of the samples, ``(n, 2)``.
        labels: Labels of the samples, 0 or 1.
    """

    means: Tensor
    fixed: Tensor
    inputs: Tensor
    labels: Tensor

    @classmethod
    def draw(cls, samples: int = 100, seed: int = 0) -> Self:
        """Draw clusters, fixed entries and samples.

        Args:
            samples: Number of training samples.
            seed: For all draws.

        >>> toy = Toy.draw(samples=100, seed=1)
        >>> tuple(toy.inputs.shape), sorted(set(toy.labels.tolist()))
        ((100, 2), [0, 1])
        """
        random = generator(seed)
        means = MEANS * torch.randn(CLUSTERS, 2, generator=random, dtype=torch.float64)
        fixed = FIXED * torch.randn(2, generator=random, dtype=torch.float64)
        return cls(means, fixed, *_samples(means, integer("samples", samples), random))

    def fresh(self, samples: int, seed: int) -> Self:
        """Return the same network and clusters with other samples."""
        inputs, labels = _samples(self.means, integer("samples", samples), generator(seed))
        return dataclasses.replace(self, inputs=inputs, labels=labels)

    def margins(self, first: Tensor, second: Tensor, inputs: Tensor) -> Tensor:
        """Return logit one minus logit zero, for every point and every input.

        Args:
            first: The first free weight of every point.
            second: The second free weight of every point.
            inputs: The inputs, ``(n, 2)``.
        """
        a, b = first.unsqueeze(-1), second.unsqueeze(-1)
        upper, lower = inputs[:, 0], inputs[:, 1]
        for layer in range(LAYERS):
            upper, lower = self.fixed[0] * upper + a * lower, b * upper + self.fixed[1] * lower
            if layer < LAYERS - 1:
                upper, lower = upper.sigmoid(), lower.sigmoid()
        return lower - upper

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the mean cross entropy over the samples at every point."""
        signs = 1.0 - 2.0 * self.labels.double()
        return F.softplus(signs * self.margins(first, second, self.inputs)).mean(-1)

    def losses(self, places: Tensor) -> Tensor:
        """Return ``loss`` at many points, ``(n, 2)``, computed in chunks."""
        parts = places.split(max(1, AT_ONCE // len(self.inputs)))
        return torch.cat([self.loss(*part.unbind(-1)) for part in parts])

    def error(self, places: Tensor) -> Tensor:
        """Return the error rate at each point, ``(n, 2)``."""
        right = (self.margins(places[:, 0], places[:, 1], self.inputs) > 0) == (self.labels > 0)
        return 1 - right.double().mean(-1)


def _samples(means: Tensor, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    cluster = torch.randint(CLUSTERS, (count,), generator=random)
    noise = torch.randn(count, 2, generator=random, dtype=torch.float64)
    return means[cluster] + WIDTH * noise, (cluster > CLUSTERS // 2).long()


ETA, DELTA = 39.0, 0.05  # the paper states η, but not δ
BOX = 13  # grid points per axis over the neighborhood of a point
# Nodes and weights of the three-point Gauss–Legendre rule.
NODES = torch.tensor([-math.sqrt(0.6), 0.0, math.sqrt(0.6)], dtype=torch.float64)
SHARES = torch.tensor([5.0, 8.0, 5.0], dtype=torch.float64) / 18


@dataclasses.dataclass(frozen=True)
class Bound8:
    """Inequality (8) at many points.

    Args:
        bound: Its right-hand side.
        scales: The half widths of the noise, by (9).
    """

    bound: Tensor
    scales: Tensor


def bound8(
    loss: Tensor, weights: Tensor, diagonal: Tensor, lipschitz: Tensor, samples: int
) -> Bound8:
    r"""Compute (8) with :math:`\tau_i = |w_i| + \kappa_i`.

    Negative values of :math:`H_{ii} + \rho \sqrt m \kappa_i / 3` count as zero. As in the paper
    this is an approximation: a valid bound needs a τ that does not depend on the data, and a loss
    that is in [0, 1] and convex within κ.

    Args:
        loss: Training loss at each point.
        weights: The points, ``(n, 2)``.
        diagonal: Diagonals of the Hessians, ``(n, 2)``.
        lipschitz: Lipschitz constants ρ of the Hessian.
        samples: Number of training samples.

    >>> one = torch.ones(1, 2)
    >>> round(float(bound8(torch.zeros(1), one, 300 * one, torch.zeros(1), samples=100).bound), 4)
    0.5188
    """
    reach, count = radii(weights), weights.shape[-1]
    stiffness = ETA * (diagonal / 3 + lipschitz.unsqueeze(-1) * math.sqrt(count) * reach / 9).clamp(
        min=0
    )
    scales = torch.minimum(stiffness.rsqrt(), reach)
    ratio = ((weights.abs() + reach) / scales).log().sum(-1)
    return Bound8(
        loss + (count / 2 + ratio + math.log(1 / DELTA)) / ETA + ETA / (2 * samples), scales
    )


def scores(toy: Toy, places: Tensor, truth: Toy) -> list[dict[str, Any]]:
    """Return loss, curvature, Ψ, bound and true risk of each point.

    Args:
        toy: The network with its training samples.
        places: The points, ``(n, 2)``.
        truth: The same network with fresh samples.
    """
    here, box = derivatives(toy.loss, places), _boxes(places)
    rho = third_norm(toy.loss, box.flatten(0, 1)).view(box.shape[:2]).amax(1)
    bend = derivatives(toy.loss, box.flatten(0, 1)).hessian
    convex = (torch.linalg.eigvalsh(bend)[:, 0] >= 0).view(box.shape[:2]).all(1)
    found = bound8(here.value, places, here.diagonal, rho, len(toy.inputs))
    columns = {
        "place": places,
        "loss": here.value,
        "train_error": toy.error(places),
        "trace": here.trace,
        "rho": rho,
        "psi": pacgen_parts(places, here.diagonal, rho).terms.sum(-1),
        "psi_without_rho": pacgen_parts(places, here.diagonal, 0.0).terms.sum(-1),
        "null": pacgen_null(places).sum(-1),
        "bound": found.bound,
        "risk": truth.losses(places),
        "error": truth.error(places),
        "noisy_risk": noisy_loss(truth, places, found.scales),
        "convex": convex,
    }
    columns["gap"] = columns["risk"] - columns["loss"]
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def noisy_loss(toy: Toy, places: Tensor, scales: Tensor) -> Tensor:
    """Return the mean loss under uniform noise, by Gauss–Legendre quadrature.

    Args:
        toy: The network with its samples.
        places: The points, ``(n, 2)``.
        scales: Half widths of the noise, ``(n, 2)``.
    """
    steps = torch.cartesian_prod(NODES, NODES)
    shares = torch.cartesian_prod(SHARES, SHARES).prod(-1)
    near = places[:, None] + steps * scales[:, None]
    return toy.losses(near.flatten(0, 1)).view(len(places), -1) @ shares


def _boxes(places: Tensor) -> Tensor:
    """Return a grid over the neighborhood of each point, ``(n, BOX², 2)``."""
    line = torch.linspace(-1, 1, BOX, dtype=places.dtype)
    return places[:, None] + torch.cartesian_prod(line, line) * radii(places)[:, None]
