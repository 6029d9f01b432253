"""Stochastic classifiers: their KL by numerical integration, and what stays fixed."""

from __future__ import annotations

import math

import pytest
import torch
from ops.helpers import KINDS, moved
from torch import nn

from mindgap.core.errors import InputError
from mindgap.ops.pac_bayes.bounds import gaussian_kl, uniform_kl
from mindgap.ops.pac_bayes.per_sample_draws import per_sample_model
from mindgap.ops.pac_bayes.posterior import stochastic_model


def integrated(kind: str, mean: float, scale: float, center: float, prior: float) -> float:
    """KL of one weight by summing density times log ratio over a fine grid."""
    if kind == "uniform":
        grid = torch.linspace(mean - scale, mean + scale, 100_001, dtype=torch.float64)
        density = torch.full_like(grid, 1 / (2 * scale))
        other = torch.where((grid - center).abs() <= prior, 1 / (2 * prior), 0.0)
    else:
        grid = torch.linspace(mean - 10 * scale, mean + 10 * scale, 100_001, dtype=torch.float64)
        density, other = (
            torch.exp(-(((grid - m) / s) ** 2) / 2) / (s * math.sqrt(2 * math.pi))
            for m, s in ((mean, scale), (center, prior))
        )
    return float(torch.trapezoid(density * (density / other).log(), grid))


@pytest.mark.parametrize("kind", KINDS)
def test_divergence_is_that_of_numerical_integration(kind: str) -> None:
    found = moved(nn.Linear(3, 2).double(), kind, 0.3)
    rows = zip(found.means().tolist(), found.scales().tolist(), found.center.tolist(), strict=True)
    wanted = sum(integrated(kind, mean, scale, center, 0.3) for mean, scale, center in rows)
    assert float(found.divergence().detach()) == pytest.approx(wanted, rel=1e-5)
    closed = (
        gaussian_kl(found.means().detach(), found.scales().detach(), found.center, 0.3)
        if kind == "gaussian"
        else uniform_kl((found.means() - found.center).detach(), found.scales().detach(), 0.3)
    )
    assert float(found.divergence().detach()) == pytest.approx(closed, rel=1e-6)


def test_a_box_never_leaves_its_prior() -> None:
    found = stochastic_model(nn.Linear(50, 50), "uniform", 0.1)
    with torch.no_grad():
        found.shift.normal_(0, 100), found.spread.normal_(0, 2)
    outside = (found.means() - found.center).abs() + found.scales() - 0.1
    assert float(outside.max().detach()) <= 1e-8
    found.move_to(found.center + 5)
    assert (
        float(((found.means() - found.center).abs() + found.scales() - 0.1).max().detach()) <= 1e-8
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_stochastic_model_can_begin_elsewhere(kind: str) -> None:
    found = stochastic_model(nn.Linear(4, 3), kind, 0.5)
    wanted = found.center + 0.2 * torch.linspace(-1, 1, len(found.center))
    found.move_to(wanted)
    assert torch.allclose(found.means(), wanted, atol=0.01)


def test_frozen_weights_and_buffers_are_not_random() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2))
    net[0].weight.requires_grad_(False)
    found = stochastic_model(net, "gaussian", 0.1)
    assert sorted(found.shapes) == ["0.bias", "2.bias", "2.weight"]
    before = found.network[1].running_mean.clone()
    found.train()(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(found.network[1].running_mean, before)
    fast = per_sample_model(found, (torch.ones(3, 3),))
    assert fast is not None
    assert float(fast.layers[0].scale.abs().max()) == 0


def test_every_call_draws_anew_and_the_model_stays() -> None:
    net = nn.Linear(3, 2)
    found, kept = stochastic_model(net, "gaussian", 0.1), net.weight.detach().clone()
    assert not torch.equal(found(torch.ones(1, 3)), found(torch.ones(1, 3)))
    assert torch.equal(net.weight, kept)


@pytest.mark.parametrize(
    ("net", "scale"), [(nn.Linear(2, 2), 0.0), (nn.ReLU(), 0.1), (nn.Linear(2, 2), math.nan)]
)
def test_nothing_random_is_refused(net: nn.Module, scale: float) -> None:
    with pytest.raises(InputError):
        stochastic_model(net, "gaussian", scale)
