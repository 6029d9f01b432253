"""The reference predictor: leave-one-out by leaving one out, honest on both sides."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.ops.evidence import reference as module
from mindgap.ops.evidence.reference import reference


def ridge_by_hand(
    train: torch.Tensor, targets: torch.Tensor, point: torch.Tensor, ridge: float
) -> torch.Tensor:
    """Ridge regression with a free intercept, from the normal equations."""
    design = torch.cat([train, torch.ones(len(train), 1, dtype=train.dtype)], 1)
    penalty = ridge * torch.eye(design.shape[1], dtype=train.dtype)
    penalty[-1, -1] = 0
    weights = torch.linalg.solve(design.T @ design + penalty, design.T @ targets)
    return torch.cat([point, torch.ones(1, dtype=point.dtype)]) @ weights


def test_leave_one_out_equals_leaving_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RIDGES", (0.1,))
    random = torch.Generator().manual_seed(0)
    train = torch.randn(30, 4, generator=random, dtype=torch.float64)
    targets = torch.randn(30, 2, generator=random, dtype=torch.float64)
    test = torch.randn(5, 4, generator=random, dtype=torch.float64)
    left_out, predicted = module._ridge(train.float(), test.float(), targets.float())
    strength = 0.1 * 30 * 0.5
    for place in range(30):
        rest = torch.arange(30) != place
        # The penalty stays that of all samples, as the closed form has it.
        expected = ridge_by_hand(train[rest], targets[rest], train[place], strength)
        assert left_out[place].tolist() == pytest.approx(expected.tolist(), abs=2e-4)
    for place in range(5):
        expected = ridge_by_hand(train, targets, test[place], strength)
        assert predicted[place].tolist() == pytest.approx(expected.tolist(), abs=2e-4)


def subject(kind: str, seed: int, count: int = 400) -> Subject:
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (2 * count,), generator=random)
    if kind == "tokens":
        x = torch.randint(20, (2 * count, 12), generator=random)
        x[torch.arange(2 * count), y * 3] = 20 + y
        model: nn.Module = nn.Sequential(nn.Embedding(30, 2), nn.Flatten(), nn.Linear(24, 2))
    elif kind == "sequence":
        time = torch.arange(32)[None, :, None]
        phase = 6.3 * torch.rand(2 * count, 1, 1, generator=random)
        x = torch.sin((0.3 + 0.5 * y[:, None, None]) * time + phase)
        x = x + 0.3 * torch.randn(x.shape, generator=random)
        model = nn.Sequential(nn.Flatten(), nn.Linear(32, 2))
    elif kind == "color":
        x = 0.2 * torch.randn(2 * count, 3, 20, 20, generator=random)
        x[:, 0, 5:15, 5:15] += y[:, None, None] * 0.3
        model = nn.Sequential(nn.Flatten(), nn.Linear(1200, 2))
    else:
        x = torch.randn(2 * count, 5, generator=random)
        x[:, 0] += 3.0 * y
        model = nn.Linear(5, 2)
    return Subject(model, "cross_entropy", (x[:count], y[:count]), (x[count:], y[count:]))


@pytest.mark.parametrize("kind", ["table", "sequence", "tokens", "color"])
def test_learns_every_kind_of_input(kind: str) -> None:
    found = reference(subject(kind, 0))
    assert found.errors("train").mean() < 0.2
    assert found.errors("test").mean() < 0.2


def test_training_and_test_errors_agree_on_average() -> None:
    differences = []
    for seed in range(20):
        found = reference(subject("table", seed, count=150))
        differences.append(float(found.errors("train").mean() - found.errors("test").mean()))
    spread = torch.tensor(differences)
    assert abs(float(spread.mean())) < 3 * float(spread.std()) / 20**0.5 + 1e-3


def test_pure_noise_is_not_learned() -> None:
    """Without leaving out, 600 features would fit 400 random labels."""
    made = subject("table", 0)
    random = torch.Generator().manual_seed(5)
    y = torch.randint(2, (400,), generator=random)
    noisy = Subject(made.model, made.loss, (made.train.inputs[0], y), made.test)
    assert float(reference(noisy).errors("train").mean()) > 0.4


def test_regression_keeps_the_units_of_the_targets() -> None:
    x = torch.linspace(-2, 2, 300)[:, None]
    y = 100 + 10 * x
    made = Subject(nn.Linear(1, 1), "mse", (x[::2], y[::2]), (x[1::2], y[1::2]))
    assert float(reference(made).errors("test").mean()) < 1.0


@pytest.mark.parametrize("count", [30, 60, 120])
def test_is_honest_where_features_outnumber_samples(count: int) -> None:
    """An interpolating ridge leaves residuals of rounding size, which must not look like a fit."""
    random = torch.Generator().manual_seed(count)
    x = torch.randn(count + 500, 40, generator=random)
    y = torch.randint(3, (count + 500,), generator=random)
    noise = Subject(
        nn.Linear(40, 3), "cross_entropy", (x[:count], y[:count]), (x[count:], y[count:])
    )
    found = reference(noise)
    assert float(found.errors("train").mean()) > 0.4
