"""Gradient masking: neither an estimator without a gradient nor a surrogate with plateaus is accused."""

from __future__ import annotations

import pytest
import torch

from mindgap.core import Recipe, Subject
from mindgap.diagnoses.model.gradient_masking import GradientMasking, Rounded
from mindgap.nets import MLP
from mindgap.training.fit import fit


def test_an_estimator_has_no_gradient_to_hide() -> None:
    trees = pytest.importorskip("sklearn.ensemble")
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).double()
    y = (x[:, 0] > 0).long()
    forest = trees.RandomForestClassifier(10, random_state=0).fit(x[:100].numpy(), y[:100].numpy())
    subject = Subject(forest, "cross_entropy", (x[:100], y[:100]), (x[100:], y[100:]))
    assert GradientMasking()(subject) is None


def test_a_function_with_plateaus_hides_nothing_but_a_gradient_of_zero_does() -> None:
    x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    y = torch.tanh(12 * (x[:, :1] + 0.5 * x[:, 1:] - 0.7))
    recipe = Recipe(
        model=lambda: MLP((2, 32, 32, 1)), train=(x[:100], y[:100]), test=(x[100:], y[100:]),
        loss="mse", learning_rate=0.01, epochs=150, batch_size=50,
    )  # fmt: skip
    subject = fit(recipe, seed=0, evaluate_every=0).subject()
    assert subject.mean_error("test") < 0.01
    assert GradientMasking()(subject) is None
    rounded = Subject(Rounded(subject.model, 0.01), "mse", recipe.train, recipe.test)
    finding = GradientMasking()(rounded)
    assert finding is not None
    assert "exactly zero at 100\N{NO-BREAK SPACE}%" in finding.sentence
