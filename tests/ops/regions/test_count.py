"""Linear regions: closed forms, every activation pattern by linear programs, dense grids, and refusals."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor, nn

from mindgap.core import InputError
from mindgap.nets import MLP, Rect, Tri
from mindgap.ops.regions.bounds import montufar, serra, telgarsky, zaslavsky
from mindgap.ops.regions.count import regions_on_segment, regions_on_slice

EYE = torch.eye(2, dtype=torch.double)
ZERO = torch.zeros(2, dtype=torch.double)


def net(*widths: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return MLP(widths).double()


def plane(model: nn.Module, scale: float = 1.0, **more: object) -> object:
    return regions_on_slice(model, ZERO, scale * EYE[0], scale * EYE[1], **more)


@pytest.mark.parametrize("units", [1, 3, 7])
def test_one_layer_has_the_regions_of_an_arrangement(units: int) -> None:
    """Lines in general position, all of whose crossings lie in the square."""
    model, angles = net(2, units, 1), torch.arange(units).double() / units * math.pi
    model[1].weight.data = torch.stack([angles.cos(), angles.sin()], 1)
    model[1].bias.data = 0.01 * torch.randn(units, dtype=torch.double)
    count = plane(model, 50.0).count
    assert count == 1 + units + math.comb(units, 2) == zaslavsky(units, 2)


def feasible(rows: np.ndarray, offsets: np.ndarray) -> bool:
    """Whether the open polygon {s in the square: rows s + offsets > 0} has a point well inside."""
    norms = np.linalg.norm(rows, axis=1)
    if ((norms == 0) & (offsets <= 0)).any():
        return False
    lengths = np.concatenate([norms, np.ones(4)])
    every = np.concatenate([rows, EYE, -EYE])
    limits = np.concatenate([offsets, np.ones(4)])
    program = linprog(
        [0, 0, -1], A_ub=np.c_[-every, lengths], b_ub=limits, bounds=[(None, None)] * 2 + [(0, 1)]
    )
    return program.status == 0 and -program.fun > 1e-9


def patterns(model: nn.Module) -> int:
    """Count all activation patterns that occur in the square, layer by layer, by linear programs."""
    layers = [one for one in model if isinstance(one, nn.Linear)]

    def grow(rows: list, maps: tuple, depth: int) -> int:
        if depth == len(layers) - 1:
            return 1
        weight, bias = layers[depth].weight.detach().numpy(), layers[depth].bias.detach().numpy()
        linear, offset = weight @ maps[0], weight @ maps[1] + bias
        total = 0
        for signs in itertools.product([1, -1], repeat=len(bias)):
            sign = np.array(signs)
            more = [*rows, (sign[:, None] * linear, sign * offset)]
            if feasible(np.concatenate([r for r, _ in more]), np.concatenate([o for _, o in more])):
                on = (sign > 0).astype(float)
                total += grow(more, (on[:, None] * linear, on * offset), depth + 1)
        return total

    return grow([], (np.eye(2), np.zeros(2)), 0)


@pytest.mark.parametrize(
    ("widths", "seed"), [((2, 4, 1), 0), ((2, 4, 3, 1), 1), ((2, 3, 3, 2, 1), 2)]
)
def test_equals_all_activation_patterns(widths: tuple[int, ...], seed: int) -> None:
    model = net(*widths, seed=seed)
    found = plane(model).count
    assert found == patterns(model)
    assert found <= serra(widths[1:-1], 2)


def seen_patterns(model: nn.Module, points: Tensor) -> Tensor:
    """The signs of all ReLUs, and the winners of all maxima, at many inputs."""
    kept = list[Tensor]()

    def note(module: nn.Module, given: tuple[Tensor, ...], _: Tensor) -> None:
        if isinstance(module, nn.MaxPool2d):
            kept.append(nn.functional.max_pool2d(given[0], 2, return_indices=True)[1].flatten(1))
        else:
            kept.append((given[0] > 0).flatten(1).long())

    kinds = (nn.ReLU, nn.LeakyReLU, nn.MaxPool2d)
    handles = [one.register_forward_hook(note) for one in model.modules() if isinstance(one, kinds)]
    with torch.no_grad():
        model(points)
    for handle in handles:
        handle.remove()
    return torch.cat(kept, 1)


class Residual(nn.Module):
    def __init__(self, leaky: bool) -> None:
        super().__init__()
        self.first, self.act = (
            nn.Linear(2, 5),
            nn.LeakyReLU(0.2) if leaky else nn.ReLU(inplace=True),
        )
        self.second, self.last = nn.Linear(5, 5), nn.ReLU()
        self.skip, self.out = nn.Linear(2, 5), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.act(self.first(x))
        total = self.second(hidden)
        total += self.skip(x)
        return self.out(torch.cat([self.last(total), 0.5 * hidden], 1))


class Image(nn.Module):
    """A convolution, ReLU and max-pooling of a 4 × 4 image that two numbers make."""

    def __init__(self, pool: bool) -> None:
        super().__init__()
        self.make, self.conv, self.norm = (
            nn.Linear(2, 16),
            nn.Conv2d(1, 2, 3, padding=1),
            nn.BatchNorm2d(2),
        )
        self.act, self.pool = nn.LeakyReLU(0.1), nn.MaxPool2d(2) if pool else nn.AvgPool2d(2)
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        images = self.make(x).view(x.size(0), 1, 4, 4)
        return self.out(self.pool(self.act(self.norm(self.conv(images)))).flatten(1))


@pytest.mark.parametrize(
    "make",
    [lambda: Residual(False), lambda: Residual(True), lambda: Image(True), lambda: Image(False)],
    ids=["residual", "leaky residual", "max-pool", "average pool"],
)
def test_every_region_has_its_own_pattern_and_its_affine_map(make: object) -> None:
    """Centers of regions have different patterns; a dense sample has no other; slopes are right."""
    torch.manual_seed(4)
    model = make().double().eval()
    found = plane(model)
    mask = torch.arange(found.corners.shape[1]) < found.counts[:, None]
    centers = (found.corners * mask[..., None]).sum(1) / found.counts[:, None]
    mine = seen_patterns(model, centers)
    assert len(torch.unique(mine, dim=0)) == found.count
    sample = seen_patterns(model, 2 * torch.rand(5_000, 2, dtype=torch.double) - 1)
    joint = torch.unique(torch.cat([mine, sample]), dim=0)
    assert len(joint) == found.count
    slopes = torch.func.vmap(torch.func.jacrev(lambda x: model(x[None])[0]))(centers)
    torch.testing.assert_close(found.slopes, slopes.transpose(1, 2).detach())
    x, y = found.corners[..., 0], found.corners[..., 1]
    following = torch.where(
        torch.arange(x.shape[1]) + 1 < found.counts[:, None], torch.arange(x.shape[1]) + 1, 0
    )
    area = ((x * y.gather(1, following) - y * x.gather(1, following)) * mask).sum(1).abs() / 2
    assert float(area.sum()) == pytest.approx(4.0, rel=1e-9)


@pytest.mark.parametrize("pool", [True, False])
def test_a_segment_has_the_patterns_of_a_fine_sample(pool: bool) -> None:
    torch.manual_seed(5)
    model = Image(pool).double().eval()
    start, end = torch.tensor([-2.0, 1.0]).double(), torch.tensor([2.0, 0.3]).double()
    found = regions_on_segment(model, start, end)
    places = torch.linspace(0, 1, 100_001, dtype=torch.double)[:, None]
    signs = seen_patterns(model, start + places * (end - start))
    assert found.count == 1 + int((signs[1:] != signs[:-1]).any(1).sum())
    assert found.pieces <= found.count
    ends = model(start + found.ends[:, None] * (end - start)).detach()
    torch.testing.assert_close(found.values[:, 0], ends[:-1])
    torch.testing.assert_close(found.values[:, 1], ends[1:])


def test_lines_and_planes_agree() -> None:
    model = net(2, 8, 8, 1, seed=6)
    start, end = torch.tensor([-0.9, 0.2]).double(), torch.tensor([0.8, 0.5]).double()
    line, cells = regions_on_segment(model, start, end), plane(model)
    places = start + torch.linspace(0, 1, 5001, dtype=torch.double)[:, None] * (end - start)
    numbers = torch.stack([cells.numbers(x[None], y[None])[0, 0] for x, y in places[::20]])
    assert len(torch.unique(numbers)) <= line.count
    assert int(numbers.min()) >= 0


@pytest.mark.parametrize("depth", [1, 4, 9])
def test_tents_double_with_every_layer(depth: int) -> None:
    found = regions_on_segment(Tri(depth), torch.zeros(1), torch.ones(1))
    assert found.count == found.pieces == telgarsky(depth) == 2**depth
    torch.testing.assert_close(found.ends, torch.linspace(0, 1, 2**depth + 1, dtype=torch.double))


def test_rectangles_and_their_sides() -> None:
    model = Rect((0.4, 1.3, 0.8))
    found = regions_on_segment(model, torch.tensor([-1.0]).double(), torch.tensor([2.0]).double())
    # Outside twice, three tops and four sides; two sides meet in each inner one.
    assert found.pieces == 9
    middles = model(torch.tensor([[1 / 6], [0.5], [5 / 6]]).double()).detach().flatten()
    torch.testing.assert_close(middles, torch.tensor([0.4, 1.3, 0.8]).double(), atol=1e-7, rtol=0)
    assert float(model(torch.tensor([[-0.5], [1.5]]).double()).detach().abs().max()) < 1e-6


def test_bounds_against_known_numbers() -> None:
    assert zaslavsky(4, 2) == 11
    assert zaslavsky(3, 5) == 8
    assert serra([6], 3) == zaslavsky(6, 3)
    assert montufar([4, 4], 2) == 2**2 * 11
    for widths, dimension in (([4, 4], 2), ([6, 6, 6], 2), ([8, 5], 3)):
        assert montufar(widths, dimension) <= serra(widths, dimension) <= 2 ** sum(widths)
    with pytest.raises(InputError, match="at least as wide"):
        montufar([1, 4], 2)


def test_duplicate_units_and_zero_units_make_no_region() -> None:
    model = net(2, 4, 1, seed=3)
    model[1].weight.data[1], model[1].bias.data[1] = model[1].weight.data[0], model[1].bias.data[0]
    model[1].weight.data[2], model[1].bias.data[2] = 0.0, 0.0
    reference = net(2, 2, 1)
    reference[1].weight.data = model[1].weight.data[[0, 3]]
    reference[1].bias.data = model[1].bias.data[[0, 3]]
    assert plane(model).count == plane(reference).count


def test_lines_through_one_point() -> None:
    """Without biases all lines meet in the origin: twice as many sectors as lines."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6, bias=False), nn.ReLU(), nn.Linear(6, 1)).double()
    assert plane(model).count == 12


