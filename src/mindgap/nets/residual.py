"""What the residual networks share: convolutions, normalization by name, initialization."""

from torch import Tensor, nn

from mindgap.core import choice

NORMS = ("batch", "group", "none")


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
