"""Networks of the study of certificates, and how their inputs are scaled."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.nets import MLP


class Scaled(nn.Module):
    """Scales inputs from [0, 1] to [-1, 1], by constants that are no statistic of any data."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Scale; images are laid out channels last, in which the CPU is faster."""
        scaled = 2 * inputs - 1
        return scaled.contiguous(memory_format=torch.channels_last) if scaled.ndim == 4 else scaled


class Shift(nn.Module):
    """Shifts every image by up to two pixels in training mode only."""

    far = 2

    def forward(self, inputs: Tensor) -> Tensor:
        """Shift images of shape (samples, channels, height, width)."""
        if not self.training:
            return inputs
        count, _, height, width = inputs.shape
        down, right = torch.randint(0, 2 * self.far + 1, (2, count, 1, 1))
        rows, columns = down + torch.arange(height)[:, None], right + torch.arange(width)
        padded = F.pad(inputs, [self.far] * 4).movedim(1, 3)
        return padded[torch.arange(count)[:, None, None], rows, columns].movedim(3, 1)


def shifted_mlp() -> nn.Module:
    """Make an MLP of two hidden layers of 100 units for MNIST, trained on shifted images."""
    return nn.Sequential(Shift(), MLP(widths=(784, 100, 100, 10)))


class Warp(nn.Module):
    """Turns, stretches, slants and moves every image a little, in training mode only.

    Handwriting differs in just these ways.
    """

    turn, stretch, far = 0.25, 0.15, 1 / 7  # radians, natural logarithm, share of half the image

    def forward(self, inputs: Tensor) -> Tensor:
        """Warp images of shape (samples, channels, height, width)."""
        if not self.training:
            return inputs
        angle, slant, wide, high, right, down = (2 * torch.rand(6, len(inputs)) - 1).to(inputs)
        cosine, sine = (self.turn * angle).cos(), (self.turn * angle).sin()
        wide, high = (self.stretch * wide).exp(), (self.stretch * high).exp()
        rows = torch.stack(
            [
                *(wide * cosine, self.turn * slant - high * sine, self.far * right),
                *(wide * sine, high * cosine, self.far * down),
            ],
            1,
        )
        grid = F.affine_grid(rows.view(-1, 2, 3), list(inputs.shape), align_corners=False)
        return F.grid_sample(inputs, grid, align_corners=False)


def warped_cnn() -> nn.Module:
    """Make a CNN of two convolutions for MNIST, trained on warped images.

    Batch normalization has no weights, which would be random.
    """
    return nn.Sequential(
        Warp(),
        *_normalized(1, 16),
        *_normalized(16, 32),
        nn.Flatten(),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    )


def _normalized(before: int, after: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(before, after, 5, bias=False)
    return convolution, nn.MaxPool2d(2), nn.BatchNorm2d(after, affine=False), nn.ReLU()


def small_mlp() -> nn.Module:
    """Make an MLP of one hidden layer of 100 units for 28×28 images, weights by He et al."""
    return he(
        nn.Sequential(Scaled(), nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
    )


def small_cnn() -> nn.Module:
    """Make a CNN of 5,994 weights for 28×28 images: fewer weights have a smaller divergence.

    >>> sum(weight.numel() for weight in small_cnn().parameters())
    5994
    """
    layers = (*_convolved(1, 8, 5), *_convolved(8, 16, 5), nn.Flatten(), nn.Linear(256, 10))
    return he(nn.Sequential(Scaled(), *layers))


def digits_cnn() -> nn.Module:
    """Make a CNN for 8×8 images, trained on shifted images."""
    layers = (nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), *_convolved(16, 32, 3), nn.Flatten())
    return nn.Sequential(Near(), *layers, nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 10))


class Near(Shift):
    """Shifts by one pixel at most, as small images need."""

    far = 1


def _convolved(before: int, after: int, kernel: int) -> tuple[nn.Module, ...]:
    # The maximum of ReLUs is the ReLU of the maximum, which has a quarter of the values.
    return nn.Conv2d(before, after, kernel), nn.MaxPool2d(2), nn.ReLU()


def he(network: nn.Module) -> nn.Module:
    """Draw weights by He et al. (2015), fan in, and zero all biases."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network


class _Block(nn.Sequential):
    """A 3×3 convolution with batch normalization and GELU."""

    def __init__(self, before: int, after: int) -> None:
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(after), nn.GELU())


class _Residual(nn.Module):
    """The same, added to its inputs."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block = _Block(channels, channels)

    def forward(self, inputs: Tensor) -> Tensor:
        """Add the block's outputs."""
        added: Tensor = self.block(inputs)
        return inputs + added


def color_cnn(width: int = 16) -> nn.Module:
    """Make a residual CNN for 32×32 color images, small enough for minutes on one core.

    Args:
        width: Channels of the first convolution.

    >>> sum(weight.numel() for weight in color_cnn().parameters())
    144602
    """
    half = nn.MaxPool2d(2)
    network = nn.Sequential(
        Scaled(),
        *(_Block(3, width), half),
        *(_Block(width, 2 * width), _Residual(2 * width), half),
        *(_Block(2 * width, 4 * width), _Residual(4 * width), half),
        *(_Block(4 * width, 4 * width), _Residual(4 * width)),
        *(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10)),
    )
    laid_out: nn.Module = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return laid_out


def freeze_normalization(network: nn.Module) -> nn.Module:
    """Keep the weights of batch normalization fixed, so that they are not random.

    Args:
        network: Changed in place, and returned.
    """
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.requires_grad_(False)
    return network
