"""Variances of drawn weights against closed forms and torch's own initialization."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mindgap.core.errors import MindgapError
from mindgap.ops.initialization.schemes import Scheme, drawn, weight_variance

TORCH = {
    Scheme("kaiming-normal", "in", 2**0.5): nn.init.kaiming_normal_,
    Scheme("kaiming-uniform", "in", 2**0.5): nn.init.kaiming_uniform_,
    Scheme("kaiming-normal", "out", 2**0.5): lambda w, generator: nn.init.kaiming_normal_(
        w, mode="fan_out", generator=generator
    ),
    Scheme("xavier-normal", "in", 1.0): nn.init.xavier_normal_,
    Scheme("xavier-uniform", "in", 1.0): nn.init.xavier_uniform_,
    Scheme("orthogonal", "in", 1.0): nn.init.orthogonal_,
}


@pytest.mark.parametrize("scheme", TORCH, ids=lambda scheme: f"{scheme.name}-{scheme.fan}")
def test_variance_is_that_of_torch(scheme: Scheme) -> None:
    weight = torch.empty(300, 500)
    TORCH[scheme](weight, generator=torch.Generator().manual_seed(0))
    variance = weight_variance(scheme, 500, 300)
    own = drawn(scheme.shape, (300, 500), variance, torch.Generator().manual_seed(1))
    assert float(weight.square().mean()) == pytest.approx(variance, rel=0.02)
    assert float(own.square().mean()) == pytest.approx(variance, rel=0.02)


def test_uniform_has_a_third_of_its_squared_bound() -> None:
    values = drawn("uniform", (1000, 1000), 0.12, torch.Generator().manual_seed(0))
    bound = float(values.abs().max())
    assert bound == pytest.approx(0.6, rel=1e-4)
    assert float(values.var()) == pytest.approx(bound**2 / 3, rel=0.005)
    assert float(values.var()) != pytest.approx(bound / 3, rel=0.2)


def test_xavier_is_the_harmonic_mean_of_both_conditions() -> None:
    inward, outward, both = (
        Scheme(name, fan).condition(100.0, 300.0)
        for name, fan in (
            ("kaiming-normal", "in"),
            ("kaiming-normal", "out"),
            ("xavier-normal", "in"),
        )
    )
    assert both == pytest.approx(2 / (1 / inward + 1 / outward))
    assert both < (inward + outward) / 2


@pytest.mark.parametrize("shape", [(20, 50), (50, 20), (8, 4, 3, 3)])
def test_orthogonal_weights_are_orthogonal(shape: tuple[int, ...]) -> None:
    rows, columns = shape[0], math.prod(shape[1:])
    found = drawn("orthogonal", shape, 1 / max(rows, columns), torch.Generator().manual_seed(0))
    flat = found.flatten(1)
    gram = flat @ flat.T if rows <= columns else flat.T @ flat
    assert torch.allclose(gram, torch.eye(min(rows, columns)), atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [("lsuv", "in", 1.0), ("orthogonal", "out"), ("kaiming-normal", "in", -1.0), ("he",)],
)
def test_bad_settings_are_refused(settings: tuple[object, ...]) -> None:
    with pytest.raises(MindgapError, match="must be"):
        Scheme(*settings)
