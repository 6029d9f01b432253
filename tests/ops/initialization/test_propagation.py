"""Predicted second moments against means over many networks, and what is measured."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mindgap.core.errors import InputError
from mindgap.nets import MLP, Elman, LeNet5, Transformer
from mindgap.ops.initialization.propagation import Propagation, propagation


def draw(model: nn.Module, seed: int, gain: float = 2**0.5) -> nn.Module:
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.Linear | nn.Conv2d):
                fan = part.weight[0].numel()
                part.weight.copy_(
                    torch.randn(part.weight.shape, generator=random) * gain / fan**0.5
                )
                if part.bias is not None:
                    part.bias.copy_(0.1 * torch.randn(part.bias.shape, generator=random))
    return model


def compared(
    model: nn.Module, inputs: torch.Tensor, draws: int, gain: float = 2**0.5
) -> torch.Tensor:
    """Mean measured over mean predicted, forward and backward, by layer."""
    rows = []
    for seed in range(draws):
        found = propagation(draw(model, seed, gain), inputs, seed=seed).layers
        rows.append(
            [[r.forward, r.predicted_forward, r.backward, r.predicted_backward] for r in found]
        )
    mean = torch.tensor(rows, dtype=torch.float64).mean(0)
    return torch.stack([mean[:, 0] / mean[:, 1], mean[:, 2] / mean[:, 3]], 1)


class Residual(nn.Module):
    """Sums, functional activations, a product and a division, all without modules."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, width), nn.Linear(width, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + 0.5 * block(torch.relu(x))
        return self.last(F.leaky_relu(x, 0.2)) / 3


