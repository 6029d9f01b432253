"""GLUE metrics against scipy and scikit-learn, and the parts of a split."""

import numpy as np
import pytest
import scipy.stats
import sklearn.decomposition
import sklearn.linear_model
import sklearn.metrics
import torch

from mindgap.ops.variance.weights import scale_weights
from mindgap.studies.vbsw.glue import Parts, Weights, rows_of, scores


def parts_of(name="RTE", samples=240, seed=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=random, dtype=torch.float64)
    values = x[:, 0] + 0.7 * torch.randn(samples, generator=random, dtype=torch.float64)
    target = values if name == "STS-B" else (values > 0).long()
    return Parts.of(name, x, target, rows_of(target, None, seed), 6)


class TestScores:
    def test_classes_against_scikit_learn(self):
        random = torch.Generator().manual_seed(0)
        logits, target = (
            torch.randn(4, 50, generator=random),
            torch.randint(2, (50,), generator=random),
        )
        found = scores("MRPC", logits, target)
        for k, row in enumerate((logits > 0).int()):
            assert found["accuracy"][k] == pytest.approx(
                100 * sklearn.metrics.accuracy_score(target, row)
            )
            assert found["F1"][k] == pytest.approx(100 * sklearn.metrics.f1_score(target, row))
        assert list(scores("RTE", logits, target)) == ["accuracy"]

    def test_values_against_scipy(self):
        random = torch.Generator().manual_seed(0)
        values, target = (
            torch.randn(3, 40, generator=random),
            torch.randint(6, (40,), generator=random).float(),
        )
        found = scores("STS-B", values, target)
        for k, row in enumerate(values.numpy()):
            assert found["Pearson"][k] == pytest.approx(
                100 * scipy.stats.pearsonr(row, target)[0], rel=1e-5
            )
            assert found["Spearman"][k] == pytest.approx(
                100 * scipy.stats.spearmanr(row, target)[0]
            )

    def test_what_is_undefined_counts_zero(self):
        assert scores("STS-B", torch.ones(1, 4), torch.arange(4.0)) == {
            "Spearman": [0.0],
            "Pearson": [0.0],
        }
        assert scores("MRPC", -torch.ones(1, 4), torch.zeros(4).long()) == {
            "accuracy": [100.0],
            "F1": [0.0],
        }


class TestParts:
    def test_rows_are_drawn_anew_and_never_shared(self):
        target = torch.arange(100) % 2
        first, second = rows_of(target, None, 0), rows_of(target, None, 1)
        assert [len(part) for part in first] == [60, 20, 20]
        assert torch.cat(first).sort().values.tolist() == list(range(100))
        assert not torch.equal(first[2], second[2])

    def test_the_official_part_judges_alone(self):
        official = torch.arange(100) >= 80
        fit, choose, judge = rows_of(torch.arange(100) % 2, official, 0)
        assert judge.tolist() == list(range(80, 100))
        assert torch.cat([fit, choose]).sort().values.tolist() == list(range(80))
        assert len(fit) == 60

    def test_components_equal_those_of_scikit_learn_on_the_fit_part(self):
        random = torch.Generator().manual_seed(0)
        x = (
            torch.randn(90, 5, generator=random, dtype=torch.float64)
            @ torch.randn(5, 5, generator=random).double()
        )
        target = torch.arange(90) % 2
        rows = rows_of(target, None, 0)
        parts = Parts.of("RTE", x, target, rows, 3)
        fit, judge = (x[place].numpy() for place in (rows[0], rows[2]))
        scaled = [(part - fit.mean(0)) / fit.std(0) for part in (fit, judge)]
        reference = sklearn.decomposition.PCA(3).fit(scaled[0]).transform(scaled[1])[:, ::-1]
        np.testing.assert_allclose(np.abs(parts.judge[0].numpy()), np.abs(reference), atol=1e-9)

    def test_published_weights_by_brute_force(self):
        parts = parts_of("STS-B")
        x, y = parts.fit
        near = torch.cdist(x, x).argsort(1)[:, :30]
        variance = y[near].var(1, correction=0)
        found = Weights(parts).published
        torch.testing.assert_close(found, scale_weights(variance, 30.0))
