"""Networks of the papers, small enough to read."""

from mindgap._lazy import lazy

lazy(
    __name__,
    {
        "catalog": "available build",
        "elman": "Elman",
        "lenet": "LeNet5",
        "mlp": "ACTIVATIONS MLP",
        "resnet": "ResNet ResNet20",
        "transformer": "Transformer",
        "wide_resnet": "WideResNet",
    },
)
