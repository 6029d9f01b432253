"""Activations and gradients of layers against brute force, in every kind of network, without a trace."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mindgap.nets import MLP, Elman
from mindgap.ops.signal.watch import Watch, clean


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 8).double(), nn.Linear(8, 2).double()
        with torch.no_grad():
            self.first.bias[:5] = -99.0

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x), inplace=True))


def test_layers_against_autograd() -> None:
    model, x = MLP((3, 8, 5, 2), activation="tanh").double(), torch.randn(6, 3).double()
    kept, value = {}, x
    for name, module in model.named_children():
        value = module(value)
        if isinstance(module, nn.Linear):
            kept[name] = value
    gradients = torch.autograd.grad(value.square().sum(), list(kept.values()))
    with Watch(model) as watch:
        model(x).square().sum().backward()
    passed = watch.passed()
    assert list(passed) == list(kept)
    for name, gradient in zip(kept, gradients, strict=True):
        assert passed[name].backward == pytest.approx(float(gradient.norm()), rel=1e-12)
        size = float(kept[name].detach().square().mean().sqrt())
        assert passed[name].activation == pytest.approx(size, rel=1e-12)


def test_functions_are_seen_also_in_place() -> None:
    model, x = Functional(), torch.randn(20, 3).double()
    with Watch(model) as watch:
        model(x).sum().backward()
    (units,) = watch.units()
    assert (units.place, units.kind) == ("Functional", "relu")
    assert units.dead.tolist()[:5] == [True] * 5
    fired = (model.first(x) > 0).any(0)
    assert units.dead.tolist() == (~fired).tolist()


def test_steps_of_a_recurrent_net_against_autograd() -> None:
    model, x = Elman(2, 4, 3).double(), torch.randn(5, 9, 2).double()
    driven, state, pieces = model.input(x), torch.zeros(5, 4).double(), []
    for drive in driven.unbind(1):
        pieces.append(model.recurrent(state))
        state = (drive + pieces[-1]).tanh()
    gradients = torch.autograd.grad(model.head(state).square().sum(), pieces)
    with Watch(model) as watch:
        model(x).square().sum().backward()
    found = watch.passed()["recurrent"].calls
    assert found == pytest.approx([float(g.norm()) for g in gradients], rel=1e-12)


@pytest.mark.parametrize("make", [nn.RNN, nn.LSTM, nn.GRU])
def test_steps_of_torchs_recurrent_layers_by_their_inputs(make: Callable[..., nn.Module]) -> None:
    layer, x = make(2, 4, batch_first=True).double(), torch.randn(5, 9, 2).double()
    own = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(own)[0][:, -1].square().sum(), own)
    with Watch(layer) as watch:
        layer(x)[0][:, -1].square().sum().backward()
    wanted = gradient.square().sum((0, 2)).sqrt().tolist()
    assert watch.passed()[""].calls == pytest.approx(wanted, rel=1e-12)
    assert not x.requires_grad


def test_the_last_of_several_passes_counts_and_evaluations_do_not() -> None:
    model, x = MLP((3, 4, 2)).double(), torch.randn(6, 3).double()
    with Watch(model) as watch:
        model(x).sum().backward()
        (2 * model(x).sum()).backward()
        with torch.no_grad():
            model(100 * x)
    with Watch(model) as alone:
        (2 * model(x).sum()).backward()
    assert watch.passed() == alone.passed()


def test_a_pass_that_fails_leaves_nothing_behind() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(3, 1))
    watch = Watch(model)
    with watch, pytest.raises(RuntimeError):
        model(torch.ones(1, 2))
    assert not watch.seen.stack
    assert torch.overrides._get_current_function_mode() is None
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class Odd(nn.Module):
    """Calls a part without gradient, recomputes another, and leaves gradients off at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(3, 3).double() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            shift = self.third(x)
        hidden = checkpoint(self.first, x, use_reentrant=False)
        outputs = self.second(hidden.relu() + shift)
        torch.set_grad_enabled(False)
        return outputs


def test_odd_passes() -> None:
    model, x = Odd(), torch.randn(4, 3).double()
    with torch.enable_grad(), Watch(model) as watch:
        outputs = model(x)
        torch.set_grad_enabled(True)
        outputs.sum().backward()
    assert not watch.seen.stack
    assert torch.overrides._get_current_function_mode() is None
    passed = watch.passed()
    assert set(passed) == {"first", "second"}
    assert passed["second"].backward == pytest.approx(12**0.5)
    assert passed["first"].backward > 0


def test_exploding_gradients_do_not_overflow() -> None:
    model = nn.Sequential(*[nn.Linear(2, 2, bias=False) for _ in range(3)])
    for layer in model:
        nn.init.eye_(layer.weight).data.mul_(1e10)
    with Watch(model) as watch:
        (1e5 * model(1e-30 * torch.ones(4, 2))).sum().backward()
    assert watch.passed()["0"].backward == pytest.approx(1e25 * 8**0.5, rel=1e-6)


@pytest.mark.parametrize("compiled_first", [True, False])
def test_a_compiled_network_is_read_and_unchanged(compiled_first: bool) -> None:
    def trained(watched: bool) -> tuple[nn.Module, Watch]:
        torch.manual_seed(1)
        inner = nn.Sequential(
            nn.Sequential(nn.Linear(4, 6), nn.ReLU()),
            nn.BatchNorm1d(6),
            nn.Dropout(0.5),
            nn.Linear(6, 2),
        )
        model = torch.compile(inner, backend="eager")
        x = torch.randn(5, 4)
        watch = Watch(model if compiled_first else inner)
        for _ in range(2):
            if watched:
                watch.start()
            model(x).square().sum().backward()
            watch.stop()
        return inner, watch

    plain, (model, watch) = trained(False)[0], trained(True)
    pairs = zip(plain.state_dict().values(), model.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    grads = zip(plain.parameters(), model.parameters(), strict=True)
    assert all(torch.equal(one.grad, other.grad) for one, other in grads)
    # Of a network that was compiled behind our back nothing can be seen.
    assert ("0.0" in watch.passed()) == compiled_first
    assert bool(watch.units()) == compiled_first


def test_names_of_compiled_parts() -> None:
    assert clean("_orig_mod.layers.0") == "layers.0"
    assert clean("_orig_mod") == ""
