"""Cushions of convolutions equal their definitions, written out with explicit Jacobians."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from mindgap.core import Subject, Undefined
from mindgap.measures import Compression
from mindgap.nets import MLP
from mindgap.ops.compression import convolved
from mindgap.ops.compression.convolved import (
    convolved_cushions,
    convolved_smoothness,
    convolved_work,
)
from mindgap.ops.compression.cushions import cushions
from mindgap.ops.compression.dense import dense_net
from mindgap.ops.compression.project import compressed, compressed_chain, matrix_project, smoothness
from mindgap.ops.paths.chain import read_chain

SHAPE = (2, 6, 6)


def network(pool: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.LeakyReLU(0.1),
        pool,
        nn.Conv2d(3, 4, 2, stride=2, dilation=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(5),
        nn.ReLU(),
        nn.Linear(5, 3),
    ).double()


def made(pool: nn.Module) -> tuple[nn.Sequential, Tensor]:
    net, inputs = network(pool), torch.randn(5, *SHAPE, dtype=torch.double)
    net.train()(inputs)  # running statistics that differ from 0 and 1
    return net.eval().requires_grad_(False), inputs


def pieces(net: nn.Sequential) -> list[nn.Sequential]:
    """The layers with their activations in front: piece k leads from x^k to x^(k+1)."""
    return [net[:2], net[2:5], net[5:8], net[8:]]


def jacobian(function: nn.Module, at: Tensor) -> Tensor:
    found = torch.autograd.functional.jacobian(lambda x: function(x[None])[0], at)
    return found.reshape(-1, at.numel())


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, 1), nn.AvgPool2d(2)])
def test_cushions_equal_their_definitions(pool: nn.Module) -> None:
    net, inputs = made(pool)
    found = convolved_cushions(read_chain(net, SHAPE), inputs)
    assert found.error == 0
    assert len(found.interlayer) == 6
    assert found.widths == (3, 4, 5, 3)
    assert found.overlap == (3, 1, 1, 1)
    kernels = [layer.weight.norm() for layer in read_chain(net, SHAPE).layers]
    for place, sample in enumerate(inputs):
        entered, units, uneven = sample, [sample], 1.0
        for number, piece in enumerate(pieces(net)):
            entered = piece[:-1](units[-1][None])[0] if number else sample
            layer = piece[-1] if number else piece  # the first has its normalization behind it
            matrix, units = jacobian(layer, entered), [*units, piece(units[-1][None])[0]]
            cushion = units[-1].norm() / (kernels[number] * entered.norm())
            # Noise of random directions has the norm of the matrix over the root of its inputs.
            noise = matrix.norm() / entered.numel() ** 0.5 / kernels[number]
            assert found.fans[number] ** -0.5 == pytest.approx(float(noise), rel=1e-9)
            assert float(found.layer[number, place]) == pytest.approx(float(cushion), rel=1e-9)
            if number:
                contraction = units[-2].norm() / entered.norm()
                assert float(found.contraction[number - 1, place]) == pytest.approx(
                    float(contraction), rel=1e-9
                )
        for (first, second), row in found.interlayer.items():
            through = nn.Sequential(*pieces(net)[first:second])
            slope = jacobian(through, units[first])
            places = units[first][0].numel() if units[first].ndim > 1 else 1
            wanted = places**0.5 * units[second].norm() / (slope.norm() * units[first].norm())
            assert float(row[place]) == pytest.approx(float(wanted), rel=1e-9)
            at = slope.view(len(slope), -1, places).norm(dim=(0, 1)).max()
            uneven = max(uneven, float(places**0.5 * at / slope.norm()))
        assert float(found.spread[place]) == pytest.approx(uneven, rel=1e-9)
    least = [found.interlayer[1, j].minimum(torch.tensor(3**-0.5)) for j in (2, 3, 4)]
    assert torch.allclose(found.minimal[0], torch.stack(least).amin(0))


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, 1), nn.AvgPool2d(2)])
def test_smoothness_equals_that_of_explicit_jacobians(pool: nn.Module) -> None:
    net, inputs = made(pool)
    chain = read_chain(net, SHAPE)
    other = compressed_chain(chain, [30, 40, 50, 8])
    for place, layer in enumerate(chain.layers):
        count = (30, 40, 50, 8)[place]
        assert torch.equal(other.layers[place].weight, matrix_project(layer.weight, count, place))
    # The same network by torch: batch normalization is in the first layer of the chain already.
    noisy = copy.deepcopy(net)
    noisy[1] = nn.Identity()
    weighted = [noisy[0], noisy[4], noisy[7], noisy[9]]
    for layer, own in zip(weighted, other.layers, strict=True):
        layer.weight = nn.Parameter(own.weight, requires_grad=False)
        layer.bias = nn.Parameter(own.bias, requires_grad=False)
    found = convolved_smoothness(chain, other, inputs)
    for place, sample in enumerate(inputs):
        least, clean, left = float("inf"), [], sample[None]
        for piece in pieces(net):
            left = piece(left)
            clean.append(left)
        moved = sample[None]
        for first in range(3):
            moved = pieces(noisy)[first](moved)
            noise = moved - clean[first]
            for later in range(first + 1, 4):
                through = nn.Sequential(*pieces(net)[first + 1 : later + 1])
                slope = jacobian(through, clean[first][0]) @ noise.flatten()
                bent = (through(moved) - clean[later]).flatten() - slope
                if bent.norm() > 1e-12 * clean[later].norm():
                    size = noise.norm() / clean[first].norm()
                    least = min(least, float(size * clean[later].norm() / bent.norm()))
        assert float(found[place]) == pytest.approx(least, rel=1e-9)
    assert bool(found.isfinite().any())


def test_random_rows_converge_to_the_exact_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    net, inputs = made(nn.MaxPool2d(2))
    chain = read_chain(net, SHAPE)
    exact = convolved_cushions(chain, inputs)
    monkeypatch.setattr(convolved, "EXACT", 2)
    monkeypatch.setattr(convolved, "PROBES", 2000)
    found = convolved_cushions(chain, inputs)
    assert 0 < found.error < 0.05
    for pair, row in exact.interlayer.items():
        assert torch.allclose(found.interlayer[pair], row, rtol=6 * found.error)


def test_a_perceptron_has_the_same_cushions_either_way() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 4)
    subject = Subject(MLP((4, 6, 5, 3)), "cross_entropy", (x, torch.arange(6) % 3))
    dense = cushions(dense_net(subject), x.double())
    other = convolved_cushions(read_chain(subject.model, (4,)), x)
    assert torch.allclose(dense.layer, other.layer)
    assert torch.allclose(dense.minimal, other.minimal)
    assert torch.allclose(dense.contraction, other.contraction)
    assert (dense.widths, dense.overlap) == (other.widths, other.overlap)
    assert other.fans == pytest.approx(dense.fans)
    assert bool((other.spread == 1).all())
    net, chain = dense_net(subject), read_chain(subject.model, (4,))
    counts = [20, 20, 20]
    small, noisy = compressed(net, counts, 1), compressed_chain(chain, counts, 1)
    assert torch.equal(small.run(x.double()).left[-1], noisy.run(x)[0])
    both = smoothness(net, small, net.run(x.double())), convolved_smoothness(chain, noisy, x)
    assert torch.allclose(*both)


def test_work_counts_the_products_of_all_rows() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 3)
    )
    # 2 · (8 weights at 4 places + 24 weights) for each of 8 + 3 rows
    assert convolved_work(read_chain(net, (1, 3, 3))) == 2 * (8 * 4 + 24) * 11


def test_the_measure_takes_convolutions_and_refuses_residual_nets_by_name() -> None:
    net, inputs = made(nn.MaxPool2d(2))
    data = inputs, torch.arange(5) % 3
    result = Compression()(Subject(net, "cross_entropy", data))
    assert result.status == "exact"
    found = convolved_cushions(read_chain(net, SHAPE), inputs)
    layer, minimal = found.layer.amin(1), found.minimal.amin(1)
    largest = max(1.0, float(found.contraction.max()))
    toll = float(found.spread.max()) * torch.tensor([3.0, 1.0, 1.0, 1.0]).double()
    wanted = (largest * 4) ** 2 * float((toll / (layer * minimal)).square().sum())
    assert result.terms["spread"] == pytest.approx(float(found.spread.max()))
    assert float(result) == pytest.approx(wanted, rel=1e-9)
    chain = read_chain(net, SHAPE)
    counts = [max(1, round(0.5 * layer.weight.numel())) for layer in chain.layers]
    other = compressed_chain(chain, counts)
    before, after = chain.run(inputs)[0], other.run(inputs)[0]
    error = float(((after - before).norm(dim=1) / before.norm(dim=1)).mean())
    assert (result.terms["kept"], result.terms["error"]) == (sum(counts), pytest.approx(error))
    smooth = float(convolved_smoothness(chain, other, inputs).min())
    assert result.terms["smoothness"] == pytest.approx(smooth)
    assert "promised_error" not in result.terms  # the theorem's lemma is about dense layers

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.inner(x).relu()

    x = torch.randn(6, 4)
    residual = Subject(
        nn.Sequential(Block(), nn.Linear(4, 3)), "cross_entropy", (x, torch.arange(6) % 3)
    )
    assert "Linear" in Compression()(residual).reason


def test_a_net_that_begins_or_ends_otherwise_is_refused() -> None:
    first = nn.Sequential(nn.ReLU(), nn.Conv2d(2, 1, 2))
    with pytest.raises(Undefined, match="begins"):
        convolved_cushions(read_chain(first, SHAPE), torch.ones(1, *SHAPE))
    last = nn.Sequential(nn.Conv2d(2, 1, 2), nn.ReLU())
    with pytest.raises(Undefined, match="outputs"):
        convolved_cushions(read_chain(last, SHAPE), torch.ones(1, *SHAPE))
