"""Wrong targets: the estimated share, the list, and silence on clean data."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from mindgap.core import InputError, Subject
from mindgap.ops.evidence.contradicted import contradicted
from mindgap.ops.evidence.label_noise import LEVEL, TESTS, noise
from mindgap.ops.evidence.spoiled import misassigned
from mindgap.studies.diagnoses.healthy import healthy_recipe

Data = tuple[Tensor, Tensor]


def subject_of(train: Data, test: Data) -> Subject:
    if train[1].is_floating_point():
        return Subject(nn.Flatten(), "mse", train, test)
    return Subject(nn.Flatten(), "cross_entropy", train, test)


def data_of(kind: str, task: str = "classification", seed: int = 0) -> tuple[Data, Data]:
    recipe = healthy_recipe(kind, task, seed)
    return recipe.train, recipe.test


def spoiled(data: Data, share: float, seed: int) -> Data:
    return data[0], misassigned(data[1], share, torch.Generator().manual_seed(seed))


CASES = [("image", "classification"), ("sequence", "classification"), ("table", "regression")]


@pytest.mark.parametrize(("kind", "task"), CASES)
def test_share_of_wrong_targets_is_estimated(kind: str, task: str) -> None:
    train, test = data_of(kind, task, seed=4)
    for share in (0.1, 0.3):
        found = noise(subject_of(spoiled(train, share, 1), test), "train")
        assert found.interval.low - 0.01 < share < found.interval.high + 0.01
        assert found.p_value < 1e-4
        found = noise(subject_of(train, spoiled(test, share, 1)), "test")
        assert found.interval.low - 0.01 < share < found.interval.high + 0.01


@pytest.mark.parametrize(("kind", "task"), [*CASES, ("table", "classification")])
def test_clean_targets_are_not_accused(kind: str, task: str) -> None:
    for seed in range(2):
        subject = subject_of(*data_of(kind, task, seed))
        for which in ("train", "test"):
            found = noise(subject, which)
            assert min(found.p_value, found.pair_p_value) > 1e-3


@pytest.mark.parametrize(("share", "least"), [(0.1, 80), (0.6, 700)])
def test_list_is_as_right_as_it_says(share: float, least: int) -> None:
    train, test = data_of("image", seed=1)
    noisy = spoiled(train, share, 2)
    subject = subject_of(noisy, test)
    found, marks = noise(subject, "train"), contradicted(subject)
    places = marks.places[found.listed]
    wrong = (noisy[1] != train[1])[places].double()
    assert len(places) > least
    assert float(wrong.mean()) == pytest.approx(found.right, abs=0.06)
    assert float(wrong[:40].mean()) > 0.9


def test_wrong_labels_in_one_class_are_named() -> None:
    train, test = data_of("table", seed=1)
    labels = train[1].clone()
    ones = (labels == 1).nonzero().flatten()
    labels[ones[: len(ones) // 5]] = 2
    found = noise(subject_of((train[0], labels), test), "train")
    assert found.pair == (1, 2)
    assert found.pair_p_value < 1e-6
    assert found.pair_rate == pytest.approx(0.2, abs=0.06)


def test_few_wrong_labels_in_one_of_many_classes_are_named() -> None:
    """Of 120 pairs and classes only about six are contradicted often enough to be found."""
    train, test = digits()
    labels = train[1].clone()
    threes = (labels == 3).nonzero().flatten()
    labels[threes[: len(threes) // 3]] = 8
    found = noise(subject_of((train[0], labels), test), "train")
    assert found.pair == (3, 8)
    assert found.pair_p_value < LEVEL / TESTS
    assert found.pair_rate == pytest.approx(1 / 3, abs=0.08)
    for which in ("train", "test"):
        assert noise(subject_of(train, test), which).pair_p_value > LEVEL


def test_a_share_is_at_most_all() -> None:
    train, test = digits()
    found = noise(subject_of(spoiled(train, 0.85, 0), test), "train")
    assert found.rate == found.interval.high == 1


def digits() -> tuple[Data, Data]:
    images, labels = load_digits(return_X_y=True)
    found = train_test_split(images / 16, labels, test_size=0.35, random_state=0, stratify=labels)
    inputs, others, targets, rest = map(torch.tensor, found)
    return (inputs.float(), targets), (others.float(), rest)


def test_different_shares_of_classes_are_no_wrong_labels() -> None:
    train, test = data_of("table", seed=0)
    keep = (train[1] != 0) | (torch.arange(len(train[1])) % 4 == 0)
    subject = subject_of((train[0][keep], train[1][keep]), test)
    assert min(noise(subject, "train").p_value, noise(subject, "test").p_value) > 1e-3


def test_copies_are_left_out() -> None:
    train, test = data_of("table", seed=0)
    twice = torch.cat([train[0], train[0][:900]]), torch.cat([train[1], train[1][:900]])
    subject = subject_of(twice, test)
    # A copy tells the reference predictor the label, which would make the test labels look worse.
    assert int(contradicted(subject).train.sum()) == 1100
    assert noise(subject, "test").p_value > 1e-3


def test_few_samples_and_several_labels_are_refused() -> None:
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match="at least 50"):
        contradicted(subject_of((x, torch.arange(12) % 2), (x + 1, torch.arange(12) % 2)))
    several = Subject(nn.Linear(3, 2), "bce", (x, (x[:, :2] > 0).float()), (x, x[:, :2].sign()))
    with pytest.raises(InputError, match="several labels"):
        contradicted(several)


def test_classes_and_columns_that_never_occur() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.cat([torch.randn(200, 2, generator=random), torch.ones(200, 1)], 1)
    labels = 3 * (x[:, 0] > 0).long()  # classes 1 and 2 are absent, one column is constant
    subject = subject_of((x[:100], labels[:100]), (x[100:], labels[100:]))
    assert noise(subject, "train").p_value > 1e-3
