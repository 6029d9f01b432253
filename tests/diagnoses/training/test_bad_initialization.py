"""Initial weights that are too small or too large, and those that are not."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from mindgap.core.recipe import Recipe
from mindgap.core.subject import Subject
from mindgap.diagnoses.training.bad_initialization import BadInitialization
from mindgap.nets import MLP, Elman, LeNet5, ResNet20, Transformer

X = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(60) % 3


def scaled(factor: float, depth: int = 20) -> nn.Module:
    net, random = MLP((8, *[32] * depth, 3)), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, nn.Linear):
                size = factor * (2 / layer.in_features) ** 0.5
                layer.weight.copy_(size * torch.randn(layer.weight.shape, generator=random))
                layer.bias.zero_()
    return net


@pytest.mark.parametrize(("factor", "word"), [(0.3, "vanish"), (4.0, "explode")])
def test_the_first_layer_of_the_trouble_is_named(factor: float, word: str) -> None:
    net = scaled(factor)
    finding = BadInitialization()(Subject(net, "cross_entropy", (X, Y), initial=net.state_dict()))
    assert finding.severity == "wrong"
    assert f"Signals {word} in the initial network, from layer '3' on" in finding.sentence
    assert finding.charts[0].series[0].x[-1] == 21


def test_a_good_start_is_silent() -> None:
    net = scaled(1.0)
    assert (
        BadInitialization()(Subject(net, "cross_entropy", (X, Y), initial=net.state_dict())) is None
    )


def test_the_initial_weights_count_and_not_the_final_ones() -> None:
    start, end = scaled(0.3), scaled(1.0)
    subject = Subject(end, "cross_entropy", (X, Y), initial=start.state_dict())
    assert BadInitialization()(subject) is not None
    subject = Subject(start, "cross_entropy", (X, Y), initial=end.state_dict())
    assert BadInitialization()(subject) is None


def test_the_recipe_makes_the_initial_weights() -> None:
    recipe = Recipe(model=lambda: scaled(0.3), train=(X, Y))
    subject = Subject(scaled(1.0), "cross_entropy", (X, Y), recipe=recipe)
    assert BadInitialization()(subject) is not None


def test_not_applicable_without_a_start() -> None:
    subject = Subject(scaled(0.3), "cross_entropy", (X, Y))
    assert "before training" in BadInitialization().missing(subject)
    assert BadInitialization()(subject) is None


def test_a_network_that_learned_gets_a_note() -> None:
    good = nn.Linear(8, 3)
    net = nn.Sequential(*[nn.Linear(8, 8, bias=False) for _ in range(12)], good)
    with torch.no_grad():
        for layer in net[:-1]:
            layer.weight.copy_(torch.eye(8))
        good.bias.zero_()
    labels = net(X).argmax(1)
    start = copy.deepcopy(net)
    with torch.no_grad():
        good.weight.mul_(100)
        for layer in start[:-1]:
            layer.weight.mul_(0.1)
    subject = Subject(net, "cross_entropy", (X, labels), initial=start.state_dict())
    assert BadInitialization()(subject).severity == "note"


class Placed(nn.Module):
    """Embeddings of words and of their places, as BERT adds them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), nn.Embedding(6, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.words(tokens) + self.places(torch.arange(6))
        return self.head(found.mean(1))


IMAGES, TOKENS = torch.randn(8, 3, 16, 16), torch.randint(0, 20, (8, 6))
DEFAULTS = {
    "six layers": (lambda: MLP((8, *[64] * 6, 3)), X),
    "twelve normalized layers": (lambda: MLP((8, *[64] * 12, 3), norm="batch"), X),
    "lenet": (lambda: LeNet5(classes=3), torch.randn(8, 1, 28, 28)),
    "residual": (lambda: ResNet20(classes=3), IMAGES),
    "residual without norm": (lambda: ResNet20(classes=3, norm="none"), IMAGES),
    "recurrent": (lambda: Elman(4, 16, 3), torch.randn(8, 20, 4)),
    "embedded places": (Placed, TOKENS),
    "transformer": (lambda: Transformer(20, 3, 6, width=32), TOKENS),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_of_torch_are_not_accused(name: str) -> None:
    make, inputs = DEFAULTS[name]
    net = make()
    data = inputs, torch.arange(len(inputs)) % 3
    assert (
        BadInitialization()(Subject(net, "cross_entropy", data, initial=net.state_dict())) is None
    )
