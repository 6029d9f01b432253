"""Telling test from training samples: exact counts, honest levels, the traps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cases import CASES
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from mindgap.core import Subject
from mindgap.ops.evidence import domain
from mindgap.ops.evidence.domain import (
    average_ranks,
    cross_fitted,
    domain_test,
    kolmogorov,
    normal_scores,
    strata,
    tail_test,
)


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


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_average_ranks(values: list[int]) -> None:
    found = average_ranks(torch.tensor(values).double()[:, None])[:, 0]
    np.testing.assert_allclose(found, stats.rankdata(values))


def test_normal_scores_leave_out_constants() -> None:
    values = torch.cat([torch.randn(50, 2, generator=seeded()), torch.ones(50, 1)], 1)
    found = normal_scores(values)
    assert found.shape == (50, 4)
    torch.testing.assert_close(found.std(0), torch.ones(4))
    ranks = stats.norm.ppf((stats.rankdata(values[:, 0]) - 0.5) / 50)
    assert np.corrcoef(found[:, 0], ranks)[0, 1] == pytest.approx(1, abs=1e-6)


def test_kolmogorov_distances_with_ties() -> None:
    own = torch.randint(6, (80, 3), generator=seeded()).double()
    other = torch.randint(7, (50, 3), generator=seeded(1)).double()
    distances, p_values = kolmogorov(own, other)
    for k in range(3):
        expected = stats.ks_2samp(own[:, k], other[:, k], method="asymp")
        assert float(distances[k]) == pytest.approx(expected.statistic)
        assert float(p_values[k]) >= 0.9 * expected.pvalue


def test_scores_come_from_the_other_folds() -> None:
    features = torch.randn(60, 3, generator=seeded())
    target = torch.cat([torch.zeros(40), torch.ones(20)])
    fold = torch.arange(60) % 5
    found = cross_fitted(features, target, fold)
    for k in range(5):
        rest = fold != k
        x, y = features[rest], (target - target.mean())[rest]
        weights = torch.linalg.solve(x.T @ x + domain.RIDGE * 60 * torch.eye(3), x.T @ y)
        torch.testing.assert_close(found[~rest], features[~rest] @ weights, rtol=1e-4, atol=1e-5)


def test_the_tail_counts_test_samples_among_the_highest_scores() -> None:
    scores, fold = torch.randn(500, generator=seeded()), torch.arange(500) % 5
    target = (torch.rand(500, generator=seeded(1)) < 0.3).float()
    scores[target > 0] += 0.7
    p_value, _, auc = tail_test(scores, target, fold, seeded())
    least = 1.0
    for share in domain.TOPS:
        high = np.zeros(500, bool)
        for k in range(5):
            inside = np.where(fold == k)[0]
            best = np.argsort(-scores[inside].numpy())[: round(share * 100)]
            high[inside[best]] = True
        hits = int(target.numpy()[high].sum())
        least = min(least, stats.hypergeom.sf(hits - 1, 500, int(target.sum()), high.sum()))
    mean = np.mean(
        [
            stats.mannwhitneyu(
                scores[(fold == k) & (target > 0)], scores[(fold == k) & (target == 0)]
            ).statistic
            / (((fold == k) & (target > 0)).sum() * ((fold == k) & (target == 0)).sum())
            for k in range(5)
        ]
    )
    assert auc == pytest.approx(float(mean), abs=1e-6)
    assert p_value <= domain.TESTS * least**0.5 * (1 + 1e-9)


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
