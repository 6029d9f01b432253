"""Recurrent networks with gates: LSTM and GRU."""

import torch
from torch import Tensor, nn

from mindgap.core import choice, integer, validated
from mindgap.nets.elman import Recurrent

CELLS = {"lstm": 4, "gru": 3}  # linear maps per step: gates and the candidate


@validated
class Gated(Recurrent):
    r"""LSTM (Hochreiter and Schmidhuber, 1997) or GRU (Cho et al., 2014) with a linear readout.

    .. math:: c_t = f_t c_{t-1} + i_t \tanh(\cdot), \; h_t = o_t \tanh(c_t) \qquad\text{or}\qquad
       h_t = z_t h_{t-1} + (1 - z_t) \tanh(\cdot)

    The same input, readout and loop over linear layers as :class:`Elman`. The forget gate of the
    LSTM begins open, with a bias of one.

    Args:
        features: Size of one step of the input.
        hidden: Size of the state.
        outputs: Size of the output.
        cell: ``"lstm"`` or ``"gru"``.
        readout: Which state is read: the ``"last"``, the ``"mean"``, or ``"all"``.

    >>> Gated(features=8, hidden=16, outputs=10, cell="gru")(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self, features: int, hidden: int, outputs: int, cell: str = "lstm", readout: str = "last"
    ) -> None:
        super().__init__(features, outputs, readout)
        self.cell, self.hidden = choice("cell", cell, CELLS), integer("hidden", hidden)
        self.input = nn.Linear(features, CELLS[cell] * hidden)
        self.recurrent = nn.Linear(hidden, CELLS[cell] * hidden)
        self.head = nn.Linear(hidden, outputs)
        if cell == "lstm":
            nn.init.ones_(self.input.bias[hidden : 2 * hidden])

    def states(self, sequences: Tensor) -> Tensor:
        """Compute all states, of shape (n, steps, hidden)."""
        driven = self.input(self.steps(sequences))
        state = memory = driven.new_zeros(len(driven), self.hidden)
        states = []
        for drive in driven.unbind(dim=1):
            if self.cell == "lstm":
                state, memory = self._lstm(drive, state, memory)
            else:
                state = self._gru(drive, state)
            states.append(state)
        return torch.stack(states, dim=1)

    def _lstm(self, drive: Tensor, state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        added, kept, new, shown = (drive + self.recurrent(state)).chunk(4, dim=1)
        memory = kept.sigmoid() * memory + added.sigmoid() * new.tanh()
        return shown.sigmoid() * memory.tanh(), memory

    def _gru(self, drive: Tensor, state: Tensor) -> Tensor:
        (reset, kept, new), (back, held, old) = drive.chunk(3, 1), self.recurrent(state).chunk(3, 1)
        keep: Tensor = (kept + held).sigmoid()
        fresh: Tensor = (new + (reset + back).sigmoid() * old).tanh()
        return keep * state + (1 - keep) * fresh
