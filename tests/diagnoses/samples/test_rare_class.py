"""Rare classes: Fisher's test, graded plants, weighted losses."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from scipy import stats
from torch import nn

from mindgap.core import Recipe, Subject
from mindgap.diagnoses import RareClass
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def quick(kind: str, task: str = "classification", seed: int = 0) -> Recipe:
    """A recipe that is trained just enough."""
    return healthy_recipe(kind, task, seed).replace(epochs=3 if kind == "sequence" else 8)


def constant(bias: list[float]) -> nn.Module:
    net = nn.Linear(1, len(bias))
    with torch.no_grad():
        net.weight.zero_()
        net.bias.copy_(torch.tensor(bias))
    return net


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_plants_are_found(kind: str) -> None:
    finding = RareClass()(RareClass.plant(quick(kind), seed=1))
    assert finding.severity == "wrong"
    assert finding.p_value < 3e-4


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_healthy_subjects_are_not_accused(kind: str) -> None:
    subject = fit(quick(kind, seed=1), seed=1, evaluate_every=0).subject()
    assert RareClass()(subject) is None


def test_a_class_of_a_third_of_an_equal_share_is_a_suspicion() -> None:
    y = torch.tensor([0] * 240 + [1] * 60)
    x = torch.ones(300, 1)
    finding = RareClass()(Subject(constant([1.0, 0.0]), "cross_entropy", (x, y), (x, y)))
    assert finding.severity == "suspect"


@pytest.mark.parametrize(("rare", "cause"), [(400, "wrong-labels"), (10, "")])
def test_a_class_that_the_test_data_have_may_have_lost_its_labels(rare: int, cause: str) -> None:
    x, y = torch.ones(1000, 1), torch.tensor([0] * 990 + [1] * 10)
    test = torch.tensor([0] * (1000 - rare) + [1] * rare)
    finding = RareClass()(Subject(constant([1.0, 0.0]), "cross_entropy", (x, y), (x, test)))
    assert finding.explained_by == cause


def test_the_p_value_is_fishers() -> None:
    y = torch.tensor([0] * 190 + [1] * 10)
    subject = Subject(
        constant([1.0, 0.0]), "cross_entropy", (torch.ones(200, 1), y), (torch.ones(200, 1), y)
    )
    finding = RareClass()(subject)
    exact = stats.fisher_exact([[10, 0], [0, 190]], "greater").pvalue
    assert finding.p_value == pytest.approx(exact, rel=1e-6)
    scope = {"torch": torch}
    exec(finding.advice[1].code, scope)
    assert scope["loss"].weight.tolist() == pytest.approx([200 / 380, 10.0], rel=1e-2)
    assert finding.suspects.index == list(range(190, 200))


def test_the_p_value_counts_errors() -> None:
    y = torch.tensor([0] * 380 + [1] * 20)
    x = y[:, None].float()
    x[388:], x[:10] = 0, 1
    net = nn.Linear(1, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        net.bias.copy_(torch.tensor([0.5, -0.5]))
    finding = RareClass()(Subject(net, "cross_entropy", (x, y), (x, y)))
    exact = stats.fisher_exact([[12, 8], [10, 370]], "greater").pvalue
    assert finding.p_value == pytest.approx(exact, rel=1e-6)


def test_a_rare_class_that_is_predicted_right_is_fine() -> None:
    y = torch.tensor([0] * 190 + [1] * 10)
    net = nn.Linear(1, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        net.bias.copy_(torch.tensor([0.5, -0.5]))
    data = (y[:, None].float(), y)
    assert RareClass()(Subject(net, "cross_entropy", data, data)) is None


def test_a_label_that_is_rarely_on() -> None:
    y = torch.zeros(400, 2)
    y[:200, 0], y[:20, 1] = 1, 1
    net = constant([0.0, -1.0])
    with torch.no_grad():
        net.weight[0, 0] = 1.0
    x = 2 * y[:, :1] - 1
    finding = RareClass()(Subject(net, "bce", (x, y), (x, y)))
    assert finding.sentence.startswith("Label 1 has 20 of 400 training samples")
    assert "pos_weight" in finding.advice[1].code


@pytest.mark.parametrize("case", CASES)
def test_small_subjects_survive(case: str) -> None:
    RareClass()(CASES[case](torch.float32))
