"""Exact neighbors: the same sets as brute force in double precision, wherever the features lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from ops.helpers import TRIALS, N, clusters, features, one_scaled, outlier, sets, squares

from mindgap.core.errors import InputError
from mindgap.ops.neighbors import exact, scores
from mindgap.ops.neighbors.points import as_points
from mindgap.ops.neighbors.search import chosen, nearest

K = 20


@pytest.mark.parametrize("method", ["exact", "cells", "tree"])
@pytest.mark.parametrize("trial", TRIALS)
def test_sets_are_those_of_brute_force(
    trial: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "TILE", 256)  # several tiles, several groups
    if method == "cells":
        prune_all(monkeypatch)
    rows = TRIALS[trial](features())
    wanted = sets(squares(rows.numpy()), K)
    found = nearest(rows, K, method="tree" if method == "tree" else "exact")
    assert [set(found[i].tolist()) for i in range(len(rows))] == wanted


def prune_all(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Search cell by cell also where this does not pay; returns the list of shares that are looked at."""
    shares: list[float] = []
    monkeypatch.setattr(exact, "FEWEST", 10)
    monkeypatch.setattr(exact, "FIRST", 10)
    monkeypatch.setattr(
        exact.PrunedSearch, "helps", property(lambda self: shares.extend(self.shares[-1:]) or True)
    )
    return shares


@pytest.mark.parametrize("size", [0.0, 1e4])
def test_cells_that_cannot_help_are_not_looked_at(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = prune_all(monkeypatch)
    labels = torch.arange(N) % 10
    rows = (
        torch.randn(N, 8, generator=torch.Generator().manual_seed(0))
        + 8 * torch.eye(10)[labels, :8]
    )
    rows = clusters(rows, size)
    found = nearest(rows, 5, method="exact")
    assert [set(found[i].tolist()) for i in range(N)] == sets(squares(rows.numpy()), 5)
    assert np.mean(shares) < 0.5


def test_useless_cells_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[exact.Pass] = []
    original = exact.Pass.run
    monkeypatch.setattr(
        exact.Pass, "run", lambda self, *a: passes.append(self) or original(self, *a)
    )
    rows = torch.randn(5000, 40, generator=torch.Generator().manual_seed(0))
    found = nearest(rows, K, method="exact")
    assert passes[0].partition is None
    square = (rows[:50, None].double() - rows).square().sum(-1)
    assert torch.equal(
        torch.stack([found[i].sort().values for i in range(50)]),
        square.argsort(1)[:, :K].sort(1).values,
    )


def test_certificates_spare_most_rows_the_second_search(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[exact.Pass] = []
    original = exact.Pass.run
    monkeypatch.setattr(scores, "PATIENCE", 4)
    monkeypatch.setattr(
        exact.Pass, "run", lambda self, *a: passes.append(self) or original(self, *a)
    )
    nearest(features() + 1e3, K, method="exact")
    assert [one.scores.dtype for one in passes] == [torch.float32]
    nearest(clusters(features(), 1e4), K, method="exact")
    assert [one.scores.dtype for one in passes[1:]] == [torch.float32, torch.float64]


def test_products_in_half_precision_are_not_trusted() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert not scores.full_precision()
        assert torch.equal(
            nearest(features(), K, method="exact").index,
            nearest(features(), K, method="tree").index,
        )
    finally:
        torch.set_float32_matmul_precision(before)
    assert scores.full_precision()


def test_small_blocks_change_nothing() -> None:
    rows = features()
    whole, blocks = nearest(rows, K, method="exact"), nearest(rows, K, method="exact", memory=1)
    assert torch.equal(whole.index, blocks.index)


def test_score_is_a_lower_bound() -> None:
    for rows in (features(), clusters(features(), 1e3), outlier(features())):
        points = as_points(rows, None, metric="euclidean", standardize=False)
        number, all_points = torch.arange(50), torch.arange(len(points)).expand(50, -1)
        for dtype in (torch.float32, torch.float64):
            bounds = scores.Scores(points, dtype)
            table, minima = (
                torch.empty(50, bounds.width, dtype=dtype),
                torch.empty(50, bounds.width // scores.GROUP, dtype=dtype),
            )
            bounds.fill(number, table, minima)
            square = points.squares(number, all_points)
            limits = torch.stack([bounds.limit(number, column) for column in square.T], dim=1)
            assert (table[:, : len(points)].double() <= limits).all()


def test_standardized_and_cosine() -> None:
    rows = one_scaled(features()).double() + 3
    scaled = sets(squares(rows.numpy(), 1 / rows.numpy().std(0)), K)
    found = nearest(rows, K, standardize=True)
    assert [set(found[i].tolist()) for i in range(N)] == scaled
    directions = rows / rows.norm(dim=1, keepdim=True)
    found = nearest(rows, K, metric="cosine")
    assert [set(found[i].tolist()) for i in range(N)] == sets(squares(directions.numpy()), K)


def test_parallel_rows_are_equal_by_cosine() -> None:
    rows = torch.tensor(
        [[1.0, 3.0], [0.1, 0.3], [7.0, 21.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64
    )
    assert set(nearest(rows, 2, metric="cosine")[0].tolist()) == {0, 1, 2}


@given(st.integers(0, 10**6), st.integers(2, 25), st.integers(1, 4), st.booleans())
@settings(max_examples=40, deadline=None)
def test_lattices(seed: int, n: int, dimension: int, tree: bool) -> None:
    random = np.random.default_rng(seed)
    rows = random.integers(0, 3, (n, dimension)).astype(float)
    k = int(random.integers(2, n + 1))
    found = nearest(rows, k, method="tree" if tree else "exact")
    assert [set(found[i].tolist()) for i in range(n)] == sets(squares(rows), k)


@pytest.mark.parametrize("k", [1, 301, 2.5, True, "3"])
def test_k_out_of_range(k: object) -> None:
    with pytest.raises(
        InputError,
        match=r"k must be an integer from 2 to 300 \(the number of samples\), got .*\. Lower",
    ):
        nearest(torch.randn(300, 2), k)  # type: ignore[arg-type]


def test_bad_features() -> None:
    with pytest.raises(InputError, match="finite"):
        nearest(torch.tensor([[1.0], [torch.nan], [2.0]]), 2)
    with pytest.raises(InputError, match="smaller than 1e"):
        nearest(torch.tensor([[1.0], [1e200], [2.0]], dtype=torch.float64), 2)
    with pytest.raises(InputError, match="metric must be"):
        nearest(torch.randn(9, 2), 2, metric="manhattan")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="method must be"):
        nearest(torch.randn(9, 2), 2, method="magic")  # type: ignore[arg-type]


def test_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    from mindgap.ops.neighbors import search

    monkeypatch.setattr(search.backends, "faiss_installed", lambda: False)
    assert (chosen(10**7, 3), chosen(10**7, 64)) == ("tree", "exact")
    monkeypatch.setattr(search.backends, "faiss_installed", lambda: True)
    assert (chosen(10**7, 3), chosen(10**7, 64), chosen(1000, 64)) == (
        "tree",
        "approximate",
        "exact",
    )


def test_approximate_states_its_recall() -> None:
    pytest.importorskip("faiss")
    rows = features()
    found, truth = nearest(rows, K, method="approximate"), nearest(rows, K, method="exact")
    hits = sum(len(set(found[i].tolist()) & set(truth[i].tolist())) for i in range(N)) / len(
        truth.index
    )
    assert found.recall >= 0.99
    assert abs(hits - found.recall) < 0.02
    assert found.method == "approximate"
