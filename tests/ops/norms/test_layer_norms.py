"""Operator norms against the explicit matrix of every layer, in double precision."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from mindgap.ops.norms.layer_norms import layer_norms
from mindgap.ops.norms.singular import convolution_bound, of_map
from mindgap.ops.norms.weighted import weighted_layer


def matrix(layer: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """The layer applied to every unit vector; its output for zero is subtracted."""
    size = math.prod(shape)
    units = torch.eye(size, dtype=torch.double).view(size, *shape)
    with torch.no_grad():
        zero = layer(torch.zeros(1, *shape, dtype=torch.double)).flatten(1)
        return (layer(units).flatten(1) - zero).T


def norm(layer: nn.Module, shape: tuple[int, ...]) -> float:
    return float(torch.linalg.matrix_norm(matrix(layer, shape), 2))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Conv2d, tuple[int, ...]]:
    groups = draw(st.sampled_from((1, 2)))
    size = draw(st.integers(5, 8)), draw(st.integers(5, 8))
    torch.manual_seed(draw(st.integers(0, 99)))
    layer = nn.Conv2d(
        2 * groups,
        draw(st.integers(1, 3)) * groups,
        (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        stride=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        padding=(draw(st.integers(0, 3)), draw(st.integers(0, 2))),
        dilation=draw(st.integers(1, 2)),
        groups=groups,
        padding_mode=draw(st.sampled_from(("zeros", "circular", "reflect", "replicate"))),
    )
    return layer.double(), (2 * groups, *size)


@given(convolutions())
@settings(max_examples=60, deadline=None)
def test_convolutions_of_all_geometries(case: tuple[nn.Conv2d, tuple[int, ...]]) -> None:
    layer, shape = case
    whole = matrix(layer, shape)
    true = float(torch.linalg.matrix_norm(whole, 2))
    left = tuple(layer(torch.zeros(1, *shape, dtype=torch.double)).shape[1:])
    own = weighted_layer("", layer, shape, left)
    assert own.norm().value == pytest.approx(true, rel=1e-9)
    assert true <= own.upper() <= 6 * true
    if layer.padding_mode == "zeros":
        assert torch.allclose(own.row_squares(), whole.square().sum(1))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_grid_as_small_as_the_input_would_miss_the_norm(size: int) -> None:
    """The kernel of differences has no weight at frequency zero, the only one of a single point."""
    layer = nn.Conv1d(1, 1, 3, padding=2, bias=False).double()
    layer.weight.data.copy_(torch.tensor([[[1.0, -2.0, 1.0]]]))
    true = norm(layer, (1, size))
    own = weighted_layer("", layer, (1, size), (1, size + 2))
    circular = convolution_bound(own.weight, (size,), (1,), (1,), circular=True)
    assert own.upper() >= true
    assert circular < true or size == 2  # two points hold the frequency of the largest weight


@pytest.mark.parametrize("stride", [1, 2])
def test_the_bound_is_the_norm_of_a_circular_convolution(stride: int) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 4, 3, stride, padding=1, padding_mode="circular").double()
    own = weighted_layer("", layer, (3, 8, 8), (4, 8 // stride, 8 // stride))
    assert own.upper() == pytest.approx(norm(layer, (3, 8, 8)), rel=1e-8)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(5, 3), (5,)),
        (nn.Conv1d(2, 3, 4, 2, 1), (2, 9)),
        (nn.Conv2d(2, 2, 3, padding="same"), (2, 5, 6)),
        (nn.Conv2d(2, 2, 4, padding="same", padding_mode="circular"), (2, 5, 5)),
        (nn.Conv3d(1, 2, 2, 2, 1), (1, 4, 4, 5)),
        (nn.ConvTranspose1d(2, 3, 3, 2), (2, 5)),
        (nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), (3, 5, 5)),
        (nn.ConvTranspose2d(4, 6, 3, 2, 1, groups=2, dilation=2), (4, 5, 5)),
        (nn.AvgPool2d(3, 2, 1), (2, 7, 7)),
        (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 7, 7)),
        (nn.AdaptiveAvgPool2d(3), (2, 7, 7)),
        (nn.BatchNorm2d(3), (3, 4, 4)),
    ],
    ids=str,
)
def test_layers_equal_their_matrix(layer: nn.Module, shape: tuple[int, ...]) -> None:
    layer = layer.double().eval()
    if isinstance(layer, nn.BatchNorm2d):
        layer.running_var.copy_(torch.tensor([0.1, 2.0, 1.0]))
        layer.weight.data.copy_(torch.tensor([1.0, -9.0, 2.0]))
    (found,) = layer_norms(layer, torch.zeros(1, *shape))
    true = norm(layer, shape)
    assert found.status == "exact"
    assert found.exact == pytest.approx(true, rel=1e-9)
    assert found.upper >= true
    if isinstance(layer, nn.ConvTranspose1d | nn.ConvTranspose2d):
        left = tuple(layer(torch.zeros(1, *shape, dtype=torch.double)).shape[1:])
        own = weighted_layer("", layer, shape, left)
        assert own.upper() >= true
        assert torch.allclose(own.row_squares(), matrix(layer, shape).square().sum(1))


def test_lanczos_reaches_the_norm_of_a_large_map_from_below() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 8, 3, padding=1).double()
    own = weighted_layer("", layer, (4, 12, 12), (8, 12, 12))
    true = norm(layer, (4, 12, 12))
    few = of_map(own, own.shape, steps=5)
    found = own.norm()
    assert not found.whole
    assert few.value < true * (1 - 1e-4)
    assert few.residual > 1e-4
    assert found.value == pytest.approx(true, rel=1e-6)
    assert true < own.upper() < 1.1 * true


def test_a_wide_matrix_is_bounded_without_a_decomposition() -> None:
    weight = torch.randn(1100, 1050, generator=torch.Generator().manual_seed(0))
    own = weighted_layer("", nn.Linear(1050, 1100), (1050,), (1100,))
    own.weight.copy_(weight)
    true = float(torch.linalg.matrix_norm(weight.double(), 2))
    assert own.norm().value == pytest.approx(true, rel=1e-6)
    assert true <= own.upper() <= 1.25 * true


def slope(layer: nn.Module, inputs: Tensor) -> float:
    """The largest singular value of the Jacobian at one input."""
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x[None]).flatten(), inputs)
    return float(torch.linalg.matrix_norm(jacobian.reshape(jacobian.shape[0], -1), 2))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.LayerNorm(5), (5,)),
        (nn.GroupNorm(2, 4), (4, 3)),
        (nn.GroupNorm(2, 6), (6, 1)),
        (nn.RMSNorm(5, eps=1e-3), (5,)),
    ],
    ids=str,
)
def test_normalization_is_steepest_where_nothing_varies(layer: nn.Module, shape: tuple) -> None:
    torch.manual_seed(0)
    layer = layer.double()
    torch.nn.init.normal_(layer.weight)
    (found,) = layer_norms(layer, torch.zeros(1, *shape))
    assert slope(layer, torch.zeros(shape, dtype=torch.double)) == pytest.approx(
        found.exact, rel=1e-6
    )
    for size in (1e-3, 0.1, 1.0):
        assert slope(layer, size * torch.randn(shape, dtype=torch.double)) <= found.upper


@pytest.mark.parametrize(
    ("pool", "expected"),
    [(nn.MaxPool2d(2), 1.0), (nn.MaxPool2d(3, 1), 3.0), (nn.MaxPool2d(3, 2), 2.0)],
    ids=str,
)
def test_overlapping_max_pools_repeat_an_input(pool: nn.Module, expected: float) -> None:
    (found,) = layer_norms(pool, torch.zeros(1, 1, 7, 7))
    assert found.exact == pytest.approx(expected)
    peak = torch.zeros(1, 1, 7, 7)
    peak[..., 2, 2] = 1.0  # in as many windows as any place
    assert float(pool(peak).norm()) == pytest.approx(expected)


@pytest.mark.parametrize(
    "layer",
    [nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Mish(), nn.SELU(), nn.Sigmoid(), nn.ELU(2.0)],
    ids=str,
)
def test_activations_are_no_steeper_than_said(layer: nn.Module) -> None:
    grid = torch.linspace(-8, 8, 100_003, dtype=torch.double, requires_grad=True)
    (slopes,) = torch.autograd.grad(layer(grid).sum(), grid)
    (found,) = layer_norms(layer, torch.zeros(1, 1))
    assert float(slopes.abs().max()) <= found.upper
    assert float(slopes.abs().max()) == pytest.approx(found.exact, rel=1e-3)


def test_layers_with_parametrized_weights_are_layers() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    layer.parametrizations.weight.original0.data.fill_(2.0)
    (found,) = layer_norms(nn.Sequential(layer), torch.zeros(1, 4))
    norm = float(torch.linalg.matrix_norm(layer.weight.detach().double(), 2))
    assert (found.name, found.exact) == ("0", pytest.approx(norm))


def test_instance_normalization_with_statistics_divides_by_them() -> None:
    layer = nn.InstanceNorm1d(2, affine=True, track_running_stats=True)
    layer.running_var.fill_(4.0), layer.weight.data.fill_(3.0)
    (found,) = layer_norms(layer, torch.zeros(1, 2, 5))
    assert found.exact == pytest.approx(1.5, rel=1e-4)


def test_attention_has_no_constant_and_others_say_what_they_are() -> None:
    net = nn.MultiheadAttention(4, 2, batch_first=True)

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.mix, self.rest = nn.Embedding(9, 4), net, nn.LSTM(4, 4)

        def forward(self, tokens: Tensor) -> Tensor:
            words = self.words(tokens)
            return self.rest(self.mix(words, words, words)[0])[0]

    words, mix, rest = layer_norms(Own(), torch.zeros(1, 3, dtype=torch.long))
    assert (words.kind, words.status) == ("embedding", "exact")
    assert (mix.status, mix.upper) == ("unbounded", math.inf)
    assert "no global Lipschitz constant" in mix.reason
    assert (rest.status, rest.exact) == ("unknown", None)
    assert "LSTM" in rest.reason
