"""Networks by name."""

import inspect
from typing import Any

from torch import nn

from mindgap.core import InputError, unknown_name, validated
from mindgap.nets.elman import Elman
from mindgap.nets.gated import Gated
from mindgap.nets.lenet import LeNet5
from mindgap.nets.mlp import MLP
from mindgap.nets.resnet import ResNet, ResNet20
from mindgap.nets.tents import Rect, Tri
from mindgap.nets.transformer import Transformer
from mindgap.nets.wide_resnet import WideResNet

_NETS: dict[str, type[nn.Module]] = {
    "mlp": MLP,
    "lenet5": LeNet5,
    "resnet": ResNet,
    "resnet20": ResNet20,
    "wide-resnet": WideResNet,
    "elman": Elman,
    "gated": Gated,
    "transformer": Transformer,
    "tri": Tri,
    "rect": Rect,
}


def available() -> tuple[str, ...]:
    """List the names that ``build`` knows.

    >>> available()
    ('elman', 'gated', 'lenet5', 'mlp', 'rect', 'resnet', 'resnet20', 'transformer', 'tri', 'wide-resnet')
    """
    return tuple(sorted(_NETS))


@validated
def build(name: str, **options: Any) -> nn.Module:
    """Make the network called ``name``.

    Args:
        name: One of :func:`available`.
        **options: Arguments of its constructor.

    >>> build("mlp", widths=(2, 4, 1), activation="tanh").widths
    (2, 4, 1)
    >>> build("mpl")
    Traceback (most recent call last):
    mindgap.core.errors.UnknownNameError: network must be one of the known names, got 'mpl'. Did you mean 'mlp'?
    """
    if name not in _NETS:
        raise unknown_name("network", name, _NETS)
    known = inspect.signature(_NETS[name]).parameters
    for option in options:
        if option not in known:
            raise unknown_name(f"option of {name}", option, known)
    missing = [
        key for key, value in known.items() if value.default is value.empty and key not in options
    ]
    if missing:
        raise InputError(
            f"{name} must be given {' and '.join(missing)}, got "
            f"{', '.join(options) or 'no option'}. Pass {missing[0]}=…."
        )
    return _NETS[name](**options)
