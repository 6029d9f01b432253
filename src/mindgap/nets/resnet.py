"""Residual networks for small images, and what Wide ResNets share with them."""

from torch import Tensor, nn

from mindgap.core import InputError, choice, integer, validated

NORMS = ("batch", "group", "none")
SHORTCUTS = ("A", "B")


@validated
class ResNet(nn.Module):
    """Residual network for CIFAR of He, Zhang, Ren and Sun (2016), section 4.2.

    It has one 3×3 convolution, three stages of ``(depth - 2) / 6`` blocks with 16, 32 and 64
    channels, global average pooling and one linear layer. Shortcut ``"A"`` (the paper's choice for
    CIFAR) pads the missing channels with zeros and has no parameters; ``"B"`` projects by a 1×1
    convolution. With ten classes and shortcut A, depths 20, 32, 44, 56 and 110 have 269,722,
    464,154, 658,586, 853,018 and 1,727,962 parameters: the paper's 0.27, 0.46, 0.66, 0.85 and 1.7
    million. Convolutions have no bias, because a norm follows them.

    Args:
        depth: 6n + 2 weighted layers, e.g. 20, 32, 44, 56 or 110.
        classes: Number of outputs.
        channels: 1 for gray, 3 for color.
        width: Channels of the first stage, 16 in the paper.
        shortcut: ``"A"`` or ``"B"``.
        norm: ``"batch"``, ``"group"`` (samples stay independent) or ``"none"``.

    >>> sum(p.numel() for p in ResNet(depth=20).parameters())
    269722
    """

    def __init__(
        self,
        depth: int = 20,
        classes: int = 10,
        channels: int = 3,
        width: int = 16,
        shortcut: str = "A",
        norm: str = "batch",
    ) -> None:
        super().__init__()
        blocks = _blocks_per_stage(depth)
        integer("classes", classes)
        integer("channels", channels)
        integer("width", width)
        choice("shortcut", shortcut, SHORTCUTS)
        choice("norm", norm, NORMS)
        self.stem = nn.Sequential(conv3x3(channels, width), norm_layer(norm, width), nn.ReLU())
        self.stages = nn.Sequential(
            _stage(width, width, 1, blocks, shortcut, norm),
            _stage(width, 2 * width, 2, blocks, shortcut, norm),
            _stage(2 * width, 4 * width, 2, blocks, shortcut, norm),
        )
        self.head = nn.Linear(4 * width, classes)
        initialize(self)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the logits of images of shape (n, channels, height, width)."""
        logits: Tensor = self.head(pooled(self.stages(self.stem(images))))
        return logits


@validated
class ResNet20(ResNet):
    """The residual network of depth 20: 269,722 parameters with ten classes and shortcut A.

    Args:
        classes: Number of outputs.
        channels: 1 for gray, 3 for color.
        width: Channels of the first stage, 16 in the paper.
        shortcut: ``"A"`` or ``"B"``.
        norm: ``"batch"``, ``"group"`` (samples stay independent) or ``"none"``.

    >>> import torch
    >>> ResNet20(classes=7)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 7])
    """

    def __init__(
        self,
        classes: int = 10,
        channels: int = 3,
        width: int = 16,
        shortcut: str = "A",
        norm: str = "batch",
    ) -> None:
        super().__init__(20, classes, channels, width, shortcut, norm)


class _Block(nn.Module):
    """conv - norm - ReLU - conv - norm, plus the shortcut, then ReLU."""

    def __init__(self, before: int, after: int, stride: int, shortcut: str, norm: str) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv3x3(before, after, stride),
            norm_layer(norm, after),
            nn.ReLU(),
            conv3x3(after, after),
            norm_layer(norm, after),
        )
        self.shortcut = _shortcut(before, after, stride, shortcut, norm)
        self.activation = nn.ReLU()

    def forward(self, maps: Tensor) -> Tensor:
        """Compute the feature maps after the block."""
        after: Tensor = self.activation(self.residual(maps) + self.shortcut(maps))
        return after


class _PaddedShortcut(nn.Module):
    """Option A: take every ``stride``-th pixel and pad new channels with zeros on both sides."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.stride, self.added = stride, after - before

    def forward(self, maps: Tensor) -> Tensor:
        """Compute smaller, deeper feature maps."""
        first = self.added // 2
        return nn.functional.pad(
            maps[..., :: self.stride, :: self.stride], (0, 0, 0, 0, first, self.added - first)
        )


def _shortcut(before: int, after: int, stride: int, shortcut: str, norm: str) -> nn.Module:
    if before == after and stride == 1:
        return nn.Identity()
    if shortcut == "A":
        return _PaddedShortcut(before, after, stride)
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), norm_layer(norm, after))


def _stage(
    before: int, after: int, stride: int, blocks: int, shortcut: str, norm: str
) -> nn.Sequential:
    first = _Block(before, after, stride, shortcut, norm)
    return nn.Sequential(
        first, *(_Block(after, after, 1, shortcut, norm) for _ in range(blocks - 1))
    )


def _blocks_per_stage(depth: int) -> int:
    if integer("depth", depth, 8) % 6 != 2:
        raise InputError(f"depth must be 6n + 2, got {depth}. Pass 20, 32, 44, 56 or 110.")
    return (depth - 2) // 6


def norm_layer(name: str, channels: int) -> nn.Module:
    """Create a normalization of feature maps; ``"group"`` keeps samples independent.

    >>> norm_layer("group", 20).num_groups
    5
    """
    choice("norm", name, NORMS)
    if name == "batch":
        return nn.BatchNorm2d(channels)
    if name == "group":
        return nn.GroupNorm(_groups(channels), channels)
    return nn.Identity()


def conv3x3(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    """Create a 3×3 convolution without bias, because a norm follows; stride 1 keeps the size."""
    return nn.Conv2d(before, after, kernel_size=3, stride=stride, padding=1, bias=False)


def initialize(model: nn.Module) -> None:
    """Draw convolutions by He et al. (2015), fan out, and zero the biases of linear layers."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


def pooled(maps: Tensor) -> Tensor:
    """Average every feature map over the image."""
    return maps.mean(dim=(-2, -1))


def _groups(channels: int) -> int:
    return max(groups for groups in range(1, 9) if channels % groups == 0)
