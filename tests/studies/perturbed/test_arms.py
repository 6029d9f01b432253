"""The data, training and evaluation of one arm of PerturbedOPT."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core.recipe import Recipe
from mindgap.data import DataSet
from mindgap.nets import LeNet5, WideResNet
from mindgap.remedies.perturbation.dropout import Dropout
from mindgap.remedies.perturbation.perturbed import Perturbed
from mindgap.studies.perturbed.arms import accuracy, parts_of, trained, with_fresh_statistics
from mindgap.training.fit import fit


def images(size: int, test_size: int, seed: int) -> DataSet:
    """Invented images whose brightness tells the class."""
    random = torch.Generator().manual_seed(seed)
    targets = torch.arange(size + test_size) % 10
    inputs = (
        torch.rand(size + test_size, 3, 32, 32, generator=random) + targets.view(-1, 1, 1, 1) / 10
    )
    return DataSet("images", inputs[:size], targets[:size], inputs[size:], targets[size:])


def test_parts_are_disjoint_small_and_standardized_by_the_training_images() -> None:
    parts = parts_of(images, (40, 20, 30), 3, 2)
    assert {name: tuple(inputs.shape) for name, (inputs, _) in parts.items()} == {
        "train": (40, 3, 16, 16),
        "validation": (20, 3, 16, 16),
        "test": (30, 3, 16, 16),
    }
    together = torch.cat([parts["train"][0], parts["validation"][0]]).flatten(1)
    assert len(together.unique(dim=0)) == 60
    assert torch.allclose(parts["train"][0].mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    data = images(60, 30, 3)
    rows = {tuple(row) for row in data.inputs.mean((2, 3)).mul(1e4).round().tolist()}
    assert len(rows) == 60
    whole = parts_of(images, (40, 20, 30), 3, 1)
    mean = whole["test"][0].view(30, 3, 16, 2, 16, 2).mean((3, 5))
    assert torch.allclose(parts["test"][0], mean, atol=1e-5)
    assert not torch.equal(parts_of(images, (40, 20, 30), 4, 2)["train"][0], parts["train"][0])


def test_trained_equals_fit_and_its_last_curve_point_is_the_end() -> None:
    parts = parts_of(images, (40, 20, 30), 1, 2)
    recipe = Recipe(model=lambda: WideResNet(10, 1), train=parts["train"], epochs=3, batch_size=20)
    found = trained(recipe, (Perturbed(gamma=1.0),), 5, parts, every=2, shown=100)
    model = fit(recipe, [Perturbed(gamma=1.0)], seed=5).model.eval()
    for name, (inputs, targets) in parts.items():
        right = (model(inputs).argmax(1) == targets).double().mean()
        assert found["final"][name] == pytest.approx(100 * float(right))
        assert found["curves"][name][-1] == found["final"][name]
    assert found["epochs"] == [1, 2, 3]
    assert found["stopped"] == ""
    short = fit(recipe.replace(epochs=2), [Perturbed(gamma=1.0)], seed=5).model
    assert found["curves"]["test"][1] == accuracy(short, *parts["test"])


def test_a_run_that_diverges_is_reported_and_judged() -> None:
    parts = parts_of(images, (40, 20, 30), 1, 1)
    recipe = Recipe(
        model=lambda: LeNet5(channels=3, image_size=32),
        train=parts["train"],
        epochs=4,
        optimizer="sgd",
    )
    found = trained(
        recipe.replace(learning_rate=1e30, batch_size=10), (), 0, parts, every=1, shown=20
    )
    assert found["stopped"].startswith("diverged")
    assert len(found["curves"]["test"]) == len(found["epochs"]) == 4


def test_fresh_statistics_are_those_of_the_inputs() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    inputs = torch.randn(1000, 3, 6, 6) * 3 + 1
    before = {name: value.clone() for name, value in model.state_dict().items()}
    other = with_fresh_statistics(model, inputs)
    assert isinstance(other, nn.Sequential)
    maps = model[0](inputs)
    assert torch.allclose(other[1].running_mean, maps.mean((0, 2, 3)), atol=1e-4)
    assert torch.allclose(other[1].running_var, maps.var((0, 2, 3)), rtol=1e-2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not other[1].training
    assert with_fresh_statistics(model[:1], inputs) is None


def test_dropout_of_a_remedy_is_off_when_accuracy_is_taken() -> None:
    model = Dropout(rate=0.5).attach(LeNet5())
    inputs, targets = torch.rand(50, 1, 28, 28), torch.arange(50) % 10
    assert accuracy(model.train(), inputs, targets) == accuracy(model.train(), inputs, targets)
