"""Inputs that are the target in other words, and inputs that only resemble it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mindgap.core import Finding, Recipe, Subject
from mindgap.diagnoses import TargetInInputs
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit

KINDS = (("table", "classification"), ("table", "regression"), ("sequence", "classification"))


def quick(kind: str, task: str = "classification") -> Recipe:
    return healthy_recipe(kind, task, 0).replace(epochs=2)


def blobs(count: int = 300, classes: int = 3) -> tuple[Tensor, Tensor]:
    y = torch.arange(count) % classes
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(0)), y


def found(x: Tensor, y: Tensor) -> Finding | None:
    """The first two thirds are training data."""
    cut, outputs = 2 * len(x) // 3, 1 if y.is_floating_point() else int(y.max()) + 1
    loss = "mse" if y.is_floating_point() else "cross_entropy"
    model = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), outputs))
    return TargetInInputs()(Subject(model, loss, (x[:cut], y[:cut]), (x[cut:], y[cut:])))


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_plants_are_found_and_healthy_subjects_are_not(kind: str, task: str) -> None:
    recipe = quick(kind, task)
    for strength in (1.0, 0.5):
        finding = TargetInInputs()(TargetInInputs.plant(recipe, 0, strength))
        assert (finding is None) == (strength < 1 and task == "regression")
        if finding is not None:
            assert finding.evidence[2].value > finding.evidence[1].value
    assert TargetInInputs()(fit(recipe).subject()) is None


def test_a_code_in_any_order_or_of_several_columns() -> None:
    x, y = blobs()
    code = torch.tensor([7.0, -3.0, 7.5])[y]
    assert found(torch.cat([x, code[:, None]], 1), y).sentence.startswith("Input 2 gives")
    one_hot = nn.functional.one_hot(y, 3).float()
    assert found(torch.cat([one_hot, x], 1), y).sentence.startswith("Input 0 and 2 more give")
    # One column that tells one class of three apart may well be a natural mark.
    assert found(torch.cat([x, one_hot[:, :1]], 1), y) is None


def test_separated_measurements_are_none() -> None:
    x, y = blobs()
    x[:, 0] = 0.5 * x[:, 0] + 6 * y  # twelve standard deviations apart
    assert found(x, y) is None


def test_a_target_that_only_training_data_tell() -> None:
    x, y = blobs()
    code = y.float()
    code[200:] = code[200:].flip(0)
    assert found(torch.cat([x, code[:, None]], 1), y) is None


def test_ranks_of_a_number() -> None:
    x, _ = blobs()
    y = x[:, 1].exp()[:, None]
    assert found(x, y).sentence.startswith("Input 1 gives")
    noisy = y + 0.05 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    assert found(x, noisy) is None
    assert found(x[:, 1:], y) is None  # a function of one input


def test_constant_inputs_and_rare_classes() -> None:
    x, y = blobs()
    y[:3] = 3
    constant = torch.cat([x, torch.ones(300, 1)], 1)
    assert found(constant, y) is None
    assert found(torch.cat([constant, y[:, None]], 1), y).sentence.startswith("Input 3 gives")


def test_advice_removes_what_the_inputs_say() -> None:
    x, y = blobs()
    x = torch.cat([x, y[:, None]], 1)
    scope = {"train_inputs": x[:200], "test_inputs": x[200:]}
    exec(found(x, y).advice[0].code, scope)
    cleaned = torch.cat([scope["train_inputs"], scope["test_inputs"]])
    assert found(cleaned, y) is None
    assert bool((cleaned[:, :2] == x[:, :2]).all())
    assert bool((x[:, 2] == y).all()), "the user's tensors are as they were"
