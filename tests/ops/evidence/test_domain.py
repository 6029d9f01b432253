"""Telling test from training samples: exact counts, honest levels, the traps."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from torch import Tensor, nn

from mindgap.core import Subject
from mindgap.ops.evidence.domain import domain_test, strata


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def subject_of(train: Tensor, test: Tensor, own: Tensor, other: Tensor) -> Subject:
    if own.is_floating_point():
        return Subject(nn.Linear(train.shape[1], 1), "mse", (train, own), (test, other))
    net = nn.Linear(train.shape[1], int(max(own.max(), other.max())) + 1)
    return Subject(net, "cross_entropy", (train, own), (test, other))


def one_source(n: int, m: int, seed: int, classes: int = 3) -> Subject:
    x = torch.randn(n + m, 6, generator=seeded(seed))
    y = (x[:, 0] * 2).round().long() % classes
    return subject_of(x[:n], x[n:], y[:n], y[n:])


@pytest.mark.parametrize("sizes", [(400, 200), (3000, 60), (100, 1000)])
def test_equal_sources_are_not_told_apart(sizes: tuple[int, int]) -> None:
    found = [domain_test(one_source(*sizes, seed)) for seed in range(5)]
    assert all(one is not None and one.p_value > 0.01 for one in found)
    assert sum(one.share > 0 for one in found) <= 1


def test_a_tenth_of_foreign_samples_is_found() -> None:
    subject = one_source(1000, 500, seed=0)
    x, y = subject.test.inputs[0].clone(), subject.test.target
    x[:50] += 4
    train = subject.train.inputs[0], subject.train.target
    found = domain_test(subject_of(train[0], x, train[1], y))
    assert found.p_value < 1e-5
    assert 0.03 < found.share < 0.1
    assert found.foreign[found.test < 50].double().mean() > 0.95


def test_repeated_training_samples_are_no_shift() -> None:
    x = torch.randn(900, 6, generator=seeded())
    y = torch.arange(900) % 2
    train = torch.cat([x[:300]] * 5)
    found = domain_test(subject_of(train, x[300:], torch.cat([y[:300]] * 5), y[300:]))
    assert found.p_value > 0.01
    assert len(found.train) <= 300


def test_natural_duplicates_are_kept() -> None:
    """Few possible values: to drop equal samples would thin out the larger split."""
    x = (1 / torch.rand(3200, 2, generator=seeded())).floor().clamp_max(20)
    y = torch.arange(3200) % 2
    found = domain_test(subject_of(x[:3000], x[3000:], y[:3000], y[3000:]))
    assert found.p_value > 0.01
    assert len(found.train) > 2500


def test_other_shares_of_the_classes_are_no_shift() -> None:
    y = torch.cat([torch.arange(1000) % 2, (torch.arange(500) % 10 == 0).long()])
    x = torch.randn(1500, 4, generator=seeded()) + 2 * y[:, None]
    subject = subject_of(x[:1000], x[1000:], y[:1000], y[1000:])
    assert domain_test(subject).p_value > 0.01
    assert domain_test(subject, matched=False).p_value < 1e-6


def test_other_shares_of_targets_are_no_shift() -> None:
    x = torch.randn(4000, 3, generator=seeded())
    y = x.sum(1, keepdim=True)
    high = (y[2000:, 0] > 0) | (torch.rand(2000, generator=seeded(1)) < 0.2)
    subject = subject_of(x[:2000], x[2000:][high], y[:2000], y[2000:][high])
    assert domain_test(subject).p_value > 1e-3
    assert domain_test(subject, matched=False).p_value < 1e-6


def test_strata_of_several_labels_are_their_sets() -> None:
    y = torch.tensor([[0.0, 1], [1, 1], [0, 1], [0, 0]])
    subject = Subject(nn.Linear(2, 2), "bce", (torch.eye(4)[:, :2], y), (torch.zeros(2, 2), y[:2]))
    own, other = strata(subject)
    assert own[0] == own[2] == other[0]
    assert len(own.unique()) == 3


@pytest.mark.parametrize("case", CASES)
def test_small_subjects_survive(case: str) -> None:
    found = domain_test(CASES[case](torch.float32))
    assert found is None or 0 <= found.p_value <= 1


def test_tokens() -> None:
    random = seeded()
    tokens = torch.randint(40, (1200, 12), generator=random)
    y = torch.arange(1200) % 2

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.EmbeddingBag(80, 2)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.table(tokens)

    def p_value(test: Tensor) -> float:
        data = (tokens[:800], y[:800]), (test, y[800:])
        return domain_test(Subject(Bag(), "cross_entropy", *data)).p_value

    assert p_value(tokens[800:]) > 0.01
    other = tokens[800:].clone()
    other[:120] += 20
    assert p_value(other) < 1e-4
