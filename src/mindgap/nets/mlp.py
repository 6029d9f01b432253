"""Multilayer perceptrons, and activation functions by name."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from torch import nn

from mindgap.core import InputError, choice, integer, rate, validated

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
NORMS = ("none", "batch", "layer")


class Stack(nn.Sequential):
    """``nn.Sequential`` for subclasses: a slice of one is a plain ``nn.Sequential``.

    ``nn.Sequential`` would call the subclass's constructor with layers, which ours do not take.
    """

    def __getitem__(self, idx: slice | int) -> Any:
        """Return a layer, or a plain sequence of layers that shares its parameters."""
        if isinstance(idx, slice):
            return nn.Sequential(*list(self)[idx])
        return super().__getitem__(idx)


@validated
class MLP(Stack):
    r"""Multilayer perceptron :math:`x \mapsto W_L\,\phi(\dots\phi(W_1 x + b_1)\dots) + b_L`.

    A plain sequence: Flatten, then Linear → norm → activation → dropout for each hidden layer, then
    Linear. Layers that are switched off are absent, so ``[m for m in model if isinstance(m,
    nn.Linear)]`` is the whole linear part.

    Args:
        widths: Features of the input, of every hidden layer and of the output.
        activation: A name from ``mindgap.nets.ACTIVATIONS``.
        norm: ``"none"``, ``"batch"`` or ``"layer"``, applied before the activation.
        dropout: Rate at which hidden units are dropped while training; 0 switches it off.
        bias: Whether the linear layers have a bias.

    >>> MLP(widths=(2, 4, 1), activation="tanh")
    MLP(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): Linear(in_features=2, out_features=4, bias=True)
      (2): Tanh()
      (3): Linear(in_features=4, out_features=1, bias=True)
    )
    """

    def __init__(
        self,
        widths: Sequence[int],
        activation: str = "relu",
        norm: str = "none",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        sizes = _checked_widths(widths)
        choice("norm", norm, NORMS)
        rate("dropout", dropout)
        super().__init__(nn.Flatten(), *_layers(sizes, activation, norm, dropout, bias))
        self.widths = sizes


def _checked_widths(widths: object) -> tuple[int, ...]:
    if not isinstance(widths, Sequence) or isinstance(widths, str) or len(widths) < 2:
        raise InputError(
            f"widths must hold at least two integers (features in, features out), got {widths!r}. "
            "Pass for example (2, 16, 1)."
        )
    return tuple(integer("widths", width) for width in widths)


def _layers(
    widths: tuple[int, ...], activation: str, norm: str, dropout: float, bias: bool
) -> Iterator[nn.Module]:
    for before, width in pairwise(widths[:-1]):
        yield nn.Linear(before, width, bias=bias)
        if norm != "none":
            yield nn.BatchNorm1d(width) if norm == "batch" else nn.LayerNorm(width)
        yield activation_layer(activation)
        if dropout:
            yield nn.Dropout(dropout)
    yield nn.Linear(widths[-2], widths[-1], bias=bias)


def activation_layer(name: str) -> nn.Module:
    """Make the activation called ``name``.

    >>> activation_layer("tanh")
    Tanh()
    """
    return ACTIVATIONS[choice("activation", name, ACTIVATIONS)]()
