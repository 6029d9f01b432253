"""The exact gradient against automatic differentiation, and the quick steps that use it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from mindgap.ops.lipschitz import tight
from mindgap.ops.lipschitz.affine import Affine
from mindgap.ops.lipschitz.certificate import Groups, certified
from mindgap.ops.lipschitz.gradient import quick_steps, top_gradient
from mindgap.ops.lipschitz.levels import Levels, read_levels
from mindgap.ops.lipschitz.local import narrowed
from mindgap.ops.lipschitz.lower import slopes
from mindgap.ops.lipschitz.tight import feasible, tight_upper

ORDER = 16.0


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.second(torch.relu(self.first(x)))
        found: Tensor = self.last(torch.tanh(x))
        return found


def images() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(3, 2, 3),
        nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


def network(name: str, local: bool) -> Levels:
    torch.manual_seed(0)
    model, shape = (Residual(), (4,)) if name == "residual" else (images(), (1, 8, 8))
    levels = read_levels(model, torch.zeros(shape))
    center = torch.randn(levels.width, dtype=torch.double)
    return narrowed(levels, center, 0.3, "l2")[0] if local else levels


def by_autograd(levels: Levels, logs: list[Tensor], groups: list[Groups]) -> tuple[Tensor, ...]:
    given = [log.clone().requires_grad_() for log in logs]
    values = torch.linalg.eigvalsh(certified(levels, given, groups)[0])
    return torch.autograd.grad(values.pow(ORDER).sum().log() / ORDER, given)


@pytest.mark.parametrize("name", ["residual", "images"])
@pytest.mark.parametrize("local", [False, True], ids=["global", "local"])
@pytest.mark.parametrize("shared", [False, True], ids=["single", "shared"])
def test_equals_automatic_differentiation(name: str, local: bool, shared: bool) -> None:
    levels = network(name, local)
    groups = [Groups.of(level, shared) for level in levels.levels]
    logs = [log + 0.3 * torch.rand(len(log)).double() for log in feasible(levels, groups)]
    top, parts = top_gradient(levels, logs, groups, ORDER)
    largest = torch.linalg.eigvalsh(certified(levels, logs, groups)[0])[-1]
    assert top == pytest.approx(float(largest.log()), abs=1e-12)
    wanted = torch.cat(by_autograd(levels, logs, groups))
    assert float(wanted.abs().max()) > 1e-3
    torch.testing.assert_close(torch.cat(parts), wanted, rtol=1e-7, atol=1e-8)


def test_quick_steps_certify_and_come_near_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = network("images", local=False)
    slow = tight_upper(levels, steps=150, shared=False)
    monkeypatch.setattr(tight, "_LARGE", 1)
    quick = tight_upper(levels, steps=60)
    assert quick.upper <= 1.02 * slow.upper
    assert slow.upper <= quick.upper * 1.002
    assert min(quick.steps[30:]) < min(quick.steps[:30])  # single multipliers gain on shared ones
    torch.manual_seed(0)
    model, points = images().double(), 3 * torch.randn(500, 1, 8, 8, dtype=torch.double)
    assert float(slopes(model, points)[0].max()) <= quick.upper


def test_quick_steps_return_their_best() -> None:
    levels = network("residual", local=False)
    groups = [Groups.of(level, False) for level in levels.levels]
    logs, history = quick_steps(levels, feasible(levels, groups), groups, 20)
    value = float(torch.linalg.eigvalsh(certified(levels, logs, groups)[0])[-1].sqrt())
    assert value == pytest.approx(min(history), rel=1e-12)
    assert value < 0.95 * history[0]


@pytest.mark.parametrize("large", [1, 2**40])
def test_a_limit_of_time_ends_the_search_with_a_certificate(
    monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(tight, "_LARGE", large)
    monkeypatch.setattr("time.process_time", lambda: float(next(ticks)))
    levels = network("images", local=False)
    none, some = (tight_upper(levels, steps=60, seconds=limit) for limit in (0, 40))
    every = tight_upper(levels, steps=60)
    assert none.upper == pytest.approx(none.start, rel=1e-6)
    assert every.upper < some.upper < 0.99 * none.upper
    assert len(some.steps) < 0.8 * len(every.steps)
    torch.manual_seed(0)
    model, points = images().double(), 3 * torch.randn(200, 1, 8, 8, dtype=torch.double)
    assert float(slopes(model, points)[0].max()) <= some.upper


def test_equal_columns_are_merged_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(5, 4, dtype=torch.double)[:, torch.tensor([0, 1, 2, 0, 3, 1, 0])]
    affine = Affine(lambda rows: rows @ matrix.T, 7)
    assert affine.merged()[0].shape == (5, 4)
    assert torch.equal(affine.merged()[0][:, affine.merged()[1]], matrix)
    monkeypatch.setattr("mindgap.ops.lipschitz.affine._MANY", 1)
    monkeypatch.setattr("mindgap.ops.lipschitz.affine._HELD", 1)
    weights = torch.rand(7).double()
    found = affine.outer(weights, torch.arange(7))
    torch.testing.assert_close(found, (matrix * weights) @ matrix.T, rtol=1e-13, atol=1e-13)
