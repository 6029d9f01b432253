"""Elman's recurrent network."""

import torch
from torch import Tensor, nn

from mindgap.core import choice, integer, validated
from mindgap.nets.mlp import activation_layer

READOUTS = ("last", "mean", "all")


@validated
class Elman(nn.Module):
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
    ) -> None:
        super().__init__()
        self.features = integer("features", features)
        integer("hidden", hidden)
        integer("outputs", outputs)
        self.readout = choice("readout", readout, READOUTS)
        self.embedding = (
            None
            if vocabulary is None
            else nn.Embedding(integer("vocabulary", vocabulary), features)
        )
        self.input = nn.Linear(features, hidden)
        self.recurrent = nn.Linear(hidden, hidden)
        self.activation = activation_layer(activation)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, sequences: Tensor) -> Tensor:
        """Compute outputs of shape (n, outputs), or (n, steps, outputs) with readout ``"all"``."""
        outputs: Tensor = self.head(self._read(self.states(sequences)))
        return outputs

    def states(self, sequences: Tensor) -> Tensor:
        """Compute all states, of shape (n, steps, hidden)."""
        driven = self.input(self._steps(sequences))
        state = torch.zeros_like(driven[:, 0])
        states = []
        for drive in driven.unbind(dim=1):
            state = self.activation(drive + self.recurrent(state))
            states.append(state)
        return torch.stack(states, dim=1)

    def _steps(self, sequences: Tensor) -> Tensor:
        if self.embedding is None:
            return sequences.reshape(len(sequences), -1, self.features)
        embedded: Tensor = self.embedding(sequences)
        return embedded

    def _read(self, states: Tensor) -> Tensor:
        if self.readout == "all":
            return states
        return states[:, -1] if self.readout == "last" else states.mean(dim=1)
