"""The job `initialize`: its rows are those of propagation and reinitialized, and its verdict is right."""

from __future__ import annotations

import csv
import functools
import json
import math
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from mindgap import Recipe, Subject, diagnose, fit, initialize, propagation, reinitialized
from mindgap.core import InputError
from mindgap.core.errors import UnknownNameError
from mindgap.jobs.initialize.answer import Initialization
from mindgap.nets import MLP, Elman, Transformer
from mindgap.ops.initialization.subject import batch_of

X = torch.randn(60, 16, generator=torch.Generator().manual_seed(0))
Y = torch.arange(60) % 3


def net(factor: float, depth: int = 15) -> nn.Module:
    """A ReLU network with Kaiming's weights times a factor."""
    model, random = MLP((16, *[32] * depth, 3)), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, nn.Linear):
                size = factor * (2 / layer.in_features) ** 0.5
                layer.weight.copy_(size * torch.randn(layer.weight.shape, generator=random))
                layer.bias.zero_()
    return model


def subject(model: nn.Module, known: bool = True) -> Subject:
    return Subject(
        model, "cross_entropy", (X, Y), initial=model.state_dict() if known else None, name="mine"
    )


@functools.cache
def small() -> Initialization:
    return initialize(subject(net(1 / 3)))


def test_rows_are_those_of_propagation_and_reinitialized() -> None:
    model = net(1 / 3)
    inputs, loss = batch_of(subject(model))
    assert small().own.layers == propagation(model, inputs, loss=loss).layers
    for row in small().weights[1:]:
        fresh = reinitialized(model, inputs, scheme=row.name)
        found = propagation(fresh, inputs, loss=loss)
        assert row.layers == found.layers
        assert (row.forward, row.backward) == (found.forward_growth, found.backward_growth)


def test_a_linear_network_grows_as_it_must() -> None:
    """Times 0.1 in every layer, signals lose two decades per layer, gradients one."""
    layers = [nn.Linear(16, 16, bias=False) for _ in range(7)]
    for layer in layers:
        layer.weight.data = 0.1 * torch.eye(16)
    found = initialize(Subject(nn.Sequential(*layers), "mse", (X, X)), schemes=["orthogonal"])
    own, fresh = found.weights
    assert (own.forward, own.backward) == pytest.approx((0.01, 0.01), rel=1e-5)
    assert (own.signal, own.gradient) == pytest.approx((-12, -6), abs=1e-5)
    assert own.share == pytest.approx(1.5, abs=1e-5)
    assert [*own.signals.values()] == pytest.approx([100.0**-k for k in range(7)], rel=1e-5)
    assert [*own.gradients.values()] == pytest.approx([10.0 ** (k - 6) for k in range(7)], rel=1e-5)
    assert fresh.share < 1e-6


def test_weights_that_are_too_small_are_named_as_in_the_diagnosis() -> None:
    verdict = small().verdict
    assert (verdict.kind, verdict.tone) == ("vanishing signals", "bad")
    finding = diagnose(subject(net(1 / 3)), diagnoses=["bad-initialization"]).findings[0]
    assert finding.sentence == verdict.headline
    assert finding.sentences[0] in " ".join(verdict.sentences)
    assert "The gradient vanishes from layer" in verdict.sentences[0]
    assert small().own.signal_from in verdict.headline
    assert f'scheme="{small().suggested}"' in verdict.advice[0].code


def test_weights_that_are_too_large_explode_even_beyond_all_numbers() -> None:
    assert initialize(subject(net(4.0))).verdict.kind == "exploding signals"
    endless = initialize(subject(net(1e4)), schemes=["lsuv"])
    assert endless.verdict.kind == "exploding signals"
    assert "no finite numbers" in endless.verdict.headline
    assert json.dumps(endless.to_dict(), allow_nan=False)


def test_healthy_weights_are_left_alone() -> None:
    found = initialize(subject(net(1.0)))
    assert (found.verdict.kind, found.verdict.tone) == ("healthy", "good")
    assert not found.verdict.advice
    assert not diagnose(subject(net(1.0)), diagnoses=["bad-initialization"]).findings


def test_gradients_are_judged_where_signals_are_healthy() -> None:
    """Saturated layers pass signals on and no gradient."""
    layers = [part for _ in range(4) for part in (nn.Linear(16, 16, bias=False), nn.Tanh())]
    for layer in layers[::2]:
        layer.weight.data = 100.0 * torch.eye(16)
    model = nn.Sequential(*layers, nn.Linear(16, 3))
    verdict = initialize(subject(model), schemes=["lsuv"]).verdict
    assert verdict.kind == "vanishing gradient"
    assert "nothing of it reaches the first layer" in verdict.headline


def test_layers_without_a_gradient_by_design_are_not_accused() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(16, 8), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x).detach())

    found = initialize(subject(Frozen()))
    assert found.verdict.kind == "healthy"
    assert found.own.layers[0].backward is None


def test_the_suggested_scheme_is_the_best_of_the_batch_and_its_weights_are_kept() -> None:
    found = small()
    shares = {row.name: row.share for row in found.weights[1:]}
    assert shares[found.suggested] == min(shares.values())
    inputs, _ = batch_of(subject(net(1 / 3)))
    same = reinitialized(net(1 / 3), inputs, scheme=found.suggested)
    other = reinitialized(net(1 / 3), inputs, scheme=found.suggested, seed=1)
    weights = found.model.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in same.state_dict().items())
    assert not torch.equal(other[1].weight, weights["1.weight"])


def test_a_row_says_how_far_its_worst_change_is_from_the_limit() -> None:
    for row in small().weights:
        limit = 8 if row.signal < 0 else 5
        assert row.share == pytest.approx(max(abs(row.signal) / limit, abs(row.gradient) / 4))
        assert (row.state == "healthy") == (row.share <= 1)


