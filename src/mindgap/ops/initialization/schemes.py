"""Schemes of initial weights, and the variances that they give."""

import dataclasses
import math
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import InputError, choice, implements, number, validated

SchemeName = Literal[
    "kaiming-normal",
    "kaiming-uniform",
    "xavier-normal",
    "xavier-uniform",
    "orthogonal",
    "lsuv",
    "identity",
]
Fan = Literal["in", "out"]


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How weights are drawn.

    Args:
        name: One of ``SchemeName``.
        fan: Whether Kaiming's schemes keep the variance of activations (``"in"``) or of gradients
            (``"out"``).
        gain: The factor of all weights. If None, it follows from what enters a layer, so that the
            variance stays constant.
    """

    name: SchemeName
    fan: Fan = "in"
    gain: float | None = None

    def __post_init__(self) -> None:
        choice("scheme", self.name, SchemeName.__args__)  # type: ignore[attr-defined]
        choice("fan", self.fan, ("in", "out"))
        if self.fan == "out" and not self.name.startswith("kaiming"):
            raise InputError(
                f"fan must be 'in' for {self.name}, got 'out'. Only Kaiming's schemes can keep the "
                "variance of gradients instead."
            )
        if self.gain is not None:
            number("gain", self.gain)
            if self.name == "lsuv" or self.gain <= 0:
                raise InputError(
                    f"gain must be positive, and left out for lsuv, got {self.gain} for {self.name}. "
                    "LSUV measures it."
                )

    @property
    def shape(self) -> str:
        """What is drawn: ``"normal"``, ``"uniform"`` or ``"orthogonal"``."""
        last = self.name.rpartition("-")[2]
        return {"lsuv": "orthogonal", "identity": "normal"}.get(last, last)

    def condition(self, forward: float, backward: float) -> float:
        r"""Return the variance of the weights that meets the scheme's condition.

        Xavier's compromise :math:`2 / (a + b)` is the harmonic mean of the two variances
        :math:`1/a` and :math:`1/b`, not their average.

        Args:
            forward: By which a unit variance of the weights multiplies the variance of activations.
            backward: By which it multiplies the variance of gradients.

        >>> (
        ...     Scheme("xavier-normal").condition(100.0, 300.0),
        ...     Scheme("kaiming-normal").condition(100.0, 300.0),
        ... )
        (0.005, 0.01)
        """
        if self.name.startswith("xavier"):
            return 2 / (forward + backward)
        return 1 / (backward if self.fan == "out" else forward)


@implements("S2", cites=("he2015delving", "glorot2010understanding", "saxe2014exact"))
@validated
def weight_variance(scheme: Scheme, fan_in: int, fan_out: int) -> float:
    r"""Return the variance of the weights that a scheme with a given gain draws.

    Formula: $\frac{c^2}{d_{in}}, \quad \frac{c^2}{d_{out}}, \quad \frac{2 c^2}{d_{in} + d_{out}},
    \quad \frac{c^2}{\max(d_{in}, d_{out})}$

    Reading: Kaiming with fan in, with fan out, Xavier, orthogonal. With gain $\sqrt 2$ and ReLU,
    Kaiming keeps the variance of activations or of gradients.

    Assumes: A matrix; for a convolution, a fan counts channels times taps.

    Args:
        scheme: With a gain; None counts as 1.
        fan_in: Inputs of a unit.
        fan_out: Units that an input reaches.

    >>> round(weight_variance(Scheme("kaiming-normal", gain=2**0.5), 100, 300), 6)
    0.02
    """
    gain = scheme.gain or 1.0
    if scheme.shape == "orthogonal":
        return gain**2 / max(fan_in, fan_out)
    return gain**2 * scheme.condition(fan_in, fan_out)


@implements("S2", cites=("glorot2010understanding", "saxe2014exact"))
@validated
def drawn(kind: str, shape: tuple[int, ...], variance: float, random: torch.Generator) -> Tensor:
    r"""Draw weights of a given variance.

    Formula: $w \sim N(0, \sigma^2), \quad w \sim U(-r, r) \;\text{with}\; \frac{r^2}{3} = \sigma^2,
    \quad W = \sigma \sqrt{\max(m, n)} \, Q$

    Reading: A uniform distribution on $[-r, r]$ has variance $r^2/3$. An orthogonal matrix keeps
    lengths exactly, and so fluctuates less than independent weights.

    Assumes: The first axis holds the units, all others their inputs.

    Args:
        kind: ``"normal"``, ``"uniform"`` or ``"orthogonal"``.
        shape: Shape of the weights.
        variance: Their variance.
        random: Draws the numbers.

    >>> weights = drawn("uniform", (300, 300), 0.03, torch.Generator().manual_seed(0))
    >>> round(float(weights.var()), 3), round(float(weights.abs().max()), 2)
    (0.03, 0.3)
    """
    choice("kind", kind, ("normal", "uniform", "orthogonal"))
    if kind == "uniform":
        bound = math.sqrt(3 * variance)
        return (2 * torch.rand(shape, generator=random) - 1) * bound
    values = torch.randn(shape, generator=random)
    if kind == "normal":
        return values * math.sqrt(variance)
    flat = values.flatten(1)
    wide = flat.shape[0] < flat.shape[1]
    basis, upper = torch.linalg.qr(flat.T if wide else flat)
    basis = basis * upper.diagonal().sign()  # otherwise not uniform over orthogonal matrices
    scale = math.sqrt(variance * max(flat.shape))
    found: Tensor = ((basis.T if wide else basis) * scale).reshape(shape)
    return found
