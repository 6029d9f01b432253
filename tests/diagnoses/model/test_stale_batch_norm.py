"""Stale BatchNorm: against statistics by hand, healthy nets, frozen layers, and the pasted code."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from mindgap.core import Recipe, Subject
from mindgap.diagnoses.model.stale_batch_norm import OFF, StaleBatchNorm, _compared, _renewed
from mindgap.nets import MLP
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def with_norm(kind: str, task: str = "classification", **changes: object) -> Recipe:
    recipe = healthy_recipe(kind, task)  # type: ignore[arg-type]
    outputs = recipe.model().state_dict()
    last = list(outputs.values())[-1].shape[0]
    widths = (recipe.train[0][0].numel(), 32, 16, last)
    model = lambda: MLP(widths=widths, norm="batch", dropout=0.2)  # noqa: E731
    return recipe.replace(**{"model": model, "epochs": 4, "batch_size": 60, **changes})


@pytest.mark.parametrize(
    ("kind", "task"),
    [("image", "classification"), ("table", "regression"), ("sequence", "classification")],
)
@pytest.mark.parametrize("batch_size", [20, 128])
def test_healthy_nets_are_not_accused(kind: str, task: str, batch_size: int) -> None:
    recipe = with_norm(kind, task, batch_size=batch_size)
    assert StaleBatchNorm()(fit(recipe, seed=1, evaluate_every=0).subject()) is None


def test_statistics_equal_those_computed_by_hand() -> None:
    subject = fit(with_norm("table"), seed=0, evaluate_every=0).subject()
    first = next(m for m in subject.model.modules() if isinstance(m, nn.BatchNorm1d))
    renewed = _renewed(subject)
    inputs = subject.train.take(torch.arange(len(subject.train))).inputs[0]
    with torch.no_grad():
        values = subject.model[:2](inputs)  # all 2,000 samples, in eight equal batches
    new = next(m for m in renewed.modules() if isinstance(m, nn.BatchNorm1d))
    assert torch.allclose(new.running_mean, values.mean(0), atol=1e-4)
    assert torch.allclose(new.running_var, values.var(0), rtol=0.02)
    off = ((first.running_var + first.eps) / (new.running_var + new.eps)).log().abs().mean()
    assert _compared(subject.model, renewed)[0].variance == pytest.approx(float(off), rel=1e-4)


def test_names_the_worst_layer_and_the_code_repairs_it() -> None:
    subject = fit(with_norm("table"), seed=0, evaluate_every=0).subject()
    healthy = subject.mean_loss("test")
    layers = {n: m for n, m in subject.model.named_modules() if isinstance(m, nn.BatchNorm1d)}
    name, layer = list(layers.items())[-1]
    layer.running_mean += 3 * layer.running_var.sqrt()
    finding = StaleBatchNorm()(subject)
    assert finding.severity == "wrong"
    assert f"{name!r}" in finding.sentence
    assert "standard deviations" in finding.sentence
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(subject.train.inputs[0], subject.train.target), 100
    )
    exec(finding.advice[0].code, {"model": subject.model, "train_loader": loader, "torch": torch})
    assert subject.mean_loss("test") < 1.3 * healthy
    assert StaleBatchNorm()(subject) is None


def test_weak_staleness_is_found() -> None:
    subject = StaleBatchNorm.plant(with_norm("table"), seed=3, strength=0.5)
    assert StaleBatchNorm()(subject).severity == "wrong"


def test_frozen_layers_are_a_note() -> None:
    """Statistics that training used all the time are not stale, whatever they are."""
    recipe = with_norm("table")
    model = recipe.build(0)
    model.eval()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm1d):
            layer.running_var.fill_(25.0)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
    for places in order.repeat(4).split(50):
        optimizer.zero_grad()
        outputs = model(recipe.train[0][places])
        nn.functional.cross_entropy(outputs, recipe.train[1][places]).backward()
        optimizer.step()
    finding = StaleBatchNorm()(Subject(model, "cross_entropy", recipe.train, recipe.test))
    assert finding.severity == "note"


def test_layers_without_statistics_are_another_problem() -> None:
    recipe = with_norm("table")
    model = nn.Sequential(nn.Linear(10, 4), nn.BatchNorm1d(4, track_running_stats=False))
    assert StaleBatchNorm()(Subject(model, "cross_entropy", recipe.train, recipe.test)) is None
    plain = Subject(nn.Linear(10, 4), "cross_entropy", recipe.train, recipe.test)
    assert StaleBatchNorm()(plain) is None


def test_model_and_generators_stay_as_they_were() -> None:
    subject = StaleBatchNorm.plant(with_norm("table"))
    before, state = copy.deepcopy(subject.model.state_dict()), torch.get_rng_state()
    StaleBatchNorm()(subject)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(v, before[k]) for k, v in subject.model.state_dict().items())


def test_constant_channels_count_as_equal() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    nn.init.zeros_(model[0].weight)
    model[1].running_mean.copy_(model[0].bias.detach())
    model[1].running_var.zero_()
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    subject = Subject(model, "mse", (x, x[:, :1]))
    assert _compared(model, _renewed(subject))[0].off < OFF
