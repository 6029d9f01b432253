"""Wrong training labels: words, list, advice, and silence."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mindgap
from mindgap.core import Subject
from mindgap.diagnoses import WrongLabels
from mindgap.ops.evidence.spoiled import misassigned
from mindgap.studies.diagnoses.healthy import healthy_recipe


def noisy(kind: str, task: str, share: float, seed: int = 0) -> Subject:
    """Only the data count: the diagnosis never asks the model."""
    recipe = healthy_recipe(kind, task, seed)
    inputs, targets = recipe.train
    if share:
        targets = misassigned(targets, share, torch.Generator().manual_seed(seed))
    return Subject(nn.Flatten(), recipe.loss, (inputs, targets), recipe.test)


@pytest.mark.parametrize(
    ("kind", "task", "share"),
    [
        ("image", "classification", 0.05),
        ("table", "classification", 0.05),
        ("sequence", "classification", 0.05),
        ("table", "regression", 0.1),
        ("sequence", "regression", 0.05),
    ],
)
def test_found_and_listed(kind: str, task: str, share: float) -> None:
    finding = WrongLabels()(noisy(kind, task, share, seed=1))
    assert finding.severity == "wrong"
    assert finding.p_value < 3e-4
    assert finding.evidence[0].interval.low < share < finding.evidence[0].interval.high
    word = "targets" if task == "regression" else "labels"
    assert f"of the training {word} are wrong" in finding.sentence
    clean = healthy_recipe(kind, task, 1).train[1]
    given = noisy(kind, task, share, seed=1).targets("train")
    places = list(finding.suspects.index)
    wrong = (given.reshape(len(given), -1) != clean.reshape(len(given), -1)).any(1)[places]
    assert float(wrong.double().mean()) > finding.evidence[2].value - 0.2
    assert all(len(column) == len(places) for column in finding.suspects.columns.values())
    assert [chart.kind for chart in finding.charts] == ["histogram", "gallery"]


def test_suggested_labels_are_mostly_the_right_ones() -> None:
    finding = WrongLabels()(noisy("image", "classification", 0.1))
    clean = healthy_recipe("image").train[1]
    suggested = torch.tensor([int(word) for word in finding.suspects.columns["suggested"]])
    right = (suggested == clean[list(finding.suspects.index)]).double()
    assert float(right.mean()) > 0.85


def test_advice_leaves_the_suspects_out() -> None:
    subject = noisy("table", "classification", 0.1)
    finding = WrongLabels()(subject)
    inputs, targets = healthy_recipe("table").train
    scope = {"torch": torch, "mindgap": mindgap, "subject": subject}
    scope |= {"train_inputs": inputs, "train_targets": targets}
    exec(finding.advice[0].code, scope)
    assert len(scope["train_targets"]) == len(targets) - len(finding.suspects.index)


def test_a_class_whose_labels_were_lost_is_not_only_rare() -> None:
    """What learned from such labels cannot know the class; what learned from the test data can."""
    (inputs, targets), test = healthy_recipe("image").train, healthy_recipe("image").test
    random = torch.Generator().manual_seed(0)
    mine = (targets == 7).nonzero().flatten()
    labels = targets.clone()
    labels[mine] = torch.randint(0, 10, (len(mine),), generator=random)
    finding = WrongLabels()(Subject(nn.Flatten(), "cross_entropy", (inputs, labels), test))
    assert "of the training" in finding.sentence
    places = list(finding.suspects.index)
    assert float((labels != targets)[places].double().mean()) > 0.8
    suggested = list(finding.suspects.columns["suggested"])
    assert suggested.count("7") > 0.8 * len(suggested)
    few = (targets != 7) | (torch.rand(len(targets), generator=random) < 0.1)
    rare = Subject(nn.Flatten(), "cross_entropy", (inputs[few], targets[few]), test)
    assert WrongLabels()(rare) is None


def test_a_mixed_up_pair_is_named() -> None:
    recipe = healthy_recipe("table", seed=1)
    labels = recipe.train[1].clone()
    ones = (labels == 1).nonzero().flatten()
    labels[ones[::6]] = 2
    train = recipe.train[0], labels
    names = ("ant", "bee", "cat")
    subject = Subject(nn.Linear(10, 3), "cross_entropy", train, recipe.test, classes=names)
    finding = WrongLabels()(subject)
    assert "that look like class 'bee' are labeled class 'cat'" in finding.sentence
    assert set(finding.suspects.columns["suggested"]) == {"bee"}


@pytest.mark.parametrize(("kind", "task"), [("image", "classification"), ("table", "regression")])
def test_clean_labels_and_equally_noisy_ones_are_not_accused(kind: str, task: str) -> None:
    for seed in range(2):
        assert WrongLabels()(noisy(kind, task, 0.0, seed)) is None
    recipe = healthy_recipe(kind, task)
    random = torch.Generator().manual_seed(0)
    both = [(x, misassigned(y, 0.1, random)) for x, y in (recipe.train, recipe.test)]
    assert WrongLabels()(Subject(nn.Flatten(), recipe.loss, *both)) is None


def test_plant_changes_a_tenth_of_the_labels() -> None:
    recipe = healthy_recipe("table").replace(epochs=0)
    subject = WrongLabels.plant(recipe, seed=2)
    changed = subject.targets("train") != recipe.train[1]
    assert float(changed.double().mean()) == pytest.approx(0.1)


def test_nearly_all_samples_are_not_listed() -> None:
    finding = WrongLabels()(noisy("image", "classification", 0.7))
    assert finding.evidence[0].value == pytest.approx(0.7, abs=0.15)
    assert not finding.suspects.index
    assert "by hand" in finding.advice[0].text
    assert len(finding.evidence) == 1
    assert [chart.kind for chart in finding.charts] == ["histogram"]
