"""Losses at many points equal a loop of forward passes at the same weights."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters
from torch.optim.swa_utils import update_bn

from mindgap.core import InputError, Subject
from mindgap.nets import MLP, LeNet5, ResNet
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.landscape import points
from mindgap.ops.landscape.directions import random_directions
from mindgap.ops.landscape.points import losses_at, surface


class Branches(nn.Module):
    """No chain: its layers are called by name, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 3), nn.Tanh())

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(inputs + torch.relu(self.first(self.first(inputs))))


def images(channels: int = 1, size: int = 28, count: int = 12) -> Tensor:
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(1))


def frozen() -> nn.Module:
    model = LeNet5()
    model[0].weight.requires_grad_(False)
    return model


def shared() -> nn.Module:
    """One activation, one pool and one dense layer, each called twice."""
    bend, pool, dense = nn.Tanh(), nn.MaxPool2d(2), nn.Linear(4, 4)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), bend, pool, nn.Conv2d(4, 4, 3), bend, pool, nn.Flatten(), dense, bend, dense
    )  # fmt: skip


CASES = {
    "lenet": (LeNet5, images()),
    "layers called twice": (shared, images(size=10)),
    "average pool and tanh": (lambda: LeNet5(activation="tanh", pool="average"), images()),
    "first filters frozen": (frozen, images()),
    "odd size": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
        ),
        images(size=10),
    ),
    "falling leaky slope": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.LeakyReLU(-1.0), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
        ),
        images(size=10),
    ),
    "residual": (lambda: ResNet(depth=8, width=4), images(3, 16)),
    "dense": (lambda: MLP((6, 5, 3)), images()[:, 0, 0, :6]),
    "dense, batch norm": (lambda: MLP((6, 5, 3), norm="batch"), images()[:, 0, 0, :6]),
    "branches": (Branches, images()[:, 0, 0, :6]),
}


def loss_of(name: str, dtype: torch.dtype = torch.float64) -> FlatLoss:
    make, inputs = CASES[name]
    torch.manual_seed(0)
    model = make().to(dtype)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
    return FlatLoss(
        Subject(model, "cross_entropy", (inputs.to(dtype), torch.arange(len(inputs)) % 3))
    )


def one_by_one(
    flat: FlatLoss, directions: Tensor, coordinates: Tensor, renewed: bool = False
) -> Tensor:
    (batch,) = flat.batches()
    found = []
    for row in coordinates:
        model = copy.deepcopy(flat.model).eval()
        vector_to_parameters(
            flat.point + row @ directions, [p for p in model.parameters() if p.requires_grad]
        )
        if renewed:
            update_bn([batch.inputs], model)
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model.eval()(*batch.inputs), batch.target)
        found.append(loss.double())
    return torch.stack(found)


def places(count: int = 3) -> Tensor:
    axis = torch.linspace(-0.7, 1, count, dtype=torch.float64)
    return torch.cartesian_prod(axis, axis).flip(1)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stacked", [False, True])
def test_equal_a_loop_of_passes(name: str, stacked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    flat = loss_of(name)
    before = {key: value.clone() for key, value in flat.model.state_dict().items()}
    directions = random_directions(flat.named)
    monkeypatch.setattr(points, "_stacks", lambda *_: stacked)
    monkeypatch.setattr(points, "_IMAGES", 5)
    found = losses_at(flat, directions, places())
    assert torch.allclose(found, one_by_one(flat, directions, places()), rtol=1e-10, atol=1e-10)
    after = flat.model.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())


@pytest.mark.parametrize("name", ["lenet", "dense"])
def test_single_precision_agrees_to_1e_6(name: str) -> None:
    flat = loss_of(name, torch.float32)
    directions, where = random_directions(flat.named), places().float()
    expected = one_by_one(flat, directions, where)
    found = losses_at(flat, directions, where)
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["residual", "dense, batch norm"])
def test_batch_norm_both_ways(name: str) -> None:
    flat = loss_of(name)
    directions = random_directions(flat.named)
    found = losses_at(flat, directions, places(2), batch_norm="recomputed")
    expected = one_by_one(flat, directions, places(2), renewed=True)
    assert torch.allclose(found, expected, rtol=1e-10)
    assert not torch.allclose(found, losses_at(flat, directions, places(2)), rtol=1e-3)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(0, 100), st.sampled_from(["dense", "lenet"])
)
def test_any_number_of_directions_and_points(count: int, rows: int, seed: int, name: str) -> None:
    flat = loss_of(name)
    directions = random_directions(flat.named, count, normalize="none", seed=seed)
    where = torch.randn(
        rows, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    found = losses_at(flat, directions, where)
    assert torch.allclose(found, one_by_one(flat, directions, where), rtol=1e-10)


def test_a_surface_has_a_row_per_y() -> None:
    flat = loss_of("dense")
    directions = random_directions(flat.named)
    x, y = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([-1.0, 0.5])
    found = surface(flat, directions, x, y)
    assert found.shape == (2, 3)
    corner = one_by_one(flat, directions, torch.tensor([[2.0, -1.0]], dtype=torch.float64))
    assert torch.allclose(found[0, 2], corner)


@pytest.mark.parametrize(
    ("directions", "coordinates"),
    [(torch.zeros(2, 3), torch.zeros(1, 2)), (None, torch.zeros(1, 3)), (None, torch.zeros(2))],
)
def test_wrong_shapes_are_refused(directions: Tensor | None, coordinates: Tensor) -> None:
    flat = loss_of("dense")
    with pytest.raises(InputError, match="must hold"):
        losses_at(
            flat, random_directions(flat.named) if directions is None else directions, coordinates
        )


def test_a_model_that_cannot_be_copied_is_told() -> None:
    flat = loss_of("lenet")
    flat.model[0].extra = flat.model[0].weight * 2  # no leaf of the graph
    with pytest.raises(InputError, match="can be copied"):
        losses_at(flat, random_directions(flat.named), places())
