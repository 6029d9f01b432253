"""The quality of a data set in path space, its null, and Proposition 4, against listed paths."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from path_list import Paths
from torch import nn

from mindgap import Subject
from mindgap.measures import DataSetQuality, PathSpaceLimit
from mindgap.nets import MLP
from mindgap.ops.paths.concentrated import proposition_4
from mindgap.ops.paths.subject import sides_of


def made(shift: float = 0.0, seed: int = 0, samples: int = 60) -> Subject:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MLP((3, 5, 4, 2)).double()
        x = torch.randn(2 * samples, 3, dtype=torch.double)
    x[samples:] += shift
    y = (x[:, 0] > shift / 2).long()
    return Subject(model, "cross_entropy", (x[:samples], y[:samples]), (x[samples:], y[samples:]))


def listed(subject: Subject) -> tuple[Paths, np.ndarray, np.ndarray]:
    x = torch.cat(
        [split.take(torch.arange(len(split))).inputs[0] for split in (subject.test, subject.train)]
    )
    y = np.eye(2)[torch.cat([subject.targets("test"), subject.targets("train")]).numpy()]
    held, own = len(subject.test), len(subject.train)
    return Paths(subject.model, x), y, np.r_[np.full(held, 1 / held), np.full(own, -1 / own)]


def test_equals_all_paths_listed() -> None:
    subject = made()
    paths, y, d = listed(subject)
    z = paths.features
    largest = np.linalg.eigvalsh(z.T @ (d[:, None] * z))[-1]
    second = np.abs(z.T @ (y * d[:, None])).max(0)
    found, limit = DataSetQuality()(subject), PathSpaceLimit()(subject)
    assert found.value == pytest.approx(largest / (z**2).sum(1).mean(), rel=1e-9)
    assert found.terms["beta_2"] == pytest.approx(second.max(), rel=1e-9)
    assert found.terms["beta_3"] == 0
    squares, sums = (paths.weights**2).sum(), np.abs(paths.weights).sum(1)
    assert limit.value == pytest.approx(largest * squares + 2 * (second * sums).sum(), rel=1e-9)
    assert limit.terms["as_published"] == pytest.approx(
        largest * squares + 2 * second.max() * sums.sum(), rel=1e-9
    )
    losses = ((paths.outputs - y) ** 2).sum(1)
    assert limit.terms["gap"] == pytest.approx(d @ losses, rel=1e-9)
    quadratic, linear = limit.terms["quadratic"], limit.terms["linear"]
    assert quadratic + linear + limit.terms["beta_3"] == pytest.approx(d @ losses, rel=1e-9)


def test_shifted_data_exceed_their_null_and_like_ones_do_not() -> None:
    shifted = DataSetQuality()(made(shift=3.0))
    assert shifted.terms["p_value"] == 0.01
    assert shifted.value > 3 * shifted.terms["null_median"]
    # The weights are random, so samples are exchangeable and p-values uniform.
    values = [DataSetQuality(seed=seed)(made(seed=seed)).terms["p_value"] for seed in range(20)]
    assert min(values) > 0.005
    assert 0.2 < np.mean(values) < 0.8


def test_more_samples_than_wanted_are_drawn_at_random() -> None:
    found = DataSetQuality(samples=20)(made())
    assert (found.details["held_out"], found.details["training"]) == (20, 20)
    assert found.value != DataSetQuality(samples=20, seed=1)(made()).value


def test_the_limit_is_called_vacuous_where_it_is() -> None:
    assert PathSpaceLimit()(made()).vacuous
    subject = made()
    with torch.no_grad():
        for layer in subject.model:
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(1e-3)
                layer.bias.mul_(1e-3)
        subject.model[-1].bias.fill_(0.5)  # as good as the best constant, and hardly any paths
    found = PathSpaceLimit()(subject)
    assert (
        not found.vacuous
        or found.terms["training_loss"] >= found.terms["constant_loss"] - found.value
    )


def test_what_has_no_paths_is_undefined_with_a_reason() -> None:
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    data = (x, torch.arange(10) % 2)
    found = DataSetQuality()(
        Subject(MLP((3, 4, 2), activation="tanh"), "cross_entropy", data, data)
    )
    assert found.value is None
    assert "got Tanh" in found.reason


@pytest.mark.parametrize(("depth", "finite"), [(180, True), (230, False)])
def test_deep_networks_are_infinite_only_where_they_are(depth: int, finite: bool) -> None:
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)).double()
    y = torch.arange(10) % 2
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MLP((3, *[64] * depth, 2)).double()
    subject = Subject(model, "cross_entropy", (x[:5], y[:5]), (x[5:], y[5:]))
    found = proposition_4(sides_of(subject, 10, 0), budget=0)
    assert found.beta_1 > 1e250
    assert math.isfinite(found.limit) == finite
    assert found.gap <= found.limit
