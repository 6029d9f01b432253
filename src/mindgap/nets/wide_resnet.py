"""Wide residual networks."""

from torch import Tensor, nn

from mindgap.core import InputError, choice, integer, rate, validated
from mindgap.nets.resnet import NORMS, conv3x3, initialize, norm_layer, pooled


@validated
class WideResNet(nn.Module):
    """Wide residual network WRN-depth-factor of Zagoruyko and Komodakis (2016).

    It has three stages of ``(depth - 4) / 6`` pre-activation blocks (norm - ReLU - conv - norm -
    ReLU - dropout - conv) with 16k, 32k and 64k channels, where k is ``factor``. Where the shape
    changes, the shortcut is a 1×1 convolution. With ten classes WRN-28-10 has 36,479,194
    parameters, WRN-40-4 has 8,949,210 and WRN-16-4 has 2,748,890: the paper's 36.5, 8.9 and 2.7
    million.

    Args:
        depth: 6n + 4 convolutions, e.g. 10, 16, 22, 28 or 40.
        factor: How many times wider than the plain residual network.
        classes: Number of outputs.
        channels: 1 for gray, 3 for color.
        dropout: Rate between the two convolutions of a block; 0 switches it off.
        norm: ``"batch"``, ``"group"`` (samples stay independent) or ``"none"``.

    >>> sum(p.numel() for p in WideResNet(depth=16, factor=1).parameters())
    175066
    """

    def __init__(
        self,
        depth: int = 28,
        factor: int = 10,
        classes: int = 10,
        channels: int = 3,
        dropout: float = 0.0,
        norm: str = "batch",
    ) -> None:
        super().__init__()
        blocks = _blocks_per_stage(depth)
        integer("factor", factor)
        integer("classes", classes)
        integer("channels", channels)
        rate("dropout", dropout)
        choice("norm", norm, NORMS)
        narrow, middle, wide = 16 * factor, 32 * factor, 64 * factor
        self.stem = conv3x3(channels, 16)
        self.stages = nn.Sequential(
            _stage(16, narrow, 1, blocks, dropout, norm),
            _stage(narrow, middle, 2, blocks, dropout, norm),
            _stage(middle, wide, 2, blocks, dropout, norm),
        )
        self.last = nn.Sequential(norm_layer(norm, wide), nn.ReLU())
        self.head = nn.Linear(wide, classes)
        initialize(self)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the logits of images of shape (n, channels, height, width)."""
        logits: Tensor = self.head(pooled(self.last(self.stages(self.stem(images)))))
        return logits


class _WideBlock(nn.Module):
    """A pre-activation block; a shortcut that changes the shape follows the first activation."""

    def __init__(self, before: int, after: int, stride: int, dropout: float, norm: str) -> None:
        super().__init__()
        self.first = nn.Sequential(norm_layer(norm, before), nn.ReLU())
        self.residual = nn.Sequential(
            conv3x3(before, after, stride),
            norm_layer(norm, after),
            nn.ReLU(),
            nn.Dropout(dropout) if dropout else nn.Identity(),
            conv3x3(after, after),
        )
        self.shortcut = None if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Compute the feature maps after the block."""
        active = self.first(maps)
        kept = maps if self.shortcut is None else self.shortcut(active)
        after: Tensor = self.residual(active) + kept
        return after


def _stage(
    before: int, after: int, stride: int, blocks: int, dropout: float, norm: str
) -> nn.Sequential:
    first = _WideBlock(before, after, stride, dropout, norm)
    return nn.Sequential(
        first, *(_WideBlock(after, after, 1, dropout, norm) for _ in range(blocks - 1))
    )


def _blocks_per_stage(depth: int) -> int:
    if integer("depth", depth, 10) % 6 != 4:
        raise InputError(f"depth must be 6n + 4, got {depth}. Pass 10, 16, 22, 28 or 40.")
    return (depth - 4) // 6
