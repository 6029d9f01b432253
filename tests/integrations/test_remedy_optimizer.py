"""Remedies around an optimizer take the steps of fit, resume exactly and refuse what they cannot do."""

from __future__ import annotations

import copy
import importlib
import io
import sys

import pytest
import torch
from cases import recipe
from torch import nn

from mindgap.core.errors import InputError, MissingExtraError
from mindgap.core.remedy import Remedy
from mindgap.integrations.remedy_optimizer import RemedyOptimizer
from mindgap.remedies import (
    ASAM,
    SAM,
    Dropout,
    EarlyStopping,
    GradientClipping,
    Perturbed,
    WeightDecay,
)
from mindgap.training.batches import batches_of
from mindgap.training.fit import fit

REMEDIES: list[list[Remedy]] = [
    [SAM(radius=0.1)],
    [ASAM(radius=0.5)],
    [Perturbed(gamma=2.0, beta2=5.0)],
    [WeightDecay(decay=0.1), GradientClipping(max_norm=0.2), SAM(radius=0.1)],
    [SAM(radius=0.0)],
]


def train(
    model: nn.Module, optimizer: RemedyOptimizer, plan, epochs: range, context: bool = False
) -> None:
    inputs, targets = plan.train
    for epoch in epochs:
        optimizer.epoch = epoch
        for index in batches_of(len(targets), plan.batch_size, 2, epoch):

            def closure(index: torch.Tensor = index) -> torch.Tensor:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs[index]), targets[index])
                loss.backward()
                return loss

            if context:
                optimizer.gradient(closure)
                optimizer.step()
            else:
                optimizer.step(closure)


def made(plan, remedies: list[Remedy]) -> tuple[nn.Module, RemedyOptimizer]:
    model = plan.build(2)
    return model, RemedyOptimizer(
        plan.optimize(list(model.parameters())), remedies, model=model, seed=2
    )


def same(left: nn.Module, right: nn.Module) -> bool:
    return all(map(torch.equal, left.state_dict().values(), right.state_dict().values()))


@pytest.mark.parametrize("context", [True, False])
@pytest.mark.parametrize(
    "remedies", REMEDIES, ids=lambda given: "+".join(one.name for one in given)
)
def test_takes_the_steps_of_fit(remedies: list[Remedy], context: bool) -> None:
    plan = recipe(epochs=3)
    model, optimizer = made(plan, remedies)
    train(model, optimizer, plan, range(1, 4), context)
    fitted = fit(plan, remedies, seed=2)
    for left, right in zip(fitted.model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(left, right, atol=1e-6)
    plain = fit(plan, seed=2).model
    assert same(plain, fitted.model) == (not remedies[0].on)


@pytest.mark.parametrize("remedies", REMEDIES[:3], ids=lambda given: given[0].name)
def test_resumes_exactly_from_a_file(remedies: list[Remedy]) -> None:
    plan = recipe()
    whole, optimizer = made(plan, remedies)
    train(whole, optimizer, plan, range(1, 3))
    file = io.BytesIO()
    torch.save({"model": whole.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    twin = copy.deepcopy((whole, optimizer))
    train(whole, optimizer, plan, range(3, 5))
    model, other = made(plan, remedies)
    model.load_state_dict(saved["model"])
    other.load_state_dict(saved["optimizer"])
    assert (other.epoch, other.steps) == (2, twin[1].steps)
    train(model, other, plan, range(3, 5))
    assert same(whole, model)
    assert twin[1].model is twin[0]
    train(*twin, plan, range(3, 5))
    assert same(whole, twin[0])


def test_misuse_is_told() -> None:
    plan = recipe()
    model, optimizer = made(plan, [SAM()])
    with pytest.raises(InputError, match="Pass a closure"):
        optimizer.step()
    for remedy in (Dropout(rate=0.5), EarlyStopping()):
        with pytest.raises(InputError, match="gradient alone"):
            RemedyOptimizer(optimizer.base, remedy, model=model)
    with pytest.raises(InputError, match="must know the model"):
        RemedyOptimizer(optimizer.base, SAM()).step(lambda: None)
    with pytest.raises(InputError, match="remedies"):
        RemedyOptimizer(optimizer.base, ASAM(), model=model).load_state_dict(optimizer.state_dict())
    with pytest.raises(InputError, match="got RemedyOptimizer"):
        RemedyOptimizer(optimizer, SAM(), model=model)
    assert "SAM" in repr(optimizer)


@pytest.mark.parametrize(
    ("name", "package", "extra", "made"),
    [
        ("lightning", "lightning", "lightning", "RemedyCallback"),
        ("skorch", "skorch", "skorch", "RemedyCallback"),
        ("hugging_face", "transformers", "hf", "RemedyTrainer"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str, made: str
) -> None:
    for loaded in [entry for entry in sys.modules if entry.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"mindgap.integrations.{name}", raising=False)
    module = importlib.import_module(f"mindgap.integrations.{name}")
    with pytest.raises(MissingExtraError, match=rf"{package}.*not installed.*mindgap\[{extra}\]"):
        getattr(module, made)()
    monkeypatch.delitem(sys.modules, f"mindgap.integrations.{name}")
