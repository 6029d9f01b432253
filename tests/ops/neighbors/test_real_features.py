"""Neighbors and weights on LeNet-5's features of real digits, against brute force for every row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from ops import helpers
from ops.helpers import clusters, one_scaled, outlier, sets
from torch import Tensor

from mindgap import Recipe, fit
from mindgap.data import mnist
from mindgap.nets import LeNet5
from mindgap.ops.models.head import find_head, head_features
from mindgap.ops.neighbors.search import nearest
from mindgap.ops.variance.estimator import VarianceWeights

pytestmark = pytest.mark.shared
ROWS, K, MAX_WEIGHT = 2000, 20, 40.0
TRIALS = {
    "offset of 1e4": lambda rows: rows + 1e4,
    "two clusters at 1e4": lambda rows: clusters(rows, 1e4),
    "one feature times 1e4": one_scaled,
    "one outlier at 1e6": outlier,
    "rounded": lambda rows: rows.round(),
}


@pytest.fixture(scope="module")
def lenet(shared_module: Path) -> tuple[Tensor, Tensor]:
    """Features and labels of some digits, from a LeNet-5 trained on them for two epochs."""
    images, labels = (part[:ROWS] for part in mnist().train)
    recipe = Recipe(model=LeNet5, train=(images, labels), epochs=2, batch_size=50, optimizer="adam")
    subject = fit(recipe, seed=0, evaluate_every=0).subject()
    return head_features(subject, "train", find_head(subject, "")), labels


@pytest.mark.parametrize("trial", TRIALS)
def test_single_precision_finds_the_sets_of_brute_force(
    lenet: tuple[Tensor, Tensor], trial: str
) -> None:
    rows = TRIALS[trial](lenet[0].float())
    assert rows.dtype == torch.float32
    found = nearest(rows, K, method="exact")
    wanted = sets(helpers.squares(rows.numpy()), K)
    assert [set(found[row].tolist()) for row in range(ROWS)] == wanted


@pytest.mark.parametrize("trial", ["offset of 1e4", "rounded"])
def test_double_precision_gives_the_weights_of_brute_force(
    lenet: tuple[Tensor, Tensor], trial: str
) -> None:
    rows, labels = TRIALS[trial](lenet[0].double()), lenet[1]
    found = VarianceWeights(k=K, max_weight=MAX_WEIGHT, method="exact").fit(rows, labels).weights_
    variance = helpers.variances(helpers.squares(rows.numpy()), helpers.one_hot(labels.numpy()), K)
    np.testing.assert_allclose(
        found, 1 + (MAX_WEIGHT - 1) * variance / variance.max(), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("trial", TRIALS)
def test_shuffling_changes_no_weight(lenet: tuple[Tensor, Tensor], trial: str) -> None:
    rows, labels = TRIALS[trial](lenet[0].float()), lenet[1]
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    plain = VarianceWeights(k=K).fit(rows, labels).weights_
    np.testing.assert_array_equal(
        plain[order], VarianceWeights(k=K).fit(rows[order], labels[order]).weights_
    )
