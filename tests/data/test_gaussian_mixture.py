"""Gaussian mixtures and their Bayes error, by quadrature and by the best classifier."""

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from mindgap.data import gaussian_mixture
from mindgap.data.gaussian_mixture import bayes_error


@pytest.mark.parametrize(
    ("classes", "separation", "std"), [(2, 3.0, 1.0), (2, 1.0, 0.5), (3, 2.0, 1.0), (10, 4.0, 1.0)]
)
def test_bayes_error_by_quadrature(classes, separation, std):
    shift = separation / (std * 2**0.5)
    right = quad(lambda z: norm.pdf(z) * norm.cdf(z + shift) ** (classes - 1), -12, 12)[0]
    assert bayes_error(classes, separation, std) == pytest.approx(1 - right, abs=1e-9)
    if classes == 2:
        assert bayes_error(2, separation, std) == pytest.approx(
            norm.cdf(-separation / (2 * std)), abs=1e-9
        )


@pytest.mark.parametrize(("classes", "features"), [(2, 1), (2, 5), (4, 6)])
def test_the_best_classifier_has_the_bayes_error(classes, features):
    data = gaussian_mixture(
        size=100_000, classes=classes, features=features, separation=2.0, test_size=1
    )
    means = torch.stack(
        [data.inputs[data.targets == label].mean(dim=0) for label in range(classes)]
    )
    distances = torch.cdist(means, means)[~torch.eye(classes, dtype=torch.bool)]
    assert torch.allclose(distances, torch.tensor(2.0), atol=0.05)
    error = float((torch.cdist(data.inputs, means).argmin(dim=1) != data.targets).double().mean())
    assert error == pytest.approx(data.facts["bayes_error"], abs=0.006)


def test_crowded_mixtures_promise_nothing():
    assert gaussian_mixture(classes=5, features=2).facts == {}
