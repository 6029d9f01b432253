r"""A model with random weights, independent of one another: the posterior of a PAC-Bayes bound, and its KL price.

The weights that want a gradient are random, all others and all buffers stay as they are. What
training moves has no unit: with the scale s of the prior, a Gaussian has the mean :math:`c + s\,a`
and the deviation softplus(b); the box has the half width :math:`h = s\,e^{-b^2}` and the center
:math:`c + (s - h) \tanh a`, so it never leaves the prior's box.
"""

import abc
import copy
import math
from typing import Any, Literal, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from mindgap.core import InputError, Inputs, call, choice, generator, number

Kind = Literal["gaussian", "uniform"]
INSIDE = 1 - 1e-6  # of the way to the edge of the prior's box: rounding must not lead out of it
SLIGHT = 0.005  # square root of the nats a weight that a new box costs: nearly the prior's own


class RandomModel(nn.Module, abc.ABC):
    """A copy of ``model`` whose weights are drawn anew for every call; ``center`` and ``scale`` make the prior."""

    center: Tensor
    kind: Kind

    def __init__(self, model: nn.Module, scale: float) -> None:
        super().__init__()
        self.scale = number("scale", scale)
        chosen = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not chosen or self.scale == 0:
            what = f"a scale of {scale}" if chosen else "no weight that wants a gradient"
            raise InputError(
                f"A random model needs weights and a scale above 0, got {what}. Pass another."
            )
        self.network = copy.deepcopy(model).eval().requires_grad_(False)
        self.shapes = {name: p.shape for name, p in chosen.items()}
        self.register_buffer("center", torch.cat([p.detach().flatten() for p in chosen.values()]))
        self.place = nn.Parameter(torch.zeros_like(self.center))
        self.spread = nn.Parameter(torch.full_like(self.center, self.first_spread()))
        self.generator = generator(0)

    def train(self, mode: bool = True) -> Self:
        """Dropout and batch statistics stay off: the bound speaks of one function per draw of weights."""
        self.training = mode
        return self

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The output under one fresh draw of all weights, from ``self.generator``."""
        return functional_call(self.network, self.draw(self.generator), inputs, named)

    def answer(self, weights: dict[str, Tensor], inputs: Inputs) -> Tensor:
        """The output under these weights."""
        held = lambda *given, **named: functional_call(self.network, weights, given, named)  # noqa: E731
        return call(cast("nn.Module", held), inputs, self.center)

    def mean_answer(self, inputs: Inputs) -> Tensor:
        """The output under the mean weights."""
        with torch.no_grad():
            return self.answer(self.named(self.means()), inputs)

    def draw(self, source: torch.Generator, *many: int) -> dict[str, Tensor]:
        """A draw of all random weights, or ``many`` along a first dimension, by name; gradients pass through."""
        return self.named(
            self.means() + self.scales() * self.noise((*many, self.center.numel()), source)
        )

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """A row of numbers (the last dimension), one a weight, in the shapes of the weights."""
        parts = flat.split([shape.numel() for shape in self.shapes.values()], dim=-1)
        leading = flat.shape[:-1]
        return {
            name: part.view(*leading, *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    @abc.abstractmethod
    def first_spread(self) -> float:
        """Where ``spread`` begins, so that the posterior is nearly the prior."""

    @abc.abstractmethod
    def noise(self, shape: tuple[int, ...], source: torch.Generator) -> Tensor:
        """Independent noise of unit scale."""

    @abc.abstractmethod
    def means(self) -> Tensor:
        """Mean of every random weight."""

    @abc.abstractmethod
    def scales(self) -> Tensor:
        """Standard deviation, or half width, of every random weight."""

    @abc.abstractmethod
    def move_to(self, means: Tensor) -> None:
        """Begin at other means than the prior's."""

    @abc.abstractmethod
    def divergence(self) -> Tensor:
        """KL of the posterior from the prior in nats, in double precision, differentiable."""


class GaussianModel(RandomModel):
    """Independent Gaussian weights; the prior is N(center, scale² I).

    >>> float(GaussianModel(nn.Linear(2, 2), 0.1).divergence().detach().abs()) < 1e-6
    True
    """

    kind: Kind = "gaussian"

    def first_spread(self) -> float:
        """The inverse of softplus at the prior's scale."""
        return math.log(math.expm1(self.scale))

    def noise(self, shape: tuple[int, ...], source: torch.Generator) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=source, dtype=self.center.dtype).to(self.center.device)

    def means(self) -> Tensor:
        """Prior mean and what was moved, in units of the prior's scale."""
        return self.center + self.scale * self.place

    def scales(self) -> Tensor:
        """Softplus keeps them above zero."""
        return F.softplus(self.spread)

    def move_to(self, means: Tensor) -> None:
        """Begin there."""
        with torch.no_grad():
            self.place.copy_((means - self.center) / self.scale)

    def divergence(self) -> Tensor:
        """The closed form for diagonal Gaussians."""
        ratio = F.softplus(self.spread.double()) / self.scale
        return (-ratio.log() + (ratio.square() + self.place.double().square() - 1) / 2).sum()


class UniformModel(RandomModel):
    """Independent weights in a box inside the prior's box, which reaches ``scale`` to each side of the center.

    >>> model = UniformModel(nn.Linear(2, 2), 0.1)
    >>> bool(((model.means() - model.center).abs() + model.scales() <= 0.1).all())
    True
    """

    kind: Kind = "uniform"

    def first_spread(self) -> float:
        """Slightly narrower than the prior."""
        return SLIGHT

    def noise(self, shape: tuple[int, ...], source: torch.Generator) -> Tensor:
        """Uniform numbers from -1 to 1."""
        return (
            2 * torch.rand(shape, generator=source, dtype=self.center.dtype).to(self.center.device)
            - 1
        )

    def means(self) -> Tensor:
        """Center of the box."""
        return self.center + INSIDE * (self.scale - self.scales()) * torch.tanh(self.place)

    def scales(self) -> Tensor:
        """Half widths, at most the prior's."""
        return self.scale * torch.exp(-self.spread.square())

    def move_to(self, means: Tensor) -> None:
        """Go as far towards ``means`` as the prior's box allows, where the posterior is half as wide."""
        with torch.no_grad():
            away = ((means - self.center) / self.scale).clamp(-0.95, 0.95)
            half = torch.minimum(torch.exp(-self.spread.square()), 1 - away.abs())
            self.spread.copy_((-half.log()).sqrt())
            self.place.copy_(torch.atanh((away / (1 - half).clamp(min=1e-6)).clamp(-0.999, 0.999)))

    def divergence(self) -> Tensor:
        """The sum of ln(scale / half width)."""
        return self.spread.double().square().sum()


KINDS: dict[str, type[RandomModel]] = {"gaussian": GaussianModel, "uniform": UniformModel}


def random_model(model: nn.Module, kind: str, scale: float) -> RandomModel:
    """A random model around the weights of ``model``, equal to its prior up to a few nats."""
    return KINDS[choice("posterior", kind, KINDS)](model, scale)
