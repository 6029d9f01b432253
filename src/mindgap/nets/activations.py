"""Activation functions by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from mindgap.core.arguments import choice

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "softplus": nn.Softplus,
    "leaky_relu": nn.LeakyReLU,
    "identity": nn.Identity,
}


def activation_layer(name: str) -> nn.Module:
    """Make the activation called ``name``.

    >>> activation_layer("tanh")
    Tanh()
    """
    return ACTIVATIONS[choice("activation", name, ACTIVATIONS)]()
