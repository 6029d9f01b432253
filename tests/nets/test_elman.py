import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.nets import Elman


def reference(model):
    """torch's own recurrent network with the same weights."""
    rnn = nn.RNN(model.input.in_features, model.recurrent.in_features, batch_first=True).double()
    rnn.weight_ih_l0.data, rnn.bias_ih_l0.data = model.input.weight.data, model.input.bias.data
    rnn.weight_hh_l0.data, rnn.bias_hh_l0.data = (
        model.recurrent.weight.data,
        model.recurrent.bias.data,
    )
    return rnn


def test_states_equal_torchs_recurrent_network():
    model = Elman(features=3, hidden=5, outputs=2).double()
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    states, last = reference(model)(x)
    torch.testing.assert_close(model.states(x), states)
    torch.testing.assert_close(model(x), model.head(last[0]))


@pytest.mark.parametrize(
    ("readout", "shape"), [("last", (4, 2)), ("mean", (4, 2)), ("all", (4, 6, 2))]
)
def test_readouts(readout, shape):
    model = Elman(3, 5, 2, readout=readout)
    assert model(torch.randn(4, 6, 3)).shape == shape


def test_tokens_and_images():
    assert Elman(8, 16, 10)(torch.rand(5, 1, 8, 8)).shape == (5, 10)
    assert Elman(8, 16, 10, vocabulary=50)(torch.randint(50, (5, 12))).shape == (5, 10)


def test_gradients_flow_through_time():
    torch.manual_seed(0)
    model = Elman(3, 5, 2)
    x = torch.randn(4, 6, 3, requires_grad=True)
    model(x).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())
    assert x.grad[:, 0].abs().sum() > 0


def test_per_sample_gradients_work():
    model = Elman(3, 5, 1).double()
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    weights = dict(model.named_parameters())
    single = vmap(grad(lambda w, one: functional_call(model, w, (one[None],)).sum()), (None, 0))(
        weights, x
    )
    model(x).sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(single[name].sum(dim=0), parameter.grad)


@pytest.mark.parametrize("name", ["features", "hidden", "outputs", "vocabulary"])
def test_bad_sizes(name):
    with pytest.raises(
        InputError, match=f"{name} must be an integer of at least 1, got 0. Raise {name}."
    ):
        Elman(**{"features": 2, "hidden": 2, "outputs": 2, name: 0})


def test_misspelled_readout():
    with pytest.raises(UnknownNameError, match="Did you mean 'last'"):
        Elman(2, 2, 2, readout="lst")