def test_the_model_stays_as_it_is() -> None:
    torch.manual_seed(0)
    model = Image(True).train()
    before = copy.deepcopy(model.state_dict())
    assert plane(model).count > 10
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (nn.Tanh(), "tanh"),
        (nn.GELU(), "gelu"),
        (nn.Softmax(1), "softmax"),
        (nn.LayerNorm(2), "layer_norm"),
        (nn.Bilinear(2, 2, 1), "bilinear"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_other_functions_are_refused_by_name(model: nn.Module, name: str) -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return inner(x, x) if name == "bilinear" else inner(x)

    inner = copy.deepcopy(model).double()
    with pytest.raises(InputError, match=name):
        plane(Both())


def test_products_and_batches_are_refused() -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x

    class Mixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x).mean(0)

    with pytest.raises(InputError, match="mul"):
        plane(Square())
    with pytest.raises(InputError, match="every sample by itself"):
        plane(Mixed())
    with pytest.raises(InputError, match="At most 3 regions"):
        plane(net(2, 8, 1), most=3)
    with pytest.raises(InputError, match="one shape"):
        regions_on_segment(net(2, 3, 1), torch.zeros(2), torch.zeros(3))
    with pytest.raises(InputError, match="at least three points"):
        plane(net(2, 3, 1), corners=torch.zeros(2, 2))


def test_the_map_shows_every_large_region() -> None:
    found = plane(net(2, 6, 1, seed=2))
    chart = found.chart(size=64)
    assert len(chart.z) == 64
    assert all(shade is not None for row in chart.z for shade in row)
    grid = torch.linspace(-0.99, 0.99, 80, dtype=torch.double)
    assert len(torch.unique(found.numbers(grid, grid))) == found.count
    line = regions_on_segment(net(2, 6, 1), ZERO, EYE[0]).chart()
    assert line.series[0].name == "output 0"
