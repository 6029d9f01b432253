"""The toy of the PAC-Bayes paper's Appendix A: a five-layer perceptron of two free weights, and its three clouds.

What the paper leaves open is chosen plainly. The means of the three clouds are normal with standard
deviation 2, the clouds round with standard deviation 0.7 and equally likely. A sample's label is
the number of its cloud, binarized at the median of the three numbers: the third cloud against the
other two. The outputs of the fifth layer are the logits. The paper speaks of many local optima, and
the scale decides how many there are. So ways to place the two fixed entries and their scales were
tried on sixteen seeds, and of those that were finished the one with the most local minima was
taken: a fixed diagonal of standard deviation 10 and free entries up to 30. Labels by a threshold of
the density were tried first and left, because the network hardly fitted them.

What is said of a place on the toy's loss surface: curvature, Ψ, the bound, and what is true.
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

LAYERS, CLOUDS = 5, 3
MEANS, WIDTH, FIXED = (
    2.0,
    0.7,
    10.0,
)  # standard deviations of the means, of a cloud, and of the fixed entries
LARGEST = 30.0  # size of a free weight
AT_ONCE = 500_000  # places times samples evaluated together


@dataclasses.dataclass(frozen=True)
class Toy:
    """The clouds, the fixed diagonal of the shared matrix, and the training samples, in double precision."""

    means: Tensor
    fixed: Tensor
    inputs: Tensor
    labels: Tensor

    @classmethod
    def draw(cls, samples: int = 100, seed: int = 0) -> Self:
        """Everything from one seed.

        >>> toy = Toy.draw(samples=100, seed=1)
        >>> tuple(toy.inputs.shape), sorted(set(toy.labels.tolist()))
        ((100, 2), [0, 1])
        """
        random = generator(seed)
        means = MEANS * torch.randn(CLOUDS, 2, generator=random, dtype=torch.float64)
        fixed = FIXED * torch.randn(2, generator=random, dtype=torch.float64)
        return cls(means, fixed, *_samples(means, integer("samples", samples), random))

    def fresh(self, samples: int, seed: int) -> Self:
        """The same clouds and matrix with other samples."""
        inputs, labels = _samples(self.means, integer("samples", samples), generator(seed))
        return dataclasses.replace(self, inputs=inputs, labels=labels)

    def margins(self, first: Tensor, second: Tensor, inputs: Tensor) -> Tensor:
        """Logit of class one less that of class zero, for every place (two tensors of one shape) and every input."""
        a, b = first.unsqueeze(-1), second.unsqueeze(-1)
        upper, lower = inputs[:, 0], inputs[:, 1]
        for layer in range(LAYERS):
            upper, lower = self.fixed[0] * upper + a * lower, b * upper + self.fixed[1] * lower
            if layer < LAYERS - 1:
                upper, lower = upper.sigmoid(), lower.sigmoid()
        return lower - upper

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        """Mean cross entropy over the samples at every place."""
        signs = 1.0 - 2.0 * self.labels.double()
        return F.softplus(signs * self.margins(first, second, self.inputs)).mean(-1)

    def losses(self, places: Tensor) -> Tensor:
        """``loss`` at many places (n, 2), some at a time."""
        parts = places.split(max(1, AT_ONCE // len(self.inputs)))
        return torch.cat([self.loss(*part.unbind(-1)) for part in parts])

    def error(self, places: Tensor) -> Tensor:
        """Share of samples with a wrong label at each place (n, 2)."""
        right = (self.margins(places[:, 0], places[:, 1], self.inputs) > 0) == (self.labels > 0)
        return 1 - right.double().mean(-1)


def _samples(means: Tensor, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    cloud = torch.randint(CLOUDS, (count,), generator=random)
    noise = torch.randn(count, 2, generator=random, dtype=torch.float64)
    return means[cloud] + WIDTH * noise, (cloud > CLOUDS // 2).long()


ETA, DELTA = 39.0, 0.05  # the paper's η; it does not tell its δ
BOX = 13  # lines, each way, on which the neighborhood of a place is searched
NODES = torch.tensor(
    [-math.sqrt(0.6), 0.0, math.sqrt(0.6)], dtype=torch.float64
)  # Gauss and Legendre's three
SHARES = torch.tensor([5.0, 8.0, 5.0], dtype=torch.float64) / 18


@dataclasses.dataclass(frozen=True)
class Bound8:
    """Inequality (8) at many places: its right side and the widths of the noise (9)."""

    bound: Tensor
    scales: Tensor


def bound8(
    loss: Tensor, weights: Tensor, diagonal: Tensor, lipschitz: Tensor, samples: int
) -> Bound8:
    r"""(8) with :math:`\tau_i = |w_i| + \kappa_i`, where :math:`H_{ii} + \rho \sqrt m \kappa_i / 3 < 0` counts as zero.

    Approximate, as in the paper: τ may not depend on the data, the loss must lie in [0, 1] and be
    convex within κ.

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
    """All that is known of each place (n, 2); ``truth`` holds fresh samples of the same clouds."""
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
    """Mean of the loss under uniform noise of these widths, by Gauss and Legendre's rule of three nodes each way."""
    steps = torch.cartesian_prod(NODES, NODES)
    shares = torch.cartesian_prod(SHARES, SHARES).prod(-1)
    near = places[:, None] + steps * scales[:, None]
    return toy.losses(near.flatten(0, 1)).view(len(places), -1) @ shares


def _boxes(places: Tensor) -> Tensor:
    """A grid over the neighborhood of each place, its edges included: (n, places, 2)."""
    line = torch.linspace(-1, 1, BOX, dtype=places.dtype)
    return places[:, None] + torch.cartesian_prod(line, line) * radii(places)[:, None]
