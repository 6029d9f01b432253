import copy
import pickle
from itertools import pairwise

import pytest
import torch
from torch import nn

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.nets import ACTIVATIONS, MLP


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("widths", [(2, 4, 1), (784, 300, 100, 10), (3, 2)])
def test_parameters_are_weights_and_biases(widths):
    assert count(MLP(widths)) == sum(a * b + b for a, b in pairwise(widths))


def test_equals_the_formula():
    model = MLP(widths=(3, 5, 4, 2), activation="tanh").double()
    x = torch.randn(7, 3, dtype=torch.float64)
    first, second, third = (layer for layer in model if isinstance(layer, nn.Linear))
    hidden = torch.tanh(torch.tanh(x @ first.weight.T + first.bias) @ second.weight.T + second.bias)
    torch.testing.assert_close(model(x), hidden @ third.weight.T + third.bias)


def test_flattens_images():
    assert MLP((64, 10))(torch.zeros(5, 1, 8, 8)).shape == (5, 10)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_every_parameter_gets_a_gradient(activation, norm):
    torch.manual_seed(0)
    model = MLP((4, 16, 16, 3), activation=activation, norm=norm, dropout=0.1)
    model(torch.randn(32, 4)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        if norm != "batch" or not name.endswith(
            "bias"
        ):  # a bias before batch norm has gradient zero by design
            assert parameter.grad.abs().sum() > 0, name


def test_layers_that_are_off_are_absent():
    kinds = [type(layer) for layer in MLP((2, 3, 4, 1), norm="none", dropout=0)]
    assert kinds == [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    kinds = [type(layer) for layer in MLP((2, 3, 1), norm="layer", dropout=0.5)]
    assert kinds == [nn.Flatten, nn.Linear, nn.LayerNorm, nn.ReLU, nn.Dropout, nn.Linear]


def test_no_bias():
    assert count(MLP((2, 4, 1), bias=False)) == 12


def test_seed_decides_the_weights():
    torch.manual_seed(3)
    one = MLP((2, 4, 1))
    torch.manual_seed(3)
    two = MLP((2, 4, 1))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_slice_is_a_plain_sequence_that_shares_parameters():
    model = MLP((2, 4, 1))
    features = model[:-1]
    assert type(features) is nn.Sequential
    assert features(torch.zeros(3, 2)).shape == (3, 4)
    assert features[1].weight is model[1].weight


def test_copies_and_pickles():
    model = MLP((2, 4, 1), activation="tanh")
    x = torch.randn(3, 2)
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"widths": (2,)},
            "widths must hold at least two integers (features in, features out), got (2,).",
        ),
        ({"widths": 5}, "widths must be a sequence of integers, got 5."),
        ({"widths": "ab"}, "widths must be a sequence of integers, got 'ab'."),
        ({"widths": (2, 0, 1)}, "widths must be an integer of at least 1, got 0. Raise widths."),
        ({"widths": (2, 2.5, 1)}, "widths must be a sequence of integers, got (2, 2.5, 1)."),
        (
            {"widths": (2, 1), "dropout": 1.0},
            "dropout must be a number from 0 to below 1, got 1.0.",
        ),
        (
            {"widths": (2, 1), "dropout": float("nan")},
            "dropout must be a number, got nan.",
        ),
    ],
)
def test_bad_arguments(options, text):
    with pytest.raises(InputError) as caught:
        MLP(**options)
    assert str(caught.value).startswith(text)


def test_misspelled_names():
    with pytest.raises(UnknownNameError, match="Did you mean 'relu'"):
        MLP((2, 3, 1), activation="rleu")
    with pytest.raises(UnknownNameError, match="Did you mean 'batch'"):
        MLP((2, 3, 1), norm="bach")
