r"""Stochastic classifiers: models with independent random weights, as PAC-Bayes needs them.

Weights that require gradients are random; all others and all buffers are fixed. The trained
parameters ``shift`` a and ``spread`` b have no unit. With the center c and scale s of the prior, a
Gaussian has the mean :math:`c + s\,a` and the standard deviation softplus(b). A uniform posterior
has the half width :math:`h = s\,e^{-b^2}` and the center :math:`c + (s - h) \tanh a`, so it never
leaves the box of the prior.
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
INSIDE = 1 - 1e-6  # of the way to the edge of the prior's box: rounding must not leave it
LARGEST_SCALE = 500  # exp of a larger one overflows; the weights of trained networks are below 100
SLIGHT = 0.005  # initial spread of a uniform posterior: 0.000025 nats per weight


class StochasticModel(nn.Module, abc.ABC):
    """A copy of a model whose weights are drawn at random for every call.

    Args:
        model: Its weights are the center of the prior.
        scale: Standard deviation, or half width, of the prior.
    """

    center: Tensor
    kind: Kind

    def __init__(self, model: nn.Module, scale: float) -> None:
        super().__init__()
        self.scale = number("scale", scale, 0, LARGEST_SCALE)
        chosen = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not chosen or self.scale == 0:
            what = f"a scale of {scale}" if chosen else "no weight that requires a gradient"
            raise InputError(
                f"A stochastic classifier needs trained weights and a scale above 0, got {what}. "
                "Pass another one."
            )
        self.network = copy.deepcopy(model).eval().requires_grad_(False)
        self.shapes = {name: p.shape for name, p in chosen.items()}
        self.register_buffer("center", torch.cat([p.detach().flatten() for p in chosen.values()]))
        self.shift = nn.Parameter(torch.zeros_like(self.center))
        self.spread = nn.Parameter(torch.full_like(self.center, self.first_spread()))
        self.generator = generator(0)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of this module only."""
        # The network stays in evaluation mode, because the bound is about one function per draw of
        # the weights: dropout and batch statistics would make it another one at every call.
        self.training = mode
        return self

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Compute the outputs under a new draw of all weights from ``self.generator``."""
        return functional_call(self.network, self.draw(self.generator), inputs, named)

    def outputs(self, weights: dict[str, Tensor], inputs: Inputs) -> Tensor:
        """Compute the outputs under these weights."""
        held = lambda *given, **named: functional_call(self.network, weights, given, named)  # noqa: E731
        return call(cast("nn.Module", held), inputs, self.center)

    def mean_outputs(self, inputs: Inputs) -> Tensor:
        """Compute the outputs under the mean weights."""
        with torch.no_grad():
            return self.outputs(self.named(self.means()), inputs)

    def draw(self, source: torch.Generator, *many: int) -> dict[str, Tensor]:
        """Draw all random weights, or ``many`` along a first dimension; gradients pass through."""
        return self.named(
            self.means() + self.scales() * self.noise((*many, self.center.numel()), source)
        )

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """Cut vectors with one entry per weight (the last dimension) into the weights' shapes."""
        parts = flat.split([shape.numel() for shape in self.shapes.values()], dim=-1)
        leading = flat.shape[:-1]
        return {
            name: part.view(*leading, *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    @abc.abstractmethod
    def first_spread(self) -> float:
        """Return the ``spread`` at which the posterior is nearly the prior."""

    @abc.abstractmethod
    def noise(self, shape: tuple[int, ...], source: torch.Generator) -> Tensor:
        """Draw independent noise of unit scale."""

    @abc.abstractmethod
    def means(self) -> Tensor:
        """Compute the mean of every random weight."""

    @abc.abstractmethod
    def scales(self) -> Tensor:
        """Compute the standard deviation, or half width, of every random weight."""

    @abc.abstractmethod
    def move_to(self, means: Tensor) -> None:
        """Move the means away from those of the prior."""

    @abc.abstractmethod
    def divergence(self) -> Tensor:
        """Compute the KL of the posterior from the prior, differentiable, in double precision."""


class _GaussianModel(StochasticModel):
    """Independent Gaussian weights; the prior is N(center, scale² I).

    >>> float(_GaussianModel(nn.Linear(2, 2), 0.1).divergence().detach().abs()) < 1e-6
    True
    """

    kind: Kind = "gaussian"

    def first_spread(self) -> float:
        """Return the inverse of softplus at the prior's scale."""
        return math.log(math.expm1(self.scale))

    def noise(self, shape: tuple[int, ...], source: torch.Generator) -> Tensor:
        """Draw standard normal numbers."""
        return torch.randn(shape, generator=source, dtype=self.center.dtype).to(self.center.device)

    def means(self) -> Tensor:
        """Shift the center, in units of the prior's scale."""
        return self.center + self.scale * self.shift

    def scales(self) -> Tensor:
        """Keep them above zero by softplus."""
        return F.softplus(self.spread)

    def move_to(self, means: Tensor) -> None:
        """Move the means there."""
        with torch.no_grad():
            self.shift.copy_((means - self.center) / self.scale)

    def divergence(self) -> Tensor:
        """Compute the closed form for diagonal Gaussians."""
        ratio = F.softplus(self.spread.double()) / self.scale
        return (-ratio.log() + (ratio.square() + self.shift.double().square() - 1) / 2).sum()


class _UniformModel(StochasticModel):
    """Independent uniform weights, contained in the prior U(center - scale, center + scale).

    >>> model = _UniformModel(nn.Linear(2, 2), 0.1)
    >>> bool(((model.means() - model.center).abs() + model.scales() <= 0.1).all())
    True
    """

    kind: Kind = "uniform"

    def first_spread(self) -> float:
        """Return a spread slightly narrower than the prior's."""
        return SLIGHT

    def noise(self, shape: tuple[int, ...], source: torch.Generator) -> Tensor:
        """Draw uniform numbers from -1 to 1."""
        drawn = torch.rand(shape, generator=source, dtype=self.center.dtype)
        return 2 * drawn.to(self.center.device) - 1

    def means(self) -> Tensor:
        """Compute the center of the box."""
        return self.center + INSIDE * (self.scale - self.scales()) * torch.tanh(self.shift)

    def scales(self) -> Tensor:
        """Compute half widths, at most the prior's."""
        return self.scale * torch.exp(-self.spread.square())

    def move_to(self, means: Tensor) -> None:
        """Move towards ``means`` as far as the prior's box allows."""
        with torch.no_grad():
            # A box at distance ``away`` from the center has room for a half width of 1 - away. The
            # clamps keep both parametrizations finite at the edge of the prior.
            away = ((means - self.center) / self.scale).clamp(-0.95, 0.95)
            half = torch.minimum(torch.exp(-self.spread.square()), 1 - away.abs())
            self.spread.copy_((-half.log()).sqrt())
            self.shift.copy_(torch.atanh((away / (1 - half).clamp(min=1e-6)).clamp(-0.999, 0.999)))

    def divergence(self) -> Tensor:
        """Sum ln(scale / half width), which is the squared spread."""
        return self.spread.double().square().sum()


KINDS: dict[str, type[StochasticModel]] = {"gaussian": _GaussianModel, "uniform": _UniformModel}


def stochastic_model(model: nn.Module, kind: str, scale: float) -> StochasticModel:
    """Create a stochastic classifier around a model's weights, nearly equal to its prior.

    Args:
        model: The model; weights that require gradients become random.
        kind: ``"gaussian"`` or ``"uniform"``.
        scale: Standard deviation, or half width, of the prior.

    >>> classifier = stochastic_model(nn.Linear(2, 3), "uniform", 0.1)
    >>> classifier(torch.ones(4, 2)).shape, float(classifier.divergence().detach()) < 0.01
    (torch.Size([4, 3]), True)
    """
    return KINDS[choice("posterior", kind, KINDS)](model, scale)
