"""The layers of nested sequences, in the order of their calls."""

from torch import nn


def in_sequence(module: nn.Module) -> list[nn.Module]:
    """List the layers of nested ``nn.Sequential``s; any other module is one layer.

    A layer that is called in several places is listed as often, which ``children()`` does not do.

    Args:
        module: A sequence, or a layer.

    >>> relu = nn.ReLU()
    >>> net = nn.Sequential(nn.Linear(1, 1), relu, nn.Sequential(nn.Linear(1, 1), relu))
    >>> [type(layer).__name__ for layer in in_sequence(net)]
    ['Linear', 'ReLU', 'Linear', 'ReLU']
    """
    if not is_sequence(module):
        return [module]
    parts = (part for part in module._modules.values() if part is not None)
    return [layer for part in parts for layer in in_sequence(part)]


def is_sequence(module: nn.Module) -> bool:
    """Tell whether a module does nothing but call its parts one after the other.

    Args:
        module: Any module; a subclass of ``nn.Sequential`` may call them otherwise.

    >>> is_sequence(nn.Sequential()), is_sequence(nn.ReLU())
    (True, False)
    """
    return type(module).forward is nn.Sequential.forward
