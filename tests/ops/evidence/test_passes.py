"""How many operations a pass takes, whatever kernels torch would choose."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Undefined
from mindgap.core.subject import Subject
from mindgap.ops.evidence.passes import LARGER, UNLIMITED, WORK, affordable, operations

TOKENS, WIDTH = 5, 8


class Last(nn.Module):
    """The last step of what a layer gives."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found = self.layer(inputs)
        found = found[0] if isinstance(found, tuple) else found
        last: torch.Tensor = found[:, -1]
        return last


def made(layer: nn.Module) -> Subject:
    return Subject(
        Last(layer), "cross_entropy", (torch.zeros(4, TOKENS, WIDTH), torch.arange(4) % 2)
    )


def test_fused_kernels_do_not_hide_their_operations() -> None:
    attention = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
    products = 4 * WIDTH * WIDTH + 2 * 16 * WIDTH  # of a token with weights
    between = 2 * TOKENS * WIDTH  # of a token with the others
    assert operations(made(attention)) == 2 * TOKENS * (products + between)
    recurrent = nn.LSTM(WIDTH, WIDTH, batch_first=True)
    assert operations(made(recurrent)) == 2 * TOKENS * 4 * 2 * WIDTH * WIDTH


def test_fewer_samples_pass_a_large_model_and_too_large_a_one_is_refused() -> None:
    subject = made(nn.Identity())
    subject.cached("operations", lambda: int(WORK / 100))  # as if it were so large
    assert affordable(subject, 1000) == 100
    assert affordable(subject, 50) == 50
    assert affordable(subject, 1000, passes=4, once=20) == 20
    assert affordable(subject, 1000, fewest=int(100 * LARGER)) == 100 * LARGER
    assert affordable(subject, 1000, fewest=900, work=UNLIMITED) == 1000
    with pytest.raises(Undefined, match=r"are allowed$"):
        affordable(subject, 1000, fewest=401)
    with pytest.raises(Undefined, match="name it, raise its work"):
        affordable(subject, 1000, fewest=401, work=WORK)
