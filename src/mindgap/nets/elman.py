"""Elman's recurrent network, and what all recurrent networks share."""

import abc

import torch
from torch import Tensor, nn

from mindgap.core import choice, integer, rate, validated
from mindgap.nets.mlp import activation_layer

READOUTS = ("last", "mean", "all")


STARTS = ("default", "orthogonal", "identity")
NORMS = ("none", "batch", "layer")


class Recurrent(nn.Module, abc.ABC):
    """What recurrent networks share: how sequences are read, and which state is read out.

    Args:
        features: Size of one step of the input.
        outputs: Size of the output.
        readout: Which state is read: the ``"last"``, the ``"mean"``, or ``"all"``.
    """

    head: nn.Linear

    def __init__(self, features: int, outputs: int, readout: str) -> None:
        super().__init__()
        self.features = integer("features", features)
        integer("outputs", outputs)
        self.readout = choice("readout", readout, READOUTS)
        self.embedding: nn.Embedding | None = None

    @abc.abstractmethod
    def states(self, sequences: Tensor) -> Tensor:
        """Compute all states, of shape (n, steps, hidden)."""

    def forward(self, sequences: Tensor) -> Tensor:
        """Compute outputs of shape (n, outputs), or (n, steps, outputs) with readout ``"all"``."""
        outputs: Tensor = self.head(self._read(self.states(sequences)))
        return outputs

    def steps(self, sequences: Tensor) -> Tensor:
        """Return the input as (n, steps, features)."""
        if self.embedding is None:
            return sequences.reshape(len(sequences), -1, self.features)
        embedded: Tensor = self.embedding(sequences)
        return embedded

    def _read(self, states: Tensor) -> Tensor:
        if self.readout == "all":
            return states
        return states[:, -1] if self.readout == "last" else states.mean(dim=1)


@validated
class Elman(Recurrent):
    r"""Recurrent network of Elman (1990) with a linear readout.

    .. math:: h_t = \phi(W_x x_t + b_x + W_h h_{t-1} + b_h), \qquad h_0 = 0, \qquad y = W_y h + b_y

    It is a loop over linear layers and not ``nn.RNN``, so that per-sample gradients and second
    derivatives work. The input is a batch of sequences (n, steps, features). An image (n, 1,
    height, features) is read row by row. With ``vocabulary``, the input is token numbers (n,
    steps), which are embedded in ``features`` dimensions.

    Args:
        features: Size of one step of the input, or of the embedding.
        hidden: Size of the state.
        outputs: Size of the output.
        vocabulary: Number of tokens, or None for input that is already numbers.
        activation: A name from ``mindgap.nets.ACTIVATIONS``.
        readout: Which state is read: the ``"last"``, the ``"mean"``, or ``"all"``, one output per
            step.
        start: How the recurrent matrix begins: torch's ``"default"``, ``"orthogonal"``, or the
            ``"identity"`` with biases of zero (Le et al., 2015, with ReLU).
        residual: Whether a step adds to the state, as an Euler step of length one over the number
            of steps: :math:`h_t = h_{t-1} + \phi(\cdot) / T`.
        dropout: Rate at which units of the state are dropped on their way to the readout.
        norm: ``"none"``, ``"batch"`` or ``"layer"``, applied before the activation.

    >>> Elman(features=8, hidden=16, outputs=10)(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        outputs: int,
        vocabulary: int | None = None,
        activation: str = "tanh",
        readout: str = "last",
        start: str = "default",
        residual: bool = False,
        dropout: float = 0.0,
        norm: str = "none",
    ) -> None:
        super().__init__(features, outputs, readout)
        integer("hidden", hidden)
        choice("start", start, STARTS)
        choice("norm", norm, NORMS)
        if vocabulary is not None:
            self.embedding = nn.Embedding(integer("vocabulary", vocabulary), features)
        self.input = nn.Linear(features, hidden)
        self.recurrent = nn.Linear(hidden, hidden)
        self.activation = activation_layer(activation)
        self.head = nn.Linear(hidden, outputs)
        self.residual = residual
        if norm != "none":
            self.norm = nn.BatchNorm1d(hidden) if norm == "batch" else nn.LayerNorm(hidden)
        if rate("dropout", dropout):
            self.dropout = nn.Dropout(dropout)
        _begin(self.recurrent, self.input, start)

    def states(self, sequences: Tensor) -> Tensor:
        """Compute all states, of shape (n, steps, hidden)."""
        driven = self.input(self.steps(sequences))
        state = torch.zeros_like(driven[:, 0])
        states = []
        for drive in driven.unbind(dim=1):
            new = self.activation(self._normed(drive + self.recurrent(state)))
            state = state + new / driven.shape[1] if self.residual else new
            states.append(state)
        return torch.stack(states, dim=1)

    def _normed(self, values: Tensor) -> Tensor:
        normed: Tensor = self.norm(values) if hasattr(self, "norm") else values
        return normed

    def _read(self, states: Tensor) -> Tensor:
        read = super()._read(states)
        dropped: Tensor = self.dropout(read) if hasattr(self, "dropout") else read
        return dropped


def _begin(recurrent: nn.Linear, drive: nn.Linear, start: str) -> None:
    if start == "orthogonal":
        nn.init.orthogonal_(recurrent.weight)
    if start == "identity":
        nn.init.eye_(recurrent.weight)
        for layer in (recurrent, drive):
            nn.init.zeros_(layer.bias)
