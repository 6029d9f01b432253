"""Random models: their KL by numerical integration, and draws a sample that are distributed as whole draws are."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.split import as_split
from mindgap.ops.pac_bayes.bounds import gaussian_kl, uniform_kl
from mindgap.ops.pac_bayes.per_sample_draws import batched, expected_losses
from mindgap.ops.pac_bayes.posterior import RandomModel, random_model

KINDS = ("gaussian", "uniform")


def moved(model: nn.Module, kind: str, scale: float, seed: int = 0) -> RandomModel:
    """A random model that has left its prior."""
    found, source = random_model(model, kind, scale), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        found.place += torch.randn(found.place.shape, generator=source)
        found.spread += 0.5 * torch.rand(found.spread.shape, generator=source)
    return found


def seeded_net(*layers: nn.Module) -> nn.Module:
    net, source = nn.Sequential(*layers), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=source))
    return net


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
    found = random_model(nn.Linear(50, 50), "uniform", 0.1)
    with torch.no_grad():
        found.place.normal_(0, 100), found.spread.normal_(0, 2)
    outside = (found.means() - found.center).abs() + found.scales() - 0.1
    assert float(outside.max().detach()) <= 1e-8
    found.move_to(found.center + 5)
    assert (
        float(((found.means() - found.center).abs() + found.scales() - 0.1).max().detach()) <= 1e-8
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_model_can_begin_elsewhere(kind: str) -> None:
    found = random_model(nn.Linear(4, 3), kind, 0.5)
    wanted = found.center + 0.2 * torch.linspace(-1, 1, len(found.center))
    found.move_to(wanted)
    assert torch.allclose(found.means(), wanted, atol=0.01)


def samples_of(found: RandomModel, inputs: Tensor, draws: int, own: bool) -> Tensor:
    """Outputs (draws, features) for one input, by stand-ins or by whole draws."""
    source = torch.Generator().manual_seed(7)
    with torch.no_grad():
        if own:
            fast = batched(found, (inputs.expand(3, *inputs.shape[1:]),))
            assert fast is not None
            return fast((inputs.expand(draws, *inputs.shape[1:]),), source).flatten(1)
        rows = found.means() + found.scales() * found.noise((draws, len(found.center)), source)
        answer = lambda weights: found.answer(weights, (inputs,))[0]  # noqa: E731
        return torch.vmap(answer)(found.named(rows)).flatten(1)


NETS = {
    "linear": (seeded_net(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (1, 4)),
    "places": (seeded_net(nn.Linear(3, 2), nn.Flatten()), (1, 3, 3)),
    "convolution": (
        seeded_net(nn.Conv2d(2, 2, 3, stride=2, padding=1), nn.Flatten()),
        (1, 2, 5, 5),
    ),
    "no bias": (
        seeded_net(nn.Conv2d(1, 2, (2, 3), dilation=(2, 1), bias=False), nn.Flatten()),
        (1, 1, 4, 4),
    ),
    "one layer": (seeded_net(nn.Linear(3, 2))[0], (1, 3)),  # type: ignore[index]
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NETS)
def test_own_draws_are_distributed_as_whole_ones(name: str, kind: str) -> None:
    net, shape = NETS[name]
    found, draws = moved(net, kind, 0.4), 40_000
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    own, whole = (samples_of(found, inputs, draws, way).double() for way in (True, False))
    spread = whole.std(0)
    assert float(((own.mean(0) - whole.mean(0)) / spread).abs().max()) < 6 * math.sqrt(2 / draws)
    scale = (
        spread[:, None] * spread
    )  # covariances between the places of one sample would vanish with noise a place
    assert float(((own.T.cov() - whole.T.cov()) / scale).abs().max()) < 0.05
    fourth = [((rows - rows.mean(0)) / rows.std(0)).pow(4).mean(0) for rows in (own, whole)]
    assert float((fourth[0] - fourth[1]).abs().max()) < 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_one_batch_have_independent_draws(kind: str) -> None:
    found = moved(NETS["convolution"][0], kind, 0.4)
    rows = samples_of(found, torch.ones(1, 2, 5, 5), 40_000, own=True)
    pairs = torch.cat([rows[0::2], rows[1::2]], 1).T.corrcoef()
    half = rows.shape[1]
    assert float(pairs[:half, half:].abs().max()) < 0.04


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = seeded_net(nn.Linear(3, 3))[0]  # type: ignore[index]

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(self.layer(inputs))


class Turned(Twice):
    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs.transpose(0, 1)).transpose(0, 1).mean(1)


class Direct(Twice):
    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.linear(inputs, self.layer.weight) + self.layer(inputs)


class Asks(Twice):
    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.layer(inputs)
        return outputs.relu() if isinstance(self.layer, nn.Linear) else outputs


class Tied(Twice):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(3, 3)
        self.other.weight = self.layer.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.other(self.layer(inputs))


UNSUITED = {
    "called twice": (Twice(), (5, 3)),
    "samples are the second dimension": (Turned(), (3, 3, 3)),
    "weight used directly": (Direct(), (5, 3)),
    "asks for the layer's type": (Asks(), (50, 3)),
    "shared weight": (Tied(), (5, 3)),
    "normalization": (nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), (5, 3)),
    "groups": (nn.Sequential(nn.Conv2d(2, 2, 1, groups=2), nn.Flatten()), (5, 2, 2, 2)),
}


def test_a_difference_that_few_samples_show_is_found() -> None:
    """The first three samples have positive outputs, so that asking for the layer's type changes nothing there."""
    net, source = Asks(), torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 3, generator=source)
    best = net.layer(inputs).min(1).values.topk(3).indices
    inputs = torch.cat([inputs[best], inputs])
    assert bool((net.layer(inputs[:3]) > 0).all())
    found = random_model(net, "gaussian", 0.1)
    assert batched(found, (inputs[:3],)) is not None
    split = as_split((inputs, torch.zeros(203).long()))
    assert not expected_losses(found, split, draws=10, floor=1e-3).own_draws


