"""The remedy PerturbedOPT takes the steps of the optimizer and resumes exactly."""

from __future__ import annotations

from pathlib import Path

import torch
from cases import recipe
from torch import nn

from mindgap.remedies import GradientClipping, Perturbed
from mindgap.training.batches import batches_of
from mindgap.training.fit import fit
from mindgap.training.perturbed_optimizer import PerturbedOptimizer

SETTINGS = {"gamma": 2.0, "beta2": 5.0}


def same(left: nn.Module, right: nn.Module) -> bool:
    return all(map(torch.equal, left.state_dict().values(), right.state_dict().values()))


def test_the_remedy_takes_the_steps_of_the_optimizer() -> None:
    plan = recipe(epochs=4)
    fitted = fit(plan, [Perturbed(**SETTINGS)], seed=2)
    model = plan.build(2)
    optimizer = PerturbedOptimizer(plan.optimize(list(model.parameters())), seed=2, **SETTINGS)
    inputs, targets = plan.train
    for epoch in range(1, 5):
        optimizer.epoch = epoch
        for index in batches_of(len(targets), plan.batch_size, 2, epoch):
            optimizer.zero_grad()
            with optimizer.perturbed():
                nn.functional.cross_entropy(model(inputs[index]), targets[index]).backward()
            optimizer.step()
    for left, right in zip(fitted.model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(left, right, atol=1e-6)


def test_the_remedy_resumes_in_a_net_with_frozen_weights(tmp_path: Path) -> None:
    def build() -> nn.Module:
        model = recipe().build(0)
        next(model.parameters()).requires_grad_(False)
        return model

    remedies = [Perturbed(**SETTINGS), GradientClipping(max_norm=0.5)]
    whole = fit(recipe(model=build), remedies)
    fit(recipe(model=build, epochs=1), remedies, checkpoint=tmp_path / "run.pt")
    resumed = fit(recipe(model=build), remedies, checkpoint=tmp_path / "run.pt")
    assert same(whole.model, resumed.model)
    assert whole.history == resumed.history


def test_one_spec_serves_two_trainings_at_once() -> None:
    """The spec holds no state: a second training with the same spec does not disturb the first."""
    spec = Perturbed(**SETTINGS)
    first = fit(recipe(), [spec], seed=1)
    fit(recipe(), [spec], seed=2)
    assert same(first.model, fit(recipe(), [spec], seed=1).model)
    assert same(first.model, fit(recipe(), [spec.replace(pool=2**20)], seed=1).model)
