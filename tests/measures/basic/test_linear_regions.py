"""Linear regions between samples, against patterns at many points."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject, generator
from mindgap.measures import LinearRegions

POINTS = 200_001


def subject(samples: int = 12, **changes: object) -> Subject:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 2))
    inputs = 2 * torch.randn(samples, 3, dtype=torch.float64)
    return Subject(model.double(), "cross_entropy", (inputs, torch.arange(samples) % 2), **changes)


def patterns(model: nn.Sequential, start: torch.Tensor, end: torch.Tensor) -> int:
    """Count how often the set of active units changes along a segment, plus one."""
    share = torch.linspace(0, 1, POINTS, dtype=torch.float64)[:, None]
    first = model[0](start + share * (end - start))
    second = model[2](torch.relu(first))
    active = torch.cat([first, second], 1) > 0
    return 1 + int((active[1:] != active[:-1]).any(1).sum())


@pytest.mark.parametrize("seed", [0, 1])
def test_counts_what_many_points_see(seed: int) -> None:
    given = subject()
    order = torch.randperm(12, generator=generator(seed))
    rows = given.train.inputs[0][order]
    with torch.no_grad():
        wanted = [patterns(given.model, *pair) for pair in zip(rows[::2], rows[1::2], strict=True)]
    result = LinearRegions(segments=6, seed=seed)(given)
    assert result.value == sum(wanted) / 6
    assert result.value > 2
    assert result.terms["slice"] >= 1
    assert result.terms["pieces"] <= result.value


def test_a_smooth_network_has_no_regions() -> None:
    smooth = subject()
    smooth.model[1] = nn.Tanh()
    result = LinearRegions()(smooth)
    assert result.value is None
    assert "tanh" in result.reason.lower()


def test_a_network_with_too_many_regions_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def searched(*_: object, **__: object) -> None:
        pytest.fail("the search began")

    monkeypatch.setattr("mindgap.measures.basic.linear_regions.regions_on_segment", searched)
    monkeypatch.setattr("mindgap.measures.basic.linear_regions.ENTRIES", 0)
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(3, 2000), nn.ReLU(), nn.Linear(2000, 2)).double()
    data = 2 * torch.randn(12, 3, dtype=torch.float64), torch.arange(12) % 2
    result = LinearRegions()(Subject(wide, "cross_entropy", data))
    assert result.value is None
    assert "At most 100 regions" in result.reason
