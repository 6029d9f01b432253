"""Activations are seen wherever they are called, and counted as by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.nets import Elman
from mindgap.ops.evidence.activations import Activation, activations

CALLS = {
    "F.relu": F.relu,
    "torch.relu": torch.relu,
    "method": lambda x: x.relu(),
    "in place": lambda x: F.relu(x.clone(), inplace=True),
    "clamp": lambda x: x.clamp(min=0),
    "clamp_min": lambda x: torch.clamp_min(x, 0),
    "layer": nn.ReLU(),
    "relu6": nn.ReLU6(),
}


class Net(nn.Module):
    def __init__(self, call: object) -> None:
        super().__init__()
        self.call = call

    def forward(self, inputs: Tensor) -> Tensor:
        return self.call(inputs).sum(1, keepdim=True)  # type: ignore[operator]


def watched(model: nn.Module, *batches: Tensor) -> list[Activation]:
    return activations(model, [lambda batch=batch: model(batch) for batch in batches])


def values(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", CALLS)
def test_rectified_units(name: str) -> None:
    x = values(50, 6)
    x[:, 1] = -x[:, 1].abs()
    x[:, 4] = -1.0
    (found,) = watched(Net(CALLS[name]), x[:30], x[30:])
    assert found.dead.nonzero().flatten().tolist() == [1, 4]
    assert found.alive == 4
    assert found.share == pytest.approx(2 / 6)


def test_shares_are_counts() -> None:
    x = values(50, 6)
    (found,) = watched(Net(torch.relu), x[:30], x[30:])
    assert torch.allclose(found.inactive, (x <= 0).double().mean(0))


@pytest.mark.parametrize(("call", "slope"), [(torch.tanh, 1.0), (torch.sigmoid, 0.25)])
def test_saturated_is_where_the_slope_is_a_hundredth(call: object, slope: float) -> None:
    x = torch.linspace(-9, 9, 2001, dtype=torch.float64)[:, None].requires_grad_()
    (gradient,) = torch.autograd.grad(call(x).sum(), x)  # type: ignore[operator]
    flat = (gradient < 0.01 * slope).double().mean()
    (found,) = watched(Net(call), x.detach())
    assert float(found.inactive[0]) == pytest.approx(float(flat), abs=0.01)


def test_other_clamps_are_no_activations() -> None:
    assert not watched(Net(lambda x: x.clamp(min=-1)), values(5, 3))
    assert not watched(Net(lambda x: x.clamp(0, 1)), values(5, 3))


def test_channels_of_images_and_of_sequences() -> None:
    images, first, last = values(8, 3, 5, 5), values(8, 3, 7), values(8, 7, 3)
    images[:, 2], first[:, 2], last[:, :, 2] = -1, -1, -1
    for batch in (images, first, last):
        (found,) = watched(Net(lambda x: torch.relu(x).flatten(1)), batch)
        assert found.dead.nonzero().flatten().tolist() == [2]
        assert len(found.inactive) == 3


def test_places_are_named_and_several_calls_numbered() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

        def forward(self, inputs: Tensor) -> Tensor:
            return torch.tanh(self.inner(F.relu(self.inner(inputs)))).sum(1)

    found = watched(Twice(), values(5, 3))
    assert [layer.place for layer in found] == [
        "inner.1",
        "inner.1 (call 2)",
        "Twice",
        "Twice (call 2)",
    ]


def test_steps_of_a_recurrent_net_are_joined() -> None:
    found = watched(Elman(features=2, hidden=5, outputs=3), values(6, 12, 2))
    assert [(layer.place, len(layer.inactive)) for layer in found] == [("activation", 5)]


def test_what_makes_the_outputs_is_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3), nn.Sigmoid())
    assert [layer.place for layer in watched(model, values(5, 2))] == ["1"]


def test_no_hook_is_left() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU())
    with pytest.raises(RuntimeError):
        watched(model, values(5, 3))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
