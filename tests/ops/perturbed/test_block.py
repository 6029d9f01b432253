"""The compiled loops of PerturbedOPT: when they are used, and that they say what torch says."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
import torch

from mindgap.ops.perturbed import block as perturbed_kernels
from mindgap.ops.perturbed.block import CompiledBlock, Numbers, PerturbedBlock

CPU = torch.device("cpu")


@pytest.fixture
def fresh(monkeypatch):
    """Nothing compiled yet, and one thread."""
    perturbed_kernels._kernels.cache_clear()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    yield monkeypatch
    perturbed_kernels._kernels.cache_clear()


def test_where_compiled_loops_are_used(fresh) -> None:
    pytest.importorskip("numba", reason="the package numba is not installed")
    assert perturbed_kernels.kernels_for(CPU, perturbed_kernels.SMALLEST) is not None
    assert perturbed_kernels.kernels_for(CPU, perturbed_kernels.SMALLEST - 1) is None
    assert perturbed_kernels.kernels_for(torch.device("meta"), 10**6) is None
    fresh.setattr(torch, "get_num_threads", lambda: perturbed_kernels.MOST_THREADS + 1)
    assert perturbed_kernels.kernels_for(CPU, 10**6) is None


def test_without_numba_torch_does_it(fresh) -> None:
    fresh.setitem(sys.modules, "numba", None)  # an import fails
    with pytest.raises(ImportError):
        importlib.import_module("numba")
    assert perturbed_kernels.kernels_for(CPU, 10**6) is None


def filled(kind: torch.dtype, maker) -> PerturbedBlock:
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(10_000, generator=random, dtype=torch.float64).to(kind)
    block = maker([0], [weight], {}, 3, 100)
    block.fresh.clear()
    block.keep()
    block.before.copy_(weight + 0.01 * torch.randn(10_000, generator=random).to(kind))
    block.gradient.copy_(torch.randn(10_000, generator=random) * 0.1)
    block.curvature.copy_(torch.rand(10_000, generator=random) * 0.01)
    block.curvature[:50] = block.gradient[:50] = 0.0
    block.gradient[50:60] = torch.tensor(
        [0.1, -0.1, torch.inf, -torch.inf, torch.nan, 0, 1, -1, 2, 1e-30]
    )
    return block


@pytest.mark.parametrize(("kind", "close"), [(torch.float32, 2e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("weight", [0.0, 0.7, 1e3, torch.inf])
def test_both_ways_agree_on_every_branch(kind: torch.dtype, close: float, weight: float) -> None:
    pytest.importorskip("numba", reason="the package numba is not installed")
    compiled = perturbed_kernels._kernels()
    one = filled(kind, PerturbedBlock)
    two = filled(kind, lambda *arguments: CompiledBlock(compiled, *arguments))
    numbers = Numbers(slope=2.0, floor=1e-4, limit=0.1, forget=0.25, scale=1.5)
    assert two.squared_move() == pytest.approx(one.squared_move(), rel=10 * close)
    for block in (one, two):
        block.draw(4, numbers, weight)
    assert torch.allclose(one.curvature, two.curvature, rtol=close, atol=close, equal_nan=True)
    assert torch.allclose(
        one.moved - one.kept, two.moved - two.kept, rtol=close, atol=close, equal_nan=True
    )
    assert two.moved.isnan().nonzero().flatten().tolist() == [
        52,
        53,
        54,
    ]  # from what is not finite only
    assert 0 < (two.moved != two.kept).float().mean() < 0.8


def test_as_plain_python() -> None:
    """What is compiled is the function that is read."""
    compiled = perturbed_kernels._kernels()
    if compiled is None:
        pytest.skip("the package numba is not installed")
    random = np.random.default_rng(0)
    arrays = [random.normal(size=200) for _ in range(6)]
    arrays[2] = abs(arrays[2]) + 0.1
    copies, numbers = [array.copy() for array in arrays], (0.5, 1e-3, 0.8, 0.1, 2.0, 0.3)
    perturbed_kernels.perturbed(*arrays, *numbers)
    compiled.perturbed(*copies, *numbers)
    for left, right in zip(arrays, copies, strict=True):
        assert np.allclose(left, right, rtol=1e-13, atol=1e-15)
    assert compiled.squared_distance(*arrays[:2]) == pytest.approx(
        perturbed_kernels.squared_distance(*arrays[:2])
    )
