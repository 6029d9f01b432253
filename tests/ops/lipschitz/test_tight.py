"""Certified bounds against the optimum of a semidefinite program, brute force and closed forms."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mindgap.ops.lipschitz.levels import Levels, read_levels
from mindgap.ops.lipschitz.tight import tight_upper
from mindgap.ops.lipschitz.trace import NotCovered
from mindgap.ops.lipschitz.upper import certified_upper, pair_constants
from mindgap.ops.norms.composed import lipschitz_upper

# √ρ of LipSDP-Neuron by cvxpy 1.9.3 with Clarabel (benchmarks/lipschitz.py --sdp), by seed.
SLOPES = ((0.0, 1.0), (0.1, 1.0), (-0.1, 1.1))
OPTIMA = (
    4.053842489540676, 2.268017973717971, 7.886207079304124, 4.068845238695299, 7.342873939108801,
    11.433208004385103, 4.399590380130439, 5.085552819269302, 11.368362847988775, 1.7657275051158758,
    3.57812660928004, 4.984960894049153, 4.678795776372892, 2.563912566145011, 10.490665136130561,
    12.30355641800997, 5.027697054594544, 6.825617635761914, 2.3725843431506557, 10.754926998718085,
)  # fmt: skip


def chain(weights: list[Tensor], bend: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers = list[nn.Module]()
    for weight in weights:
        layer = nn.Linear(*reversed(weight.shape), dtype=torch.double)
        layer.weight, layer.bias = (
            nn.Parameter(weight),
            nn.Parameter(torch.zeros(len(weight)).double()),
        )
        layers += [layer, bend()]
    return nn.Sequential(*layers[:-1])


def numbered(seed: int) -> tuple[list[Tensor], tuple[float, float]]:
    random = np.random.default_rng(seed)
    widths = [int(random.integers(3, 7)) for _ in range(3 + seed % 2)] + [
        int(random.integers(1, 5))
    ]
    pairs = itertools.pairwise(widths)
    weights = [torch.tensor(random.standard_normal((b, a)) / np.sqrt(a) * 1.5) for a, b in pairs]
    return weights, SLOPES[seed % 3]


def with_slopes(levels: Levels, low: float, high: float) -> Levels:
    made = [
        dataclasses.replace(
            level, low=torch.full_like(level.low, low), high=torch.full_like(level.high, high)
        )
        for level in levels.levels
    ]
    return Levels(tuple(made), levels.last)


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_semidefinite_optimum(seed: int) -> None:
    weights, slopes = numbered(seed)
    levels = with_slopes(read_levels(chain(weights), torch.zeros(weights[0].shape[1])), *slopes)
    found = tight_upper(levels, steps=150)
    # The solver stops at a relative gap of about 1e-8, on either side.
    assert OPTIMA[seed] * (1 - 1e-6) <= found.upper <= 1.001 * OPTIMA[seed]
    assert found.upper <= found.start


def test_is_never_below_brute_force() -> None:
    """40 random nets; the benchmark has 10,000."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        widths = torch.randint(
            1, 5, (int(torch.randint(3, 5, (1,), generator=generator)),), generator=generator
        )
        pairs = zip(widths.tolist(), widths.tolist()[1:], strict=False)
        weights = [torch.randn(b, a, generator=generator, dtype=torch.double) for a, b in pairs]
        levels = read_levels(chain(weights), torch.zeros(int(widths[0])))
        points = torch.randn(200, int(widths[0]), generator=generator, dtype=torch.double)
        assert steepest(weights, points) <= tight_upper(levels, steps=8).upper


def steepest(weights: list[Tensor], points: Tensor) -> float:
    """The largest singular value of the Jacobian of a ReLU chain without biases."""
    jacobian, units = weights[0].expand(len(points), -1, -1), points @ weights[0].T
    for weight in weights[1:]:
        on = (units > 0).double()
        jacobian, units = weight @ (on[:, :, None] * jacobian), (units * on) @ weight.T
    return float(torch.linalg.matrix_norm(jacobian, 2).max())


