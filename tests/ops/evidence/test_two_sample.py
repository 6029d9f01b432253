"""Two-sample tests against brute force and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy import stats

from mindgap.ops.evidence import two_sample
from mindgap.ops.evidence.two_sample import (
    average_ranks,
    cross_fitted,
    kolmogorov,
    normal_scores,
    tail_test,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
        weights = torch.linalg.solve(x.T @ x + two_sample.RIDGE * 60 * torch.eye(3), x.T @ y)
        torch.testing.assert_close(found[~rest], features[~rest] @ weights, rtol=1e-4, atol=1e-5)


def test_the_tail_counts_test_samples_among_the_highest_scores() -> None:
    scores, fold = torch.randn(500, generator=seeded()), torch.arange(500) % 5
    target = (torch.rand(500, generator=seeded(1)) < 0.3).float()
    scores[target > 0] += 0.7
    p_value, _, auc = tail_test(scores, target, fold, seeded())
    least = 1.0
    for share in two_sample.TOPS:
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
    assert p_value <= two_sample.TESTS * least**0.5 * (1 + 1e-9)
