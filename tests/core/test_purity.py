"""Purity: whatever happens inside, the model comes back as it was."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from cases import Convolutional, linear_layers
from torch import nn

from mindgap.core.purity import evaluating, preserved, seeded


def vandalize(model: nn.Module) -> None:
    """Changes everything that can be changed."""
    model.train(not model.training)
    linear_layers(model)[0].eval()
    for parameter in model.parameters():
        parameter.data.add_(1)
        parameter.grad = torch.ones_like(parameter)
        parameter.requires_grad_(not parameter.requires_grad)
    for buffer in model.buffers():
        buffer.add_(1)
    model.register_forward_hook(lambda *_: None)
    linear_layers(model)[0].register_forward_pre_hook(lambda *_: None)
    linear_layers(model)[0].weight = nn.Parameter(torch.zeros(3, 36))
    model.extra = nn.Linear(1, 1)
    torch.rand(3), random.random(), np.random.rand()


def state(model: nn.Module) -> list[object]:
    return [
        {name: value.clone() for name, value in model.state_dict().items()},
        [id(p) for p in model.parameters()],
        [
            (p.requires_grad, None if p.grad is None else (id(p.grad), p.grad.sum().item()))
            for p in model.parameters()
        ],
        [
            (name, m.training, len(m._forward_hooks), len(m._forward_pre_hooks))
            for name, m in model.named_modules()
        ],
        (torch.get_rng_state().sum().item(), random.getstate(), str(np.random.get_state())),
    ]


def equal(left: list[object], right: list[object]) -> bool:
    same_state = all(torch.equal(left[0][name], right[0][name]) for name in left[0] | right[0])
    return same_state and left[1:] == right[1:]


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("with_gradient", [False, True])
def test_everything_comes_back(raises: bool, with_gradient: bool) -> None:
    model = Convolutional()
    linear_layers(model)[0].bias.requires_grad_(False)
    model.body.eval()
    if with_gradient:
        model(torch.randn(2, 1, 6, 6)).sum().backward()
    before = state(model)
    with pytest.raises(ZeroDivisionError) if raises else preserved(model), preserved(model):
        vandalize(model)
        assert not equal(before, state(model))
        if raises:
            raise ZeroDivisionError
    assert equal(before, state(model))


def test_an_untouched_model_keeps_its_versions() -> None:
    model = Convolutional()
    versions = [p._version for p in model.parameters()]
    with preserved(model):
        model.eval()(torch.randn(2, 1, 6, 6))
    assert versions == [p._version for p in model.parameters()]


def test_gradients_changed_in_place_come_back() -> None:
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    kept = model.weight.grad
    with preserved(model):
        model.weight.grad.zero_()
    assert model.weight.grad is kept
    assert torch.equal(kept, torch.ones(1, 2))


def test_seeded_is_repeatable_and_leaves_the_generators_alone() -> None:
    before = (torch.get_rng_state(), random.getstate())
    draws = []
    for _ in range(2):
        with seeded(7):
            draws.append((torch.rand(2).tolist(), random.random(), np.random.rand()))
    assert draws[0] == draws[1]
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()


def test_evaluating_restores_every_modules_own_mode() -> None:
    model = Convolutional().train()
    model.body.eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
    assert model.training
    assert not model.body[1].training
