"""LeNet-5."""

from torch import nn

from mindgap.core import InputError, choice, integer, validated
from mindgap.nets.mlp import Stack, activation_layer

POOLS = {"max": nn.MaxPool2d, "average": nn.AvgPool2d}


@validated
class LeNet5(Stack):
    """LeNet-5 of LeCun, Bottou, Bengio and Haffner (1998), in the form that is used today.

    It has two 5×5 convolutions (6 and 16 channels) with 2×2 pooling and three linear layers (120,
    84, classes): 61,706 parameters for ten classes of gray images. Like other implementations, it
    omits the original's sparse connections between feature maps, trainable pooling and radial
    output units. The first convolution pads images smaller than 32×32 with zeros.
    ``activation="tanh", pool="average"`` is nearest to the original.

    Args:
        classes: Number of outputs.
        channels: 1 for gray, 3 for color.
        activation: A name from ``mindgap.nets.ACTIVATIONS``.
        pool: ``"max"`` or ``"average"``.
        image_size: Height and width of the images, an even number up to 32.

    >>> sum(p.numel() for p in LeNet5(classes=10).parameters())
    61706
    """

    def __init__(
        self,
        classes: int = 10,
        channels: int = 1,
        activation: str = "relu",
        pool: str = "max",
        image_size: int = 28,
    ) -> None:
        integer("classes", classes)
        integer("channels", channels)
        pooling = POOLS[choice("pool", pool, POOLS)]
        padding = _padding(image_size)
        super().__init__(
            nn.Conv2d(channels, 6, kernel_size=5, padding=padding),
            activation_layer(activation),
            pooling(2),
            nn.Conv2d(6, 16, kernel_size=5),
            activation_layer(activation),
            pooling(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            activation_layer(activation),
            nn.Linear(120, 84),
            activation_layer(activation),
            nn.Linear(84, classes),
        )


def _padding(image_size: int) -> int:
    """Compute the padding on each side that makes the image 32×32."""
    integer("image_size", image_size, 2, 32)
    if image_size % 2:
        raise InputError(
            f"image_size must be an even number from 2 to 32, got {image_size}. Pad the images by "
            "one."
        )
    return (32 - image_size) // 2
