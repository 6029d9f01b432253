"""Bounds in balls and boxes, and certified radii, against slopes of sampled points."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from mindgap.core import InputError
from mindgap.ops.lipschitz.levels import read_levels
from mindgap.ops.lipschitz.local import certified_radii, local_radius, local_upper
from mindgap.ops.lipschitz.lower import slopes
from mindgap.ops.lipschitz.slopes import slope_range, slopes_between
from mindgap.ops.lipschitz.upper import certified_upper


def net(bend: type[nn.Module], *widths: int) -> nn.Sequential:
    torch.manual_seed(1)
    layers = [
        layer for one, two in itertools.pairwise(widths) for layer in (nn.Linear(one, two), bend())
    ]
    return nn.Sequential(*layers[:-1]).double()


@pytest.mark.parametrize("bend", [nn.ReLU, nn.Tanh, nn.Softplus, nn.GELU])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_no_slope_in_the_ball_is_steeper(bend: type[nn.Module], norm: str) -> None:
    model, point = net(bend, 4, 10, 8, 3), torch.randn(4, dtype=torch.double)
    levels = read_levels(model, point)
    whole = certified_upper(model, point).upper
    generator = torch.Generator().manual_seed(2)
    for radius in (0.05, 1.0):
        found = local_upper(levels, point, radius, norm=norm, steps=80)  # type: ignore[arg-type]
        moves = torch.randn(400, 4, generator=generator, dtype=torch.double)
        size = moves.norm(dim=1) if norm == "l2" else moves.abs().amax(1)
        length = torch.rand(400, 1, generator=generator, dtype=torch.double) ** 0.25
        inside = point + radius * length * moves / size[:, None]
        assert float(slopes(model, inside)[0].max()) <= found.upper <= 1.02 * whole


def test_a_leaky_relu_that_falls_below_zero() -> None:
    model = nn.Sequential(nn.LeakyReLU(-1.0), nn.Linear(1, 1), nn.ReLU()).double()
    with torch.no_grad():
        model[1].weight.fill_(-1), model[1].bias.fill_(0.5)  # max(0, 0.5 − |x|)
    point = torch.zeros(1, dtype=torch.double)
    found = local_upper(read_levels(model, point), point, 1.0)
    assert found.upper == pytest.approx(1, rel=1e-3)


def test_a_small_ball_has_the_slope_of_its_center() -> None:
    model, point = net(nn.ReLU, 4, 10, 8, 3), torch.randn(4, dtype=torch.double)
    found = local_upper(read_levels(model, point), point, 1e-6)
    assert found.fixed == 1
    assert found.upper == pytest.approx(float(slopes(model, point[None])[0]), rel=1e-6)


def test_nothing_within_a_certified_radius_changes_a_prediction() -> None:
    model = net(nn.ReLU, 4, 10, 8, 3)
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(60, 4, generator=generator, dtype=torch.double)
    with torch.no_grad():
        logits = model(points)
    targets = logits.argmax(1)
    found = certified_upper(model, points[0])
    by_pairs = certified_radii(logits, targets, pairs=found.pairs())
    by_all = certified_radii(logits, targets, constant=found.upper)
    assert bool((by_pairs >= by_all * (1 - 1e-6)).all())
    moves = torch.randn(300, 60, 4, generator=generator, dtype=torch.double)
    levels = read_levels(model, points[0])
    local = torch.stack(
        [
            torch.tensor(local_radius(levels, point, int(target), start=float(radius)).radius)
            for point, target, radius in zip(points[:3], targets, by_pairs, strict=False)
        ]
    )
    assert bool((local >= by_pairs[:3]).all())
    assert bool((local > 1.1 * by_pairs[:3]).any())
    radii = torch.cat([local, by_pairs[3:]])
    with torch.no_grad():
        moved = model(points + radii[:, None] * moves / moves.norm(dim=2, keepdim=True))
    assert bool((moved.argmax(2) == targets).all())
    # Much larger steps against the margin do break predictions, so that the check can fail.
    given = points.clone().requires_grad_()
    margin = model(given).sort(1).values
    (slope,) = torch.autograd.grad((margin[:, -1] - margin[:, -2]).sum(), given)
    away = radii[:, None] * slope / slope.norm(dim=1, keepdim=True)
    with torch.no_grad():
        held = [model(points - factor * away).argmax(1) == targets for factor in (2, 5, 10, 30)]
    assert not bool(torch.stack(held).all())


def test_wrong_predictions_have_no_radius() -> None:
    radii = certified_radii(torch.tensor([[0.0, 1.0]]), torch.tensor([0]), constant=1.0)
    assert radii.tolist() == [0.0]


@pytest.mark.parametrize(
    "bend", [nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Mish(), nn.ELU(3.0), nn.Hardswish()]
)
def test_slopes_stay_in_their_range(bend: nn.Module) -> None:
    name = {nn.Mish: "mish", nn.SiLU: "silu", nn.ELU: "elu", nn.Hardswish: "hardswish"}.get(
        type(bend), "gelu"
    )
    settings = {"approximate": bend.approximate} if isinstance(bend, nn.GELU) else {}
    low, high = slope_range(name, (3.0,) if name == "elu" else (), settings)
    places = torch.linspace(-12, 12, 100_001, dtype=torch.double, requires_grad=True)
    (found,) = torch.autograd.grad(bend(places).sum(), places)
    assert low <= float(found.min()) <= low + 1e-3
    assert high - 1e-3 <= float(found.max()) <= high


@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid", "softplus"])
def test_slopes_between_hold_on_intervals(name: str) -> None:
    function = getattr(torch.nn.functional, name)
    ends = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).double().sort(1).values
    low, high = slopes_between(name, function, ends[:, 0], ends[:, 1])  # type: ignore[misc]
    share = torch.linspace(0, 1, 41).double()[:, None]
    places = (ends[:, 0] + share * (ends[:, 1] - ends[:, 0])).requires_grad_()
    (found,) = torch.autograd.grad(function(places).sum(), places)
    assert bool((found >= low - 1e-12).all())
    assert bool((found <= high + 1e-12).all())


def test_a_negative_radius_is_refused() -> None:
    model = net(nn.ReLU, 2, 3, 2)
    with pytest.raises(InputError, match="radius"):
        local_upper(read_levels(model, torch.zeros(2)), torch.zeros(2), -1.0)