@pytest.mark.parametrize("name", UNSUITED)
def test_layers_used_otherwise_get_whole_draws(name: str) -> None:
    net, shape = UNSUITED[name]
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = random_model(net, "gaussian", 0.1)
    assert batched(found, (inputs,)) is None
    drawn = expected_losses(
        found, as_split((inputs, torch.zeros(len(inputs)).long())), draws=10, floor=1e-3
    )
    assert not drawn.own_draws


@pytest.mark.parametrize("whole", [False, True])
def test_expected_error_is_the_exact_one(whole: bool) -> None:
    found = moved(NETS["one layer"][0], "gaussian", 0.4)
    source = torch.Generator().manual_seed(5)
    inputs, targets = (
        torch.randn(50, 3, generator=source),
        torch.randint(0, 2, (50,), generator=source),
    )
    mean, scale = found.named(found.means()), found.named(found.scales())
    gap = inputs @ (mean["weight"][1] - mean["weight"][0]) + mean["bias"][1] - mean["bias"][0]
    variance = inputs.square() @ scale["weight"].square().sum(0) + scale["bias"].square().sum()
    one = torch.special.ndtr(gap / variance.sqrt())
    exact = float(torch.where(targets == 1, 1 - one, one).mean().detach())
    drawn = expected_losses(
        found, as_split((inputs, targets)), draws=60_000, floor=1e-5, seed=2, whole=whole
    )
    assert drawn.own_draws is not whole
    assert drawn.error == pytest.approx(exact, abs=5 * 0.5 / math.sqrt(60_000))
    assert drawn.draws >= 60_000


def test_groups_of_whole_draws_are_equally_large() -> None:
    found = random_model(UNSUITED["normalization"][0], "gaussian", 0.1)
    split = as_split(
        (torch.randn(7, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(7).long())
    )
    drawn = expected_losses(found, split, draws=3, floor=1e-3)
    assert drawn.draws == 3
    assert (drawn.error * 9) == pytest.approx(round(drawn.error * 9))  # three groups of three


def test_what_is_no_number_counts_as_wrong() -> None:
    found = random_model(nn.Linear(2, 2), "gaussian", 0.1)
    found.center[0] = math.nan
    split = as_split((torch.ones(4, 2), torch.zeros(4).long()))
    drawn = expected_losses(found, split, draws=4, floor=1e-3)
    assert (drawn.error, drawn.loss) == (1.0, 1.0)


def test_frozen_weights_and_buffers_are_not_random() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2))
    net[0].weight.requires_grad_(False)
    found = random_model(net, "gaussian", 0.1)
    assert sorted(found.shapes) == ["0.bias", "2.bias", "2.weight"]
    before = found.network[1].running_mean.clone()
    found.train()(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(found.network[1].running_mean, before)
    fast = batched(found, (torch.ones(3, 3),))
    assert fast is not None
    assert float(fast.layers[0].scale.abs().max()) == 0


def test_every_call_draws_anew_and_the_model_stays() -> None:
    net = nn.Linear(3, 2)
    found, kept = random_model(net, "gaussian", 0.1), net.weight.detach().clone()
    assert not torch.equal(found(torch.ones(1, 3)), found(torch.ones(1, 3)))
    assert torch.equal(net.weight, kept)


@pytest.mark.parametrize(
    ("net", "scale"), [(nn.Linear(2, 2), 0.0), (nn.ReLU(), 0.1), (nn.Linear(2, 2), math.nan)]
)
def test_nothing_random_is_refused(net: nn.Module, scale: float) -> None:
    with pytest.raises(InputError):
        random_model(net, "gaussian", scale)
