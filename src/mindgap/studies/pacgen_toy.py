"""The toy of the PAC-Bayes paper's Appendix A: a five-layer perceptron of two free weights, and its three clouds.

What the paper leaves open is chosen plainly. The means of the three clouds are normal with standard deviation 2, the
clouds round with standard deviation 0.7 and equally likely. A sample's label is the number of its cloud, binarised at
the median of the three numbers: the third cloud against the other two. The outputs of the fifth layer are the logits.
The paper speaks of many local optima, and the scale decides how many there are. So ways to place the two fixed entries
and their scales were tried on sixteen seeds, and of those that were finished the one with the most local minima was
taken: a fixed diagonal of standard deviation 10 and free entries up to 30. Labels by a threshold of the density were
tried first and left, because the network hardly fitted them.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from mindgap.core.arguments import generator, integer

LAYERS, CLOUDS = 5, 3
MEANS, WIDTH, FIXED = 2.0, 0.7, 10.0  # standard deviations of the means, of a cloud, and of the fixed entries
LARGEST = 30.0  # size of a free weight
AT_ONCE = 500_000  # places times samples evaluated together


@dataclasses.dataclass(frozen=True)
class Toy:
    """The clouds, the fixed diagonal of the shared matrix, and the train samples, in double precision."""

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
