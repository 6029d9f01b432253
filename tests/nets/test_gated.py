"""LSTM and GRU against torch's own, and the starts and additions of Elman's network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import MindgapError
from mindgap.nets import Elman, Gated


@pytest.mark.parametrize(("cell", "peer"), [("lstm", nn.LSTM), ("gru", nn.GRU)])
def test_equals_torch(cell: str, peer: type[nn.Module]) -> None:
    torch.manual_seed(0)
    own, theirs = Gated(3, 5, 2, cell=cell).double(), peer(3, 5, batch_first=True).double()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(own.input.weight)
        theirs.weight_hh_l0.copy_(own.recurrent.weight)
        theirs.bias_ih_l0.copy_(own.input.bias)
        theirs.bias_hh_l0.copy_(own.recurrent.bias)
    x = torch.randn(4, 7, 3).double()
    assert torch.allclose(own.states(x), theirs(x)[0], atol=1e-12)
    assert torch.allclose(own(x), own.head(theirs(x)[0][:, -1]), atol=1e-12)


def test_the_forget_gate_begins_open() -> None:
    assert torch.equal(Gated(3, 5, 2).input.bias[5:10], torch.ones(5))


def test_starts_of_the_recurrent_matrix() -> None:
    torch.manual_seed(0)
    orthogonal = Elman(3, 6, 2, start="orthogonal").recurrent.weight
    assert torch.allclose(orthogonal @ orthogonal.T, torch.eye(6), atol=1e-5)
    identity = Elman(3, 6, 2, start="identity", activation="relu")
    assert torch.equal(identity.recurrent.weight, torch.eye(6))
    assert not identity.input.bias.any()


def test_residual_is_an_euler_step() -> None:
    torch.manual_seed(0)
    model, x = Elman(2, 4, 2, residual=True).double(), torch.randn(3, 5, 2).double()
    state = torch.zeros(3, 4).double()
    for step in x.unbind(1):
        state = state + (model.input(step) + model.recurrent(state)).tanh() / 5
    assert torch.allclose(model(x), model.head(state), atol=1e-12)


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_norm_comes_before_the_activation(norm: str) -> None:
    torch.manual_seed(0)
    model, x = Elman(2, 4, 2, norm=norm).double(), torch.randn(6, 1, 2).double()
    sums = model.input(x[:, 0]) + model.recurrent.bias
    axis = 0 if norm == "batch" else 1
    scaled = (sums - sums.mean(axis, keepdim=True)) / (
        sums.var(axis, keepdim=True, correction=0) + 1e-5
    ).sqrt()
    assert torch.allclose(model(x), model.head(scaled.tanh()), atol=1e-9)


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    model, x = Elman(2, 40, 2, dropout=0.5), torch.randn(3, 5, 2)
    assert not torch.equal(model(x), model(x))
    assert torch.equal(model.eval()(x), model(x))


@pytest.mark.parametrize("settings", [{"start": "zero"}, {"norm": "group"}, {"dropout": 1.5}])
def test_bad_settings(settings: dict[str, object]) -> None:
    with pytest.raises(MindgapError):
        Elman(2, 4, 2, **settings)
    with pytest.raises(MindgapError):
        Gated(2, 4, 2, cell="rnn")
