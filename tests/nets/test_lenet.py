import pytest
import torch
from torch import nn

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.nets import LeNet5


def test_has_the_classic_number_of_parameters():
    assert sum(p.numel() for p in LeNet5(classes=10).parameters()) == 61_706
    # C1 156, C3 full 2,416, C5 48,120, F6 10,164 as in the paper, and a linear output of 850
    counts = [
        sum(p.numel() for p in layer.parameters()) for layer in LeNet5() if list(layer.parameters())
    ]
    assert counts == [156, 2_416, 48_120, 10_164, 850]


@pytest.mark.parametrize(("channels", "image_size"), [(1, 28), (3, 32), (1, 8)])
@pytest.mark.parametrize("pool", ["max", "average"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_shapes_and_gradients(channels, image_size, pool, activation):
    torch.manual_seed(0)
    model = LeNet5(7, channels, activation, pool, image_size)
    logits = model(torch.rand(4, channels, image_size, image_size))
    assert logits.shape == (4, 7)
    logits.square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_first_maps_keep_the_size_of_28():
    model = LeNet5()
    assert model[0](torch.zeros(1, 1, 28, 28)).shape == (1, 6, 28, 28)
    assert model[:6](torch.zeros(1, 1, 28, 28)).shape == (1, 16, 5, 5)


def test_options_change_the_layers():
    assert any(isinstance(layer, nn.AvgPool2d) for layer in LeNet5(pool="average"))
    assert sum(isinstance(layer, nn.Tanh) for layer in LeNet5(activation="tanh")) == 4


@pytest.mark.parametrize(
    "options", [{"classes": 0}, {"channels": 0}, {"image_size": 33}, {"image_size": 27}]
)
def test_bad_arguments(options):
    with pytest.raises(InputError, match=f"{next(iter(options))} must be an"):
        LeNet5(**options)


def test_misspelled_pool():
    with pytest.raises(UnknownNameError, match="average"):
        LeNet5(pool="averge")
