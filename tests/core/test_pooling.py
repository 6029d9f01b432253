"""Max-pooling by slices, against the kernel of torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mindgap.core.calls import call, largest_in_windows
from mindgap.ops.models.gates import recorded
from mindgap.ops.taylor.metric import load_forward_mode


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 3, 7, 9), (1, 1, 4, 4)])
@pytest.mark.parametrize(
    ("size", "stride"), [(2, None), (3, 2), (2, 1), ((2, 3), (1, 2)), (1, 2), (4, 3)]
)
def test_equals_torch(shape: tuple[int, ...], size: object, stride: object) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)).relu()
    found = largest_in_windows(values, size, stride)
    assert found is not None
    assert torch.equal(found, F.max_pool2d(values, size, stride))  # type: ignore[arg-type]
    assert found.is_contiguous()


@pytest.mark.parametrize(
    "other", [{"padding": 1}, {"dilation": 2}, {"ceil_mode": True}, {"return_indices": True}]
)
def test_leaves_the_rest_to_torch(other: dict[str, object]) -> None:
    assert largest_in_windows(torch.zeros(1, 1, 8, 8), 2, **other) is None
    assert largest_in_windows(torch.zeros(1, 8, 8), 2) is None


def test_nan_stays() -> None:
    values = torch.zeros(1, 1, 2, 2)
    values[0, 0, 1, 0] = torch.nan
    found = largest_in_windows(values, 2)
    assert found is not None
    assert found.isnan().all()


def test_no_derivative_is_changed() -> None:
    flat = torch.zeros(1, 1, 2, 2, requires_grad=True)  # a tie, of which torch takes the first
    (slope,) = torch.autograd.grad(call(nn.MaxPool2d(2), (flat,), flat).sum(), flat)
    assert slope.flatten().tolist() == [1, 0, 0, 0]
    load_forward_mode()
    direction = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    with torch.no_grad():
        run = lambda at: call(nn.MaxPool2d(2), (at,), at)  # noqa: E731
        _, moved = torch.func.jvp(run, (flat.detach(),), (direction,))
    assert moved.item() == 1.0


def test_a_recorder_of_gates_sees_the_pools() -> None:
    net, values = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2)), torch.randn(2, 1, 4, 4)
    with torch.no_grad():
        assert len(recorded(lambda: call(net, (values,), values))[1]) == 2