class Padded(nn.Module):
    """Convolutions whose padding takes a share of the variance."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(2, width, 3, padding=1, bias=False)
        self.two = nn.Conv2d(width, width, 3, padding=1, stride=2, bias=False)
        self.three = nn.Conv2d(width, width, 3, padding=1, groups=2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.three(F.relu(self.two(self.one(x).relu()))).flatten(1)


@pytest.mark.parametrize(
    ("model", "shape"),
    [(Residual(48), (6, 8)), (Padded(24), (3, 2, 6, 6))],
    ids=["sums", "padding"],
)
def test_prediction_is_the_mean_over_networks(model: nn.Module, shape: tuple[int, ...]) -> None:
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    ratios = compared(model, inputs, draws=60)
    assert ((ratios - 1).abs() < 0.1).all(), ratios


def test_padding_matters_for_the_prediction() -> None:
    inputs = torch.ones(1, 2, 6, 6)
    net = nn.Conv2d(2, 512, 3, padding=1, bias=False)
    found = propagation(draw(net, 0, gain=1.0), inputs).layers[0]
    assert found.predicted_forward == pytest.approx((16 / 18) ** 2, rel=0.05)
    assert found.forward == pytest.approx(found.predicted_forward, rel=0.1)


def test_within_a_tenth_at_depth_50_and_width_256() -> None:
    """tanh reaches a fixed point, so a few networks are enough; the study has all schemes."""
    net = MLP((64, *[256] * 50), activation="tanh", bias=False)
    inputs = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    ratios = compared(net, inputs, draws=4, gain=1.4)
    assert ((ratios[:, 0] - 1).abs() < 0.1).all()
    relu = MLP((64, *[256] * 50), bias=False)
    found = propagation(draw(relu, 0), inputs).layers
    spread = math.sqrt(5 * 50 / 256)
    assert abs(math.log(found[-1].forward / found[-1].predicted_forward)) < 4 * spread
    assert found[-1].predicted_forward == pytest.approx(found[0].predicted_forward, rel=0.05)


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_normalization_resets_the_variance(norm: str) -> None:
    net = MLP((16, *[256] * 4, 256), norm=norm, bias=False)
    inputs = 100 * torch.randn(128, 16, generator=torch.Generator().manual_seed(0))
    ratios = compared(net, inputs, draws=2, gain=3.0)
    assert ((ratios[:, 0] - 1).abs() < 0.15).all(), ratios
    assert ((ratios[:, 1] - 1).abs() < 0.3).all(), ratios


def test_shared_weights_of_a_recurrent_net() -> None:
    net, inputs = (
        Elman(4, 256, 64),
        torch.randn(16, 6, 4, generator=torch.Generator().manual_seed(0)),
    )
    found = propagation(draw(net, 0, gain=1.0), inputs)
    assert [row.name for row in found.layers][1:3] == ["recurrent", "recurrent (call 2)"]
    assert not found.refused
    last = found.layers[-2]
    assert last.forward == pytest.approx(last.predicted_forward, rel=0.2)


def test_what_is_not_understood_is_named_and_measured() -> None:
    found = propagation(LeNet5(), torch.randn(4, 1, 28, 28))
    assert found.refused == {
        "2": "no rule for the function max_pool2d",
        "5": "no rule for the function max_pool2d",
    }
    assert all(row.forward > 0 and row.backward > 0 for row in found.layers)
    attention = propagation(Transformer(20, 5, 6), torch.randint(0, 20, (4, 6)))
    assert any("matmul" in reason for reason in attention.refused.values())
    whole = nn.TransformerEncoderLayer(16, 2, batch_first=True)
    rows = propagation(whole, torch.randn(3, 5, 16)).layers
    assert rows[0].predicted_forward is None
    assert rows[0].forward > 0


def test_weights_with_a_mean_are_refused() -> None:
    net = nn.Linear(64, 64)
    nn.init.constant_(net.weight, 0.1)
    assert "mean is not zero" in propagation(net, torch.ones(2, 64)).refused["Linear"]


def test_gradients_before_a_function_in_place() -> None:
    plain = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
    inside = nn.Sequential(plain[0], nn.ReLU(inplace=True), plain[2])
    one, other = (propagation(net, torch.ones(3, 8)) for net in (plain, inside))
    assert [row.backward for row in one.layers] == [row.backward for row in other.layers]
    assert [row.predicted_backward for row in one.layers] == [
        row.predicted_backward for row in other.layers
    ]


def test_measured_values_are_those_of_hooks() -> None:
    net, inputs = MLP((4, 6, 3)).double(), torch.randn(5, 4, dtype=torch.float64)
    hidden = net[1](inputs)
    hidden.retain_grad()
    output = net[3](torch.relu(hidden))
    output.square().sum().backward()
    found = propagation(net, inputs, loss=lambda out: out.square().sum()).layers
    assert found[0].forward == pytest.approx(float(hidden.detach().square().mean()), rel=1e-12)
    assert found[0].signal == pytest.approx(
        float(hidden.detach().var(0, correction=0).mean()), rel=1e-12
    )
    assert found[0].backward == pytest.approx(float(hidden.grad.square().mean()), rel=1e-12)
    assert found[1].forward == pytest.approx(float(output.detach().square().mean()), rel=1e-12)


def test_variances_can_be_given() -> None:
    net = nn.Linear(10, 5, bias=False)
    found = propagation(net, torch.ones(2, 10), variances={"weight": 0.25}).layers[0]
    assert found.predicted_forward == pytest.approx(2.5)


def test_changes_nothing() -> None:
    net = MLP((4, 6, 3), norm="batch", dropout=0.5).train()
    net[1].weight.requires_grad_(False)
    before, random = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    propagation(net, torch.randn(8, 4, generator=torch.Generator().manual_seed(0)))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(part.training for part in net.modules())
    assert not net[1].weight.requires_grad
    assert torch.equal(random, torch.get_rng_state())


def test_table_growth_and_chart() -> None:
    found = propagation(MLP((4, 6, 3)), torch.randn(5, 4))
    assert isinstance(found, Propagation)
    assert str(found).splitlines()[0].split()[:2] == ["layer", "forward"]
    assert found.forward_growth == found.layers[1].forward / found.layers[0].forward
    assert found.backward_growth == found.layers[0].backward / found.layers[1].backward
    assert [row.name for row in found.chart("backward").series] == ["measured", "predicted"]


def test_one_sample_in_front_of_batch_normalization_is_refused() -> None:
    with pytest.raises(InputError, match="must accept a batch of the data"):
        propagation(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), torch.ones(1, 2))


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(InputError, match="layer with weights"):
        propagation(nn.ReLU(), torch.ones(2, 3))
