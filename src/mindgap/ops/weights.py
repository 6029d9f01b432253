"""Sample weights from local variance: scaling, controls, density correction, suspects of a wrong label."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from mindgap.core.errors import InputError

Scaling = Literal["max", "min-max"]
Normalize = Literal["mean"]


def scale_weights(
    variance: Tensor, max_weight: float, *, scaling: Scaling = "max", normalize: Normalize | None = None
) -> Tensor:
    r"""Weights from 1 (calm) to ``max_weight`` m (where the variance is largest).

    .. math:: w = 1 + (m - 1) \frac{v}{\max v} \quad (\text{"max"}), \qquad
              w = 1 + (m - 1) \frac{v - \min v}{\max v - \min v} \quad (\text{"min-max"})

    Where all variances are equal there is nothing to tell apart, and ``"min-max"`` gives all weights 1; so does
    ``"max"`` where they are zero. ``normalize="mean"`` divides by the mean weight, so that weighted training takes
    steps of the same size as unweighted training.

    >>> scale_weights(torch.tensor([0.0, 0.5, 1.0]), 5).tolist()
    [1.0, 3.0, 5.0]
    """
    _check(max_weight, scaling, normalize)
    values = variance.detach().double()
    low = float(values.min()) if scaling == "min-max" else 0.0
    spread = float(values.max()) - low
    weights = torch.ones_like(values)
    if spread > 0:
        weights += (max_weight - 1) * ((values - low) / spread)
    return weights / mean(weights) if normalize == "mean" else weights


def mean(values: Tensor) -> float:
    """The mean from an exact sum, which no order of the values changes."""
    return math.fsum(values.tolist()) / len(values)


def permuted(weights: Tensor, generator: torch.Generator) -> Tensor:
    """A control: the same weights on other samples. What it still achieves is not due to the local variance."""
    return weights[torch.randperm(len(weights), generator=generator)]


def uniform(weights: Tensor) -> Tensor:
    """A control: every sample weighs 1."""
    return torch.ones_like(weights)


def density_corrected(variance: Tensor, log_density: Tensor, winsorize: float = 0.05) -> Tensor:
    r"""Variance over density, up to a factor, as importance weighting asks: :math:`w \propto v / p_X`.

    Estimated densities differ by hundreds of powers of ten between samples, so the logarithm is winsorised first: what
    lies outside its ``winsorize`` and ``1 - winsorize`` quantiles is moved onto them. The result is scaled so that the
    densest sample keeps its variance and thinner ones gain.

    >>> density_corrected(torch.ones(3), torch.tensor([0.0, -1.0, -2.0]), winsorize=0).log().tolist()
    [0.0, 1.0, 2.0]
    """
    if not 0 <= winsorize < 0.5:
        raise InputError(f"winsorize must be a number from 0 up to (not with) 0.5, got {winsorize!r}. Try 0.05.")
    density = log_density.double()
    ordered = density.sort().values
    cut = int(winsorize * len(ordered))  # an element, not an interpolation: infinities stay out of the arithmetic
    density = density.clamp(ordered[cut], ordered[-1 - cut])
    rarity = (density.max() - density).clamp_max(600)  # the largest ratio of doubles, with room to multiply
    return variance.double() * rarity.exp()


def suspects(agreement: Tensor, threshold: float = 0.1) -> Tensor:
    """The samples whose class at most a share ``threshold`` of their neighbours carries: perhaps a wrong label.

    >>> suspects(torch.tensor([0.0, 0.1, 0.9])).tolist()
    [True, True, False]
    """
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold must be a number from 0 to 1, got {threshold!r}. It is a share of neighbours.")
    return agreement <= threshold + 1e-12


def outliers(deviation: Tensor, threshold: float = 5.0) -> Tensor:
    """The samples whose value lies more than ``threshold`` standard deviations from those around: perhaps wrong.

    >>> outliers(torch.tensor([0.5, 9.0, torch.inf])).tolist()
    [False, True, True]
    """
    if not threshold > 0:
        raise InputError(f"threshold must be above 0, got {threshold!r}. It counts standard deviations.")
    return deviation > threshold


def _check(max_weight: float, scaling: str, normalize: str | None) -> None:
    if not isinstance(max_weight, int | float) or not 1 <= max_weight < math.inf:
        raise InputError(f"max_weight must be a finite number of at least 1, got {max_weight!r}. 1 means no weighting.")
    if scaling not in ("max", "min-max"):
        raise InputError(f"scaling must be 'max' or 'min-max', got {scaling!r}. Choose one of the two.")
    if normalize not in (None, "mean"):
        raise InputError(f"normalize must be 'mean' or None, got {normalize!r}. Choose one of the two.")
