"""Units of inputs: the factor and offset between the quantiles of training and test inputs."""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.ops.evidence.inputs import channels, unchanneled
from mindgap.ops.evidence.rows import Rows

FACTOR = 1.5  # between spreads, below which two samples of one source may differ by chance
PLAIN = 3.0  # between spreads: beyond it no mixture of the same samples explains the factor
OFFSET = 3.0  # training deviations; less is a shift of the inputs, not of their zero
# Left after the best factor and offset, as a share of the spread. Random splits of images and waves
# leave at most 0.03 at 500 samples. Columns with long tails leave up to 0.5, with factors up to 2:
# for them the test of Kolmogorov and Smirnov decides.
RESIDUAL = 0.12
LEVELS = torch.linspace(0.0125, 0.9875, 40, dtype=torch.float64)
SAMPLES, VALUES = 2_000, 100_000  # samples, and values of a channel, that quantiles are taken from
USUAL = (1.0, 255.0, 1 / 255, *(10.0**k for k in (-6, -3, -2, -1, 1, 2, 3, 6)))


@dataclasses.dataclass(frozen=True)
class Maps:
    """Factor and offset of every channel; one and zero where the units agree.

    Args:
        factors: One per channel; a test value is about factor times training value plus offset.
        offsets: One per channel.
        changed: Which channels are in other units.
    """

    factors: Tensor
    offsets: Tensor
    changed: Tensor

    @property
    def plain(self) -> bool:
        """Whether some factor is so large, so small or negative that nothing else explains it."""
        return bool(((self.factors.abs().log().abs() > math.log(PLAIN)) | (self.factors < 0)).any())

    @property
    def first(self) -> int:
        """The channel that changed most."""
        size = torch.where(
            self.changed, self.factors.abs().log().abs(), torch.tensor(-1.0).double()
        )
        return int(size.argmax())


def quantiles(split: Rows) -> Tensor:
    """Return quantiles of every channel: (channels, levels).

    Args:
        split: Rows of a split.
    """
    random = torch.Generator().manual_seed(0)
    values = channels(split)
    some = values[torch.randperm(len(values), generator=random)[:SAMPLES]]
    pool = some.transpose(0, 1).flatten(1).double()
    if pool.shape[1] > VALUES:
        pool = pool[:, torch.randint(pool.shape[1], (VALUES,), generator=random)]
    ordered = pool.sort(1).values
    return ordered[:, (LEVELS * (pool.shape[1] - 1)).round().long()]


def unit_maps(train: Rows, test: Rows) -> Maps | None:
    """Return factors and offsets, or None if no channel is in other units.

    Args:
        train: Rows of the training data.
        test: Rows of the test data.

    >>> values = torch.linspace(0, 1, 900)[:, None]
    >>> both = [
    ...     Rows(torch.arange(900), part, (1,), "table") for part in (values, 32 + 1.8 * values)
    ... ]
    >>> found = unit_maps(*both)
    >>> round(float(found.factors), 3), round(float(found.offsets), 3)
    (1.8, 32.0)
    """
    own, other = quantiles(train), quantiles(test)
    fits = [_fitted(own, other)]
    if train.kind == "image":
        fits.append(_fitted(-own.flip(1), other))
        fits[1] = (-fits[1][0], *fits[1][1:])
    # The sign is taken for all channels together, and only if the plain one does not fit.
    slack = RESIDUAL + 2 / math.sqrt(min(len(train.values), len(test.values)))
    plain = float(fits[0][2].max())
    turned = len(fits) > 1 and plain > slack and float(fits[1][2].max()) < slack
    factors, offsets, residuals = fits[1] if turned else fits[0]
    spread, center = _spread(own), own.mean(1)
    moved = (offsets + (factors - 1) * center).abs() / spread.clamp_min(1e-300)
    chance = math.log(FACTOR) + 4 / math.sqrt(min(len(train.values), len(test.values)))
    scaled = factors.abs().clamp_min(1e-300).log().abs() > chance
    able = (spread > 1e-9 * own.abs().amax(1)) & (_spread(other) > 1e-9 * other.abs().amax(1))
    changed = able & (scaled | (moved > OFFSET) | (factors < 0)) & (residuals < slack)
    if not bool(changed.any()):
        return None
    size = min(len(train.values), len(test.values))
    factors, offsets = _simple(-own.flip(1) if turned else own, other, factors, offsets, size)
    return Maps(
        torch.where(changed, factors, torch.ones_like(factors)),
        torch.where(changed, offsets, torch.zeros_like(offsets)),
        changed,
    )


def _simple(
    own: Tensor, other: Tensor, factors: Tensor, offsets: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """Leave out offsets and round factors to usual ones where chance alone explains the rest."""
    signs = factors.sign()
    through_zero = (own * other).sum(1) / own.square().sum(1).clamp_min(1e-300) * signs
    drop = offsets.abs() < 4 / math.sqrt(size) * _spread(other)
    factors = torch.where(drop, through_zero, factors)
    usual = torch.tensor(USUAL, dtype=torch.float64)
    apart = (factors.abs()[:, None] / usual).log().abs()
    near = apart.amin(1) < 3 / math.sqrt(size)
    rounded = torch.where(near, usual[apart.argmin(1)] * signs, factors)
    return rounded, torch.where(drop, torch.zeros_like(offsets), offsets)


def _fitted(own: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Fit lines to quantiles against quantiles: slopes, offsets, and what is left."""
    left, right = own - own.mean(1, keepdim=True), other - other.mean(1, keepdim=True)
    factors = (left * right).sum(1) / left.square().sum(1).clamp_min(1e-300)
    offsets = other.mean(1) - factors * own.mean(1)
    rest = (right - factors[:, None] * left).abs().mean(1)
    return factors, offsets, rest / right.abs().mean(1).clamp_min(1e-300)


def _spread(quantiles: Tensor) -> Tensor:
    return quantiles.std(1)


def mapped_back(split: Rows, values: Tensor, maps: Maps) -> Tensor:
    """Return rows in the units of the training data.

    Args:
        split: Says what shares a scale.
        values: Rows of test samples.
        maps: Factors and offsets.
    """
    part = dataclasses.replace(split, values=values)
    apart = (channels(part).double() - maps.offsets[:, None]) / maps.factors[:, None]
    return unchanneled(apart.float(), split)
