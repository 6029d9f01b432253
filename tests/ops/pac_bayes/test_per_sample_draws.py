"""Draws per sample: distributed as whole draws, and refused where layers do not allow them."""

from __future__ import annotations

import math

import pytest
import torch
from ops.helpers import KINDS, moved
from torch import Tensor, nn

from mindgap.core.split import as_split
from mindgap.ops.pac_bayes.per_sample_draws import expected_losses, per_sample_model
from mindgap.ops.pac_bayes.posterior import StochasticModel, stochastic_model


def seeded_net(*layers: nn.Module) -> nn.Module:
    net, source = nn.Sequential(*layers), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=source))
    return net


def samples_of(found: StochasticModel, inputs: Tensor, draws: int, own: bool) -> Tensor:
    """Outputs (draws, features) for one input, with draws per sample or of whole models."""
    source = torch.Generator().manual_seed(7)
    with torch.no_grad():
        if own:
            fast = per_sample_model(found, (inputs.expand(3, *inputs.shape[1:]),))
            assert fast is not None
            return fast((inputs.expand(draws, *inputs.shape[1:]),), source).flatten(1)
        rows = found.means() + found.scales() * found.noise((draws, len(found.center)), source)
        answer = lambda weights: found.outputs(weights, (inputs,))[0]  # noqa: E731
        return torch.vmap(answer)(found.named(rows)).flatten(1)


NETS = {
    "linear": (seeded_net(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (1, 4)),
    "positions": (seeded_net(nn.Linear(3, 2), nn.Flatten()), (1, 3, 3)),
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
    )  # covariances between positions of one sample would vanish with noise per position
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
    found = stochastic_model(net, "gaussian", 0.1)
    assert per_sample_model(found, (inputs[:3],)) is not None
    split = as_split((inputs, torch.zeros(203).long()))
    assert not expected_losses(found, split, draws=10, floor=1e-3).own_draws


@pytest.mark.parametrize("name", UNSUITED)
def test_layers_used_otherwise_get_whole_draws(name: str) -> None:
    net, shape = UNSUITED[name]
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = stochastic_model(net, "gaussian", 0.1)
    assert per_sample_model(found, (inputs,)) is None
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
    found = stochastic_model(UNSUITED["normalization"][0], "gaussian", 0.1)
    split = as_split(
        (torch.randn(7, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(7).long())
    )
    drawn = expected_losses(found, split, draws=3, floor=1e-3)
    assert drawn.draws == 3
    assert (drawn.error * 9) == pytest.approx(round(drawn.error * 9))  # three groups of three


def test_what_is_no_number_counts_as_wrong() -> None:
    found = stochastic_model(nn.Linear(2, 2), "gaussian", 0.1)
    found.center[0] = math.nan
    split = as_split((torch.ones(4, 2), torch.zeros(4).long()))
    drawn = expected_losses(found, split, draws=4, floor=1e-3)
    assert (drawn.error, drawn.loss) == (1.0, 1.0)
