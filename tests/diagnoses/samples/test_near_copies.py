"""Near copies: found by kind, told apart from natural neighbors and equal samples."""

from __future__ import annotations

import pytest
import torch
from pasting import pasted
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses import NearCopies
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit

KINDS = [
    ("image", "classification"),
    ("table", "classification"),
    ("sequence", "classification"),
    ("table", "regression"),
    ("sequence", "regression"),
]


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_five_percent_with_noise_are_found_and_traced(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task, 1).replace(epochs=0)
    subject = NearCopies.plant(recipe, 1, 0.25)
    finding = NearCopies()(subject)
    assert finding.severity == "wrong"
    assert finding.p_value < 3e-4
    assert finding.evidence[0].value == pytest.approx(0.05, abs=0.02)
    changed = subject.test.take(torch.arange(len(subject.test))).inputs[0] != recipe.test[0]
    leaked = changed.flatten(1).any(1)
    assert float(leaked[list(finding.suspects.index)].double().mean()) > 0.9
    scope = pasted(finding, test_inputs=recipe.test[0], test_targets=recipe.test[1])
    assert len(scope["test_targets"]) == len(recipe.test[1]) - len(finding.suspects.index)


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_healthy_splits_are_not_accused(kind: str, task: str) -> None:
    for seed in range(2):
        recipe = healthy_recipe(kind, task, seed).replace(epochs=0)
        assert NearCopies()(fit(recipe).subject()) is None


def test_data_that_are_near_each_other_everywhere_are_not_accused() -> None:
    """Every case was filmed twice, and all films were split at random: the base rate knows."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(500, 6, generator=random).repeat(2, 1)
    x += 0.01 * torch.randn(x.shape, generator=random)
    order = torch.randperm(1000, generator=random)
    y = torch.arange(1000) % 2
    train, test = ((x[part], y[part]) for part in order.split([600, 400]))
    finding = NearCopies()(Subject(nn.Linear(6, 2), "cross_entropy", train, test))
    assert finding is None


def test_equal_samples_are_left_to_another_diagnosis() -> None:
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(500, 6, generator=random), torch.arange(500) % 2
    data = (x[:300], y[:300]), (torch.cat([x[:40], x[300:]]), torch.cat([y[:40], y[300:]]))
    assert NearCopies()(Subject(nn.Linear(6, 2), "cross_entropy", *data)) is None


def test_equal_targets_give_copies_in_few_dimensions_away() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.rand(3000, 2, generator=random)
    y = x.sum(1, keepdim=True) + 0.1 * torch.randn(3000, 1, generator=random)
    test_x, test_y = x[2000:].clone(), y[2000:].clone()
    test_x[:60] = x[:60] + 0.005 * torch.randn(60, 2, generator=random)
    test_y[:60] = y[:60]
    finding = NearCopies()(Subject(nn.Linear(2, 1), "mse", (x[:2000], y[:2000]), (test_x, test_y)))
    hits = sum(place < 60 for place in finding.suspects.index)
    assert hits / len(finding.suspects.index) > 0.9


def test_few_samples_say_nothing() -> None:
    x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    subject = Subject(nn.Linear(3, 2), "cross_entropy", (x, y), (x + 1e-4, y))
    assert NearCopies()(subject) is None


def test_a_class_with_few_training_samples_is_not_accused() -> None:
    """Its test samples have one neighbor of their class, and then far ones of others."""
    for seed in range(6):
        x, y = healthy_recipe("sequence", seed=seed).train
        test = healthy_recipe("sequence", seed=seed).test
        rare = (y == 2).nonzero().flatten()[6:]
        keep = torch.ones(len(y), dtype=torch.bool)
        keep[rare] = False
        subject = Subject(nn.Flatten(), "cross_entropy", (x[keep], y[keep]), test)
        assert NearCopies()(subject) is None
