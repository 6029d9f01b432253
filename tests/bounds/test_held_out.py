"""Held-out bounds count the test samples that are not in the training data, and say so."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from mindgap import Subject
from mindgap.bounds.binomial_tail import BinomialTail
from mindgap.bounds.held_out import HeldOutBound
from mindgap.bounds.kl_inverse import KlInverse
from mindgap.bounds.pac_bayes_hessian import PacBayesHessian
from mindgap.bounds.statistical_error import StatisticalError
from mindgap.bounds.validation_set_guarantee import ValidationSetGuarantee

BOUNDS = [BinomialTail(), KlInverse(), ValidationSetGuarantee(), StatisticalError()]


def coins(count: int, seed: int, features: int = 60) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(count, features, generator=source), torch.randint(
        0, 2, (count,), generator=source
    )


def memorizer(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> Subject:
    """A linear model that knows all labels of the training data, which are coin flips."""
    signs = 2.0 * train[1][:, None] - 1
    right = torch.linalg.lstsq(train[0].double(), signs.double()).solution.float().T
    model = nn.Linear(train[0].shape[1], 2, bias=False)
    model.weight.data = torch.cat([-right, right])
    return Subject(model, "cross_entropy", train, test)


def mixed(train: tuple[Tensor, Tensor], fresh: tuple[Tensor, Tensor], shared: int):
    return tuple(torch.cat([new, old[:shared]]) for new, old in zip(fresh, train, strict=True))


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
def test_shared_samples_do_not_count(bound: HeldOutBound) -> None:
    train, fresh = coins(50, 0), coins(500, 1)
    alone, both = (
        bound(memorizer(train, test)) for test in (fresh, mixed(train, fresh, shared=50))
    )
    assert both.value == alone.value
    assert both.value > 0.5
    assert both.valid
    assert (alone.terms["samples"], alone.terms["shared"]) == (500, 0)
    assert (both.terms["samples"], both.terms["shared"]) == (500, 50 / 550)


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
def test_only_training_samples_bound_nothing(bound: HeldOutBound) -> None:
    train = coins(50, 0)
    found = bound(memorizer(train, (train[0].double(), train[1])))
    assert found.value is None
    assert "not in the training data" in found.reason


def test_many_shared_samples_are_a_leak() -> None:
    train = coins(50, 0)
    found = BinomialTail()(memorizer(train, mixed(train, coins(100, 1), shared=50)))
    assert not found.valid
    assert "33 % of the test samples are in the training data" in found.reason


def test_near_copies_are_a_leak() -> None:
    train = coins(50, 0)
    found = BinomialTail()(memorizer(train, (train[0] + 1e-6, train[1])))
    assert found.value is not None
    assert found.value < 0.1  # for a risk of one half
    assert found.terms["near_copies"] == 1
    assert not found.valid
    assert "near copies" in found.reason


def test_a_bound_above_the_majority_class_is_vacuous() -> None:
    """Of 100 labels 90 are zero: an error of a quarter is worse than a constant answer."""
    train = coins(100, 0, 3)[0], (torch.arange(100) >= 90).long()
    test = coins(400, 1, 3)[0], torch.zeros(400, dtype=torch.long)
    model = nn.Linear(3, 2)
    subject = Subject(model, "cross_entropy", train, test)
    model.weight.data.zero_()
    model.bias.data = torch.tensor([1.0, 0.0])
    good = BinomialTail()(subject)
    assert (good.vacuous, good.value < 0.1) == (False, True)
    model.weight.data[0, 0] = 1.5
    poor = BinomialTail()(subject)
    assert 0.1 < poor.value < 1
    assert poor.vacuous


def test_the_baseline_of_a_regression_is_the_mean_target() -> None:
    inputs, _ = coins(50, 0, 3)
    targets = inputs.sum(1, keepdim=True)
    subject = Subject(nn.Linear(3, 1), "mse", (inputs, targets))
    assert StatisticalError().baseline(subject) == pytest.approx(
        float(targets.var(correction=0)), rel=1e-5
    )


def test_the_baseline_of_the_hessian_bound_is_a_bounded_cross_entropy() -> None:
    inputs, _ = coins(100, 0, 3)
    labels = (torch.arange(100) >= 90).long()
    subject = Subject(nn.Linear(3, 2), "cross_entropy", (inputs, labels))
    entropy = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    bound = PacBayesHessian(floor=1e-4)
    assert bound.baseline(subject) == pytest.approx(entropy / math.log(1e4), rel=1e-6)


def test_a_bound_of_one_to_display_precision_is_vacuous() -> None:
    assert KlInverse().evaluate(empirical=0.9999, samples=100).vacuous
    assert not KlInverse().evaluate(empirical=0.5, samples=100).vacuous
