"""Missing classes: the exact chance, the samples, the code that leaves them out."""

from __future__ import annotations

import math

import pytest
import torch
from cases import CASES
from torch import nn

from mindgap.core import Recipe, Subject
from mindgap.diagnoses import MissingClass
from mindgap.studies.diagnoses.healthy import healthy_recipe


def quick(kind: str, task: str = "classification", seed: int = 0) -> Recipe:
    """A recipe that is trained just enough."""
    return healthy_recipe(kind, task, seed).replace(epochs=3 if kind == "sequence" else 8)


def subject(train: list[int], test: list[int]) -> Subject:
    data = [(torch.ones(len(part), 1), torch.tensor(part)) for part in (train, test)]
    return Subject(nn.Linear(1, 4), "cross_entropy", *data)


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_plants_are_found(kind: str) -> None:
    finding = MissingClass()(MissingClass.plant(quick(kind), seed=2, strength=0.5))
    assert finding.severity == "wrong"
    assert finding.p_value < 3e-4


def test_the_chance_is_exact() -> None:
    finding = MissingClass()(subject([0, 1] * 20, [2] * 5 + [0, 1] * 10))
    chance = math.comb(25, 5) / math.comb(65, 5)
    assert finding.p_value == pytest.approx(3 * chance, rel=1e-9)
    assert finding.severity == "note"
    assert finding.suspects.index == [0, 1, 2, 3, 4]


def test_all_classes_known() -> None:
    assert MissingClass()(subject([0, 1, 2] * 20, [0, 1] * 10)) is None


def test_several_classes_and_the_code() -> None:
    finding = MissingClass()(subject([0, 1] * 40, [2, 3, 0, 1] * 30))
    assert finding.sentence.startswith("2 classes (2, 3) make up 50 % of the test data")
    scope = {
        "torch": torch,
        "test_inputs": torch.ones(120, 1),
        "test_targets": torch.tensor([2, 3, 0, 1] * 30),
    }
    exec(finding.advice[1].code, scope)
    assert scope["test_targets"].unique().tolist() == [0, 1]
    assert len(scope["test_inputs"]) == 60


def test_a_label_that_is_never_on() -> None:
    own, other = torch.zeros(200, 2), torch.zeros(100, 2)
    own[::2, 0], other[::3, 1] = 1, 1
    data = (torch.ones(200, 1), own), (torch.ones(100, 1), other)
    finding = MissingClass()(Subject(nn.Linear(1, 2), "bce", *data))
    assert finding.sentence.startswith("Label 1 makes up 34 %")
    assert finding.suspects.index[:2] == [0, 3]


@pytest.mark.parametrize("case", CASES)
def test_small_subjects_survive(case: str) -> None:
    MissingClass()(CASES[case](torch.float32))
