"""Networks of the papers, small enough to read."""

from mindgap._lazy import lazy

lazy(
    __name__,
    {
        "catalog": "available build",
        "elman": "Elman",
        "gated": "Gated",
        "lenet": "LeNet5",
        "mlp": "ACTIVATIONS MLP",
        "resnet": "ResNet ResNet20",
        "tents": "Rect Tri",
        "transformer": "Transformer",
        "wide_resnet": "WideResNet",
    },
)
