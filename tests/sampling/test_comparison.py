"""Would uniform points have done as well? Planted answers, the null, and the reference model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mindgap.core import Interval
from mindgap.sampling.comparison import RIDGES, WIDTHS, Comparison, _learned, against_uniform

BOUNDS = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
Table = tuple[Tensor, Tensor]


def drawn(count: int, seed: int, low: float = 0.0, high: float = 1.0) -> Table:
    """A narrow bump near the upper end, at uniform points between two ends."""
    random = torch.Generator().manual_seed(seed)
    points = low + (high - low) * torch.rand(count, 1, generator=random, dtype=torch.float64)
    return points, (-((points - 0.9) / 0.04).square()).exp()


def test_points_that_teach_more_are_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """With planted errors of both arms, which differ from split to split."""
    new = drawn(40, 1)

    def planted(shared: Table, own: Table, test: Table) -> float:
        assert len(shared[0]) == 12
        assert not torch.isin(test[0], torch.cat([shared[0], own[0]])).any()
        ours = bool(torch.isin(own[0], new[0]).all())
        return (0.1 if ours else 0.5) * math.exp(0.05 * float(test[0].mean()))

    monkeypatch.setattr("mindgap.sampling.comparison.regression_error", planted)
    found = against_uniform(drawn(12, 0), new, drawn(50, 2), BOUNDS)
    assert found.word == "better"
    assert found.uniform / found.sampled == pytest.approx(5, rel=0.02)
    assert (found.exchanged, found.size, found.tested, found.extra) == (20, 32, 50, 50)
    assert "would have done worse" in found.sentences[0]


def test_points_where_a_function_is_steep_are_better() -> None:
    """What a regression by one smooth kernel cannot use, and a rougher one can."""
    found = []
    for seed in range(4):
        random = torch.Generator().manual_seed(seed)
        places = torch.rand(90, 1, generator=random, dtype=torch.float64)
        steep = 0.5 + 0.1 * (torch.rand(30, 1, generator=random, dtype=torch.float64) - 0.5)
        tables = [(x, torch.tanh(40 * (x - 0.5))) for x in (places[:30], steep, places[30:])]
        found.append(against_uniform(*tables, BOUNDS, seed))
    assert all(one.ratio < 0.7 for one in found)
    assert [one.word for one in found].count("better") >= 2


def test_points_where_nothing_happens_are_worse() -> None:
    found = against_uniform(drawn(12, 0), drawn(60, 1, 0.0, 0.4), drawn(100, 2), BOUNDS)
    assert found.word == "worse"
    alone = against_uniform(drawn(100, 2), drawn(60, 1, 0.0, 0.4), None, BOUNDS)
    assert alone.word in ("worse", "unclear")
    assert alone.sampled > alone.uniform


def test_without_fresh_points_no_gain_is_ever_claimed() -> None:
    gain = Interval(low=0.3, high=0.9)
    assert Comparison(interval=gain, extra=20).word == "better"
    alone = Comparison(sampled=0.1, uniform=0.3, interval=gain)
    assert alone.word == "unknown"
    assert "cannot be said" in alone.sentences[0]
    assert "--compare N" in alone.sentences[-1]
    assert Comparison(interval=Interval(low=1.1, high=1.3)).word == "worse"
    assert Comparison(interval=Interval(low=0.9, high=1.3)).word == "unclear"


def test_uniform_points_are_not_told_from_uniform_points() -> None:
    words = [
        against_uniform(drawn(12, s), drawn(20, s + 100), drawn(25, s + 200), BOUNDS, s).word
        for s in range(20)
    ]
    assert words.count("unclear") >= 18


def test_too_few_points_say_nothing() -> None:
    for few in (
        against_uniform(drawn(9, 0), drawn(9, 1), None, BOUNDS),
        against_uniform(drawn(20, 0), drawn(3, 1), None, BOUNDS),
        against_uniform((drawn(20, 0)[0], torch.zeros(20, 1).double()), drawn(20, 1), None, BOUNDS),
    ):
        assert few.word == "unknown"
        assert few.reason in few.sentences[0]
        assert few.to_dict()["sampled"] is None
    assert "same value" in few.reason
    assert math.isnan(Comparison().sampled)


def test_the_model_is_the_ridge_regression_with_the_least_error_left_out() -> None:
    points, values = drawn(18, 3)
    places = torch.linspace(0, 1, 7, dtype=torch.float64)[:, None]

    def kernel(first: np.ndarray, second: np.ndarray, kind: int, width: float) -> np.ndarray:
        apart = np.abs(first - second.T) / width
        root = 3**0.5 * apart
        return (np.exp(-0.5 * apart**2), (1 + root) * np.exp(-root), np.exp(-apart))[kind]

    def predict(
        x: np.ndarray, y: np.ndarray, at: np.ndarray, kind: int, width: float, ridge: float
    ):
        weights = np.linalg.solve(kernel(x, x, kind, width) + ridge * np.eye(len(x)), y)
        return kernel(at, x, kind, width) @ weights

    x, middle = points.numpy(), float(values.mean())
    y = values.numpy() - middle
    keep = ~np.eye(len(x), dtype=bool)
    errors = {
        (kind, width, ridge): sum(
            float((predict(x[rows], y[rows], x[[k]], kind, width, ridge) - y[k]).item() ** 2)
            for k, rows in enumerate(keep)
        )
        for kind in range(3)
        for width in WIDTHS
        for ridge in RIDGES
    }
    best = min(errors, key=errors.__getitem__)
    expected = predict(x, y, places.numpy(), *best) + middle
    np.testing.assert_allclose(_learned(points, values, places).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("fresh", [False, True])
def test_units_do_not_matter(fresh: bool) -> None:
    tables = [drawn(30, 0), drawn(20, 1, 0.7), drawn(25, 2)]
    scaled = [(100 * x - 3, 7 * y + 5) for x, y in tables]
    bounds = tuple(100 * end - 3 for end in BOUNDS)
    one = against_uniform(*tables[:2], tables[2] if fresh else None, BOUNDS)
    other = against_uniform(*scaled[:2], scaled[2] if fresh else None, bounds)
    assert one.sampled == pytest.approx(other.sampled, rel=1e-6)
    assert one.uniform == pytest.approx(other.uniform, rel=1e-6)
