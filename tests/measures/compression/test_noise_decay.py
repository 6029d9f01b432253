"""Injected noise against closed forms and passes by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Recipe, Subject
from mindgap.data import digits
from mindgap.measures import Compression, NoiseDecay
from mindgap.nets import MLP, LeNet5
from mindgap.training.fit import fit


def linear_subject() -> tuple[Subject, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(30, 6, generator=random, dtype=torch.float64)
    net = nn.Sequential(nn.Linear(6, 8, bias=False), nn.Linear(8, 3, bias=False)).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter, generator=random)
    return Subject(net, "mse", (x, x[:, :3])), x


def test_converges_to_the_closed_form_of_a_linear_net() -> None:
    """E‖Wη‖ over directions η, relative to ‖W x¹‖: the root mean square is ‖W‖‖x¹‖/√h ‖f‖."""
    subject, x = linear_subject()
    result = NoiseDecay(draws=4000)(subject)
    first, second = (layer.weight.detach() for layer in subject.model)
    random = torch.Generator().manual_seed(1)
    g = torch.randn(20_000, 8, generator=random, dtype=torch.float64)
    size = (g / g.norm(dim=1, keepdim=True) @ second.T).norm(dim=1).mean()
    hidden = x @ first.T
    wanted = float((size * hidden.norm(dim=1) / (hidden @ second.T).norm(dim=1)).mean())
    assert abs(result.value - wanted) < 5 * result.standard_error
    assert result.standard_error < 0.01 * wanted


def test_level_does_not_matter_where_the_net_is_linear() -> None:
    subject, _ = linear_subject()
    small, large = (float(NoiseDecay(level=level)(subject)) for level in (0.01, 10.0))
    assert small == pytest.approx(large, rel=1e-9)


def test_follows_noise_through_every_later_layer_of_a_convolutional_net() -> None:
    images = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    subject = Subject(LeNet5(), "cross_entropy", (images, torch.tensor([0, 1, 2, 3, 4, 5])))
    result = NoiseDecay(draws=2)(subject)
    decay = result.details["decay"]
    assert [len(row) for row in decay.values()] == list(range(len(decay) + 2, 2, -1))
    assert all(next(iter(row.values())) == 1.0 for row in decay.values())
    outputs = [row["outputs"] for row in decay.values()]
    assert result.value == pytest.approx(sum(outputs) / len(outputs))


def test_last_layer_and_outputs_agree_if_nothing_follows_it() -> None:
    subject, _ = linear_subject()
    row = NoiseDecay(draws=2)(subject).details["decay"]["0"]
    assert row["1"] == pytest.approx(row["outputs"])


def trained(epochs: int) -> Subject:
    data = digits().subset(200, seed=0)
    recipe = Recipe(
        model=lambda: MLP((64, 32, 32, 10)), train=data.train, epochs=epochs, learning_rate=5e-3
    )
    return fit(recipe, evaluate_every=0).subject()


def test_algorithm_1_is_run_and_compared_with_what_it_promises() -> None:
    subject = trained(30)
    less, more = (Compression(kept=kept)(subject) for kept in (0.25, 8.0))
    assert more.terms["error"] < 0.5 * less.terms["error"]
    assert more.terms["changed_decisions"] < less.terms["changed_decisions"]
    assert less.value == more.value
    for result in (less, more):
        assert result.terms["error"] <= result.terms["largest_error"]
        assert result.terms["largest_error"] <= result.terms["promised_error"]
        assert result.terms["projections"] > result.terms["parameters"]
    assert len(less.details["layers"]) == 3
    parts = sum(row["parameters"] for row in less.details["layers"])
    assert parts == pytest.approx(less.value)


def test_a_quantile_asks_for_less_than_the_least_sample() -> None:
    subject = trained(5)
    values = [float(Compression(quantile=q)(subject)) for q in (0.0, 0.1, 0.5)]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]


def test_a_sample_that_turns_a_whole_layer_off_makes_it_undefined() -> None:
    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    nn.init.ones_(net[0].weight), nn.init.zeros_(net[0].bias)
    x = torch.tensor([[-1.0], [1.0], [2.0]])
    result = Compression()(Subject(net, "mse", (x, x)))
    assert result.value is None
    assert "quantile" in result.reason
    assert Compression(quantile=0.5)(Subject(net, "mse", (x, x))).value is not None
