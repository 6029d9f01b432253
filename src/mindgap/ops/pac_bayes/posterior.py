r"""Stochastic classifiers: models with independent random weights, as PAC-Bayes needs them.

Weights that require gradients are random; all others and all buffers are fixed. The trained
parameters are ``shift`` a and ``spread`` b. With the center c and scale s of the prior, a Gaussian
has the mean :math:`c + s\,a` and the standard deviation :math:`e^b`. A uniform posterior has the
half width :math:`h = s\,e^{-b^2}` and the center :math:`c + (s - h) \tanh a`, so it never leaves
the box of the prior.

A Gaussian prior may learn its scale, one for every parameter tensor. The prior is then a mixture
over ``GRID``, all of whose scales are equally likely. Its divergence is at most that of one scale
plus ln(200) per tensor, so the best scale may be chosen after the data were seen. The means are
:math:`c + a` then.
"""

import abc
import math
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Inputs, call, choice, copied, generator, number, with_weights

Kind = Literal["gaussian", "uniform"]
INSIDE = 1 - 1e-6  # of the way to the edge of the prior's box: rounding must not leave it
LARGEST_SCALE = 500  # exp of a larger one overflows; the weights of trained networks are below 100
SLIGHT = 0.005  # initial spread of a uniform posterior: 0.000025 nats per weight
FIRST_SCALE = 0.03  # of a Gaussian posterior whose prior learns its scales
GRID = 2 * torch.exp(-torch.arange(200, dtype=torch.float64) / 20)  # the scales that can be learned


class StochasticModel(nn.Module, abc.ABC):
    """A copy of a model whose weights are drawn at random for every call.

    Args:
        model: Its weights are the center of the prior.
        scale: Standard deviation, or half width, of the prior; None to learn it.
    """

    center: Tensor
    kind: Kind
    spread_rate = 1.0  # learning rate of the spread, as a multiple of that of the shift

    def __init__(self, model: nn.Module, scale: float | None) -> None:
        super().__init__()
        self.learned = scale is None
        self.scale = 1.0 if scale is None else number("scale", scale, 0, LARGEST_SCALE)
        chosen = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not chosen or self.scale == 0:
            what = f"a scale of {scale}" if chosen else "no weight that requires a gradient"
            raise InputError(
                f"A stochastic classifier needs trained weights and a scale above 0, got {what}. "
                "Pass another one."
            )
        self.network = copied(model).eval().requires_grad_(False)
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
        return with_weights(self.network, self.draw(self.generator), inputs, named)

    def outputs(self, weights: dict[str, Tensor], inputs: Inputs) -> Tensor:
        """Compute the outputs under these weights."""
        held = lambda *given, **named: with_weights(self.network, weights, given, named)  # noqa: E731
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

    @property
    def sizes(self) -> list[int]:
        """Number of weights in every parameter tensor."""
        return [shape.numel() for shape in self.shapes.values()]

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """Cut vectors with one entry per weight (the last dimension) into the weights' shapes."""
        parts = flat.split(self.sizes, dim=-1)
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

    @property
    def choice_cost(self) -> float:
        """Return what a choice of the prior's scale adds to the divergence, in nats."""
        return 0.0

    def prior_scales(self) -> dict[str, float]:
        """Return the prior's scale of every parameter tensor."""
        return dict.fromkeys(self.shapes, self.scale)


class _GaussianModel(StochasticModel):
    """Independent Gaussian weights; the prior is N(center, scale² I), with a scale per tensor.

    >>> float(_GaussianModel(nn.Linear(2, 2), 0.1).divergence().detach().abs()) < 1e-6
    True
    >>> model = _GaussianModel(nn.Linear(2, 2), None)
    >>> {name: round(scale, 2) for name, scale in model.prior_scales().items()}
    {'weight': 0.03, 'bias': 0.03}
    """

    kind: Kind = "gaussian"
    spread_rate = 3.0

    def first_spread(self) -> float:
        """Return the logarithm of the prior's scale."""
        return math.log(FIRST_SCALE if self.learned else self.scale)

    def noise(self, shape: tuple[int, ...], source: torch.Generator) -> Tensor:
        """Draw standard normal numbers."""
        return torch.randn(shape, generator=source, dtype=self.center.dtype).to(self.center.device)

    def means(self) -> Tensor:
        """Shift the center, in units of a fixed prior's scale."""
        return self.center + self.scale * self.shift

    def scales(self) -> Tensor:
        """Keep them above zero by the exponential."""
        return self.spread.exp()

    def move_to(self, means: Tensor) -> None:
        """Move the means there."""
        with torch.no_grad():
            self.shift.copy_((means - self.center) / self.scale)

    def divergence(self) -> Tensor:
        """Compute the closed form for diagonal Gaussians, tensor by tensor."""
        moments, counts = self._moments()
        # A learned scale is where the divergence is least, so it needs no gradient of its own.
        scales = self._prior_scales(moments.detach(), counts)
        own = self.spread.double().sum()
        return ((moments / scales.square() - counts) / 2 + counts * scales.log()).sum() - own

    def prior_scales(self) -> dict[str, float]:
        """Return the prior's scale of every parameter tensor."""
        with torch.no_grad():
            return dict(
                zip(self.shapes, self._prior_scales(*self._moments()).tolist(), strict=True)
            )

    @property
    def choice_cost(self) -> float:
        """What the choice of the scales adds to the divergence."""
        return len(self.shapes) * math.log(len(GRID)) if self.learned else 0.0

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Sum the second moments of the posterior around the prior's center, tensor by tensor."""
        each = (self.scale * self.shift.double()).square() + (2 * self.spread.double()).exp()
        sums = torch.stack([part.sum() for part in each.split(self.sizes)])
        return sums, torch.tensor(self.sizes, dtype=sums.dtype, device=sums.device)

    def _prior_scales(self, moments: Tensor, counts: Tensor) -> Tensor:
        if not self.learned:
            return torch.full_like(moments, self.scale)
        grid = GRID.to(moments.device)
        divergence = moments[:, None] / (2 * grid.square()) + counts[:, None] * grid.log()
        return grid[divergence.argmin(1)]


class _UniformModel(StochasticModel):
    """Independent uniform weights, contained in the prior U(center - scale, center + scale).

    >>> model = _UniformModel(nn.Linear(2, 2), 0.1)
    >>> bool(((model.means() - model.center).abs() + model.scales() <= 0.1).all())
    True
    """

    kind: Kind = "uniform"

    def first_spread(self) -> float:
        """Return a spread slightly narrower than the prior's."""
        if self.learned:
            raise InputError(
                "A learned scale needs a Gaussian posterior, got a uniform one. Pass a number as "
                "the scale."
            )
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


def stochastic_model(model: nn.Module, kind: str, scale: float | None) -> StochasticModel:
    """Create a stochastic classifier around a model's weights, nearly equal to its prior.

    Args:
        model: The model; weights that require gradients become random.
        kind: ``"gaussian"`` or ``"uniform"``.
        scale: Standard deviation, or half width, of the prior. If None, a Gaussian prior learns
            one for every parameter tensor.

    >>> classifier = stochastic_model(nn.Linear(2, 3), "uniform", 0.1)
    >>> classifier(torch.ones(4, 2)).shape, float(classifier.divergence().detach()) < 0.01
    (torch.Size([4, 3]), True)
    """
    return KINDS[choice("posterior", kind, KINDS)](model, scale)