class Branches(nn.Module):
    """Sums, a product with a constant, concatenation, functions and work in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 4), nn.Linear(8, 2)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.second(functional.gelu(self.first(x)))
        y = self.norm(x) - 0.5 * torch.tanh(x)
        both = torch.cat([y.relu_(), x], 1)
        return self.last(both)


class Images(nn.Module):
    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 2, 3)
        self.norm, self.pool = nn.BatchNorm2d(3), pool
        self.drop, self.last = nn.Dropout(0.5), nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.norm(self.one(x))))
        x = functional.leaky_relu(self.two(x), 0.2)
        return self.last(self.drop(x.view(x.size(0), -1)))


def networks() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    torch.manual_seed(0)
    found: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "branches": (Branches(), (4,)),
        "average": (Images(nn.AvgPool2d(2)), (1, 8, 8)),
        "maximum": (Images(nn.MaxPool2d(2)), (1, 8, 8)),
        "overlapping": (Images(nn.MaxPool2d(3, 2, padding=1)), (1, 8, 8)),
    }
    for bend in (nn.ELU(2.0), nn.SELU(), nn.SiLU(), nn.Mish(), nn.Softplus(3.0), nn.PReLU(init=-0.5),
                 nn.Hardswish(), nn.Sigmoid(), nn.LogSigmoid(), nn.Softsign(), nn.CELU(0.5)):  # fmt: skip
        name = type(bend).__name__
        found[name] = nn.Sequential(nn.Linear(3, 5), bend, nn.Linear(5, 2)), (3,)
    for model, shape in found.values():
        model.double().eval()(torch.zeros(1, *shape).double())
    return found


NETWORKS = networks()


@pytest.mark.parametrize("name", NETWORKS)
def test_no_secant_is_steeper_and_the_product_is_not_better(name: str) -> None:
    model, shape = NETWORKS[name]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = certified_upper(model, torch.randn(shape), steps=30)
    assert found.method == "tight"
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    generator = torch.Generator().manual_seed(1)
    near = 3 * torch.randn(500, *shape, generator=generator, dtype=torch.double)
    steps = torch.randn(500, *shape, generator=generator, dtype=torch.double) * torch.logspace(
        -4, 1, 500
    ).view(-1, *[1] * len(shape))
    with torch.no_grad():
        moved = model(near + steps) - model(near)
    slopes = moved.norm(dim=1) / steps.flatten(1).norm(dim=1)
    assert float(slopes.max()) <= found.upper
    assert found.upper <= lipschitz_upper(model, torch.zeros(1, *shape).double()).upper * (1 + 1e-6)
    pairs = found.pairs()
    assert pairs is not None
    apart = (moved[:, :, None] - moved[:, None, :]).abs() / steps.flatten(1).norm(dim=1).view(
        -1, 1, 1
    )
    assert bool((apart.amax(0) <= pairs).all())
    assert float(pairs.max()) <= math.sqrt(2) * max(part.upper for part in found.parts) * (1 + 1e-6)


def test_affine_layers_alone_are_exact() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 3)
    ).double()
    matrix = torch.autograd.functional.jacobian(
        lambda row: model(row.view(1, 1, 6, 6))[0], torch.zeros(36).double()
    )
    found = certified_upper(model, torch.zeros(1, 6, 6))
    assert found.upper == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)), rel=1e-8)


def test_wide_and_narrow_forms_agree() -> None:
    """More units than inputs use the matrix of the shorter side; the optimum is the same."""
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(3, 9), nn.LeakyReLU(0.3), nn.Linear(9, 2)).double()
    square = nn.Sequential(nn.Linear(9, 9, bias=False), *wide[1:]).double()
    with torch.no_grad():
        square[0].weight.zero_()
        square[0].weight[:, :3] = wide[0].weight
    one = tight_upper(read_levels(wide, torch.zeros(3)), steps=200).upper
    other = tight_upper(read_levels(square, torch.zeros(9)), steps=200).upper
    assert one == pytest.approx(other, rel=1e-5)


def test_a_softmax_is_cut_off_and_attention_is_refused_by_name() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Softmax(1))
    found = certified_upper(net, torch.zeros(3))
    assert found.method == "parts"
    assert [part.method for part in found.parts] == ["tight", "product"]
    inner = certified_upper(net[:3], torch.zeros(3)).upper
    assert found.upper == pytest.approx(inner / 2, rel=1e-6)
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    with pytest.raises(NotCovered, match=r"attention|transformer"):
        read_levels(layer, torch.zeros(3, 4))
    assert certified_upper(layer, torch.zeros(3, 4)).upper == math.inf


def test_layers_called_twice_count_twice() -> None:
    dense, norm = nn.Linear(3, 3, bias=False), nn.LayerNorm(3)
    dense.weight.data.copy_(5 * torch.eye(3))
    found = certified_upper(nn.Sequential(norm, dense, nn.ReLU(), dense, norm), torch.zeros(3))
    assert found.method == "parts"
    assert found.upper == pytest.approx(25 / norm.eps, rel=1e-6)


def test_products_of_inputs_are_refused() -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x

    with pytest.raises(NotCovered, match="mul"):
        read_levels(Square(), torch.ones(2))


def test_large_layers_are_refused_with_their_size() -> None:
    with pytest.raises(NotCovered, match="5,000"):
        read_levels(nn.Linear(5000, 4000), torch.zeros(5000))


def test_constants_of_pairs() -> None:
    outputs = torch.tensor([[4.0, 1.0], [1.0, 1.0]], dtype=torch.double)
    assert float(pair_constants(outputs)[0, 1]) == pytest.approx(math.sqrt(3))