def test_the_model_and_its_mode_are_not_changed() -> None:
    model = MLP((16, 32, 32, 3), norm="batch").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    initialize(subject(model, known=False), schemes=["lsuv"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


def test_the_weights_from_before_training_count_if_they_are_known() -> None:
    start, end = net(1 / 3), net(1.0)
    known = Subject(end, "cross_entropy", (X, Y), initial=start.state_dict())
    recipe = Recipe(model=lambda: net(1 / 3), train=(X, Y), epochs=0)
    made = Subject(end, "cross_entropy", (X, Y), recipe=recipe)
    fitted = fit(recipe)
    for found, origin in ((known, "initial"), (made, "recipe"), (fitted, "initial")):
        answer = initialize(found, schemes=["lsuv"])
        assert (answer.origin, answer.own.name) == (origin, "initial")
        assert answer.verdict.kind == "vanishing signals"
    alone = initialize(subject(end, known=False), schemes=["lsuv"])
    assert (alone.origin, alone.own.name) == ("model", "as it is")
    assert "trained or not" in str(alone)


def test_tokens_and_steps_of_a_sequence() -> None:
    tokens = torch.randint(0, 20, (12, 6), generator=torch.Generator().manual_seed(0))
    text = Subject(Transformer(20, 3, 6, width=16), "cross_entropy", (tokens, Y[:12]))
    found = initialize(text, samples=10, schemes=["kaiming-normal"])
    assert (found.verdict.kind, found.samples) == ("healthy", 10)
    torch.manual_seed(0)
    series = Subject(Elman(4, 16, 3), "cross_entropy", (torch.randn(12, 40, 4), Y[:12]))
    found = initialize(series, schemes=["lsuv", "identity"])
    assert (found.verdict.kind, found.verdict.tone) == ("vanishing gradient", "warn")
    assert "the first step of the sequence" in found.verdict.headline
    assert found.own.gradient_from == "recurrent"
    assert found.suggested == "identity"
    few = Subject(Elman(4, 16, 3), "cross_entropy", (torch.randn(12, 2, 4), Y[:12]))
    assert "identity" in [row.name for row in initialize(few).weights]
    assert "identity" not in [row.name for row in small().weights]


def test_weights_without_a_rule_are_told_and_not_warned_of() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 3))
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x) * self.scale

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = initialize(subject(Scaled()), schemes=["lsuv"])
    assert found.kept == ("scale",)
    for words in (str(found), found.page()):
        assert "These weights keep their values: scale." in words


def test_settings_choose_the_schemes_that_take_them() -> None:
    fan = initialize(subject(net(1.0, 3)), fan="out")
    assert [row.name for row in fan.weights[1:]] == ["kaiming-normal", "kaiming-uniform"]
    own = initialize(subject(net(1 / 3)), gain=2**0.5, schemes=["kaiming-normal", "kaiming-normal"])
    assert len(own.weights) == 2
    assert own.weights[1].forward == pytest.approx(1.0, rel=0.2)
    assert "gain=1.41" in own.verdict.advice[0].code
    assert "lsuv" not in [row.name for row in initialize(subject(net(1.0, 3)), gain=1.0).weights]
    worse = initialize(subject(net(1 / 3)), gain=0.1, schemes=["orthogonal"])
    assert "No scheme keeps both healthy; orthogonal comes nearest." in worse.verdict.sentences
    assert not any(advice.code for advice in worse.verdict.advice)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"schemes": []}, "at least one scheme"),
        ({"schemes": ["lsv"]}, "Did you mean 'lsuv'"),
        ({"schemes": ["lsuv"], "gain": 1.0}, "left out for lsuv"),
        ({"schemes": ["lsuv"], "fan": "out"}, "fan must be 'in' for lsuv"),
        ({"gain": -1.0}, "gain must be"),
        ({"samples": 1}, "samples"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=words):
        initialize(subject(net(1.0, 3)), **settings)


def test_networks_without_depth_are_refused() -> None:
    with pytest.raises(InputError, match="at least two layers with weights, got one"):
        initialize(subject(nn.Linear(16, 3)))
    with pytest.raises(InputError, match="layer with weights, got none"):
        initialize(subject(nn.Flatten(), known=False))
    with pytest.raises(InputError, match="at least two training samples"):
        initialize(Subject(net(1.0, 3), "mse", (X[:1], X[:1, :3])))


def test_inputs_that_do_not_differ_give_no_signal() -> None:
    alike = Subject(net(1.0, 3), "cross_entropy", (torch.ones(9, 16), Y[:9]))
    found = initialize(alike, schemes=["lsuv"])
    assert found.verdict.kind == "no signal"
    assert math.isinf(found.best.share)
    assert "No scheme" in str(found)


def test_files(tmp_path: Path) -> None:
    found = small()
    page = found.save(tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.index("Signals vanish in the initial network") < page.index("<h2>Schemes")
    data = json.loads(found.save(tmp_path / "a.json").read_text())
    assert (data["verdict"], data["suggested"]) == (found.verdict.kind, found.suggested)
    assert "model" not in data
    rows = list(csv.DictReader(found.save(tmp_path / "a.csv").read_text().splitlines()))
    assert len(rows) == len(found.weights) * len(found.own.layers)
    assert float(rows[0]["signal"]) == found.own.layers[0].signal
    assert rows[-1]["weights"] == found.weights[-1].name


def test_many_layers_are_shortened_in_the_terminal_only() -> None:
    found = initialize(subject(net(1.0, 30)), schemes=["lsuv"])
    assert "… 7 more" in str(found)
    assert "… 7 more" not in found.page()
