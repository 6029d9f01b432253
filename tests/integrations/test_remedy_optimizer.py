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
from mindgap.core.subject import Subject
from mindgap.integrations.remedy_optimizer import RemedyOptimizer
from mindgap.remedies import (
    ASAM,
    SAM,
    ActiveBias,
    Annealing,
    ClassBalance,
    Dropout,
    EarlyStopping,
    GradientClipping,
    HardExamples,
    InputNoise,
    LabelSmoothing,
    Mixup,
    Perturbed,
    PlateauAnnealing,
    SelfPaced,
    VarianceWeighting,
    WeightAveraging,
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
    for remedy, lacks in ((Dropout(), "subject=None"), (EarlyStopping(), "validate=None")):
        with pytest.raises(InputError, match=lacks):
            RemedyOptimizer(optimizer.base, remedy, model=model)
    with pytest.raises(InputError, match="must see the training data, got subject=None"):
        RemedyOptimizer(optimizer.base, VarianceWeighting(), model=model)
    with pytest.raises(InputError, match="must see the model before training"):
        RemedyOptimizer(optimizer.base, Dropout(), subject=lambda one: joined(one, plan)).begin(1)
    with pytest.raises(InputError, match="must know the model"):
        RemedyOptimizer(optimizer.base, SAM()).step(lambda: None)
    with pytest.raises(InputError, match="remedies"):
        RemedyOptimizer(optimizer.base, ASAM(), model=model).load_state_dict(optimizer.state_dict())
    with pytest.raises(InputError, match="got RemedyOptimizer"):
        RemedyOptimizer(optimizer, SAM(), model=model)
    assert "SAM" in repr(optimizer)


MORE: list[list[Remedy]] = [
    [LabelSmoothing(share=0.2)],
    [Annealing(peak=2.0), WeightDecay(decay=0.1)],
    [WeightAveraging(share=0.7)],
    [InputNoise(scale=0.5)],
    [Mixup(alpha=1.0), LabelSmoothing(), SAM(radius=0.1)],
    [ClassBalance(beta=0.9)],
    [HardExamples(share=0.4)],
    [SelfPaced(share=0.5)],
    [ActiveBias(burn_in=2)],
    [VarianceWeighting(k=5, solver="minibatch", epochs=2)],
]


def joined(model: nn.Module, plan) -> Subject:
    return Subject(model, "cross_entropy", plan.train)


def by_calls(plan, remedies: list[Remedy], **more: object) -> tuple[nn.Module, int]:
    """The raw loop that makes every call; also returns the number of epochs."""
    (inputs, targets), model, epochs = plan.train, plan.build(2), 0
    optimizer = RemedyOptimizer(
        plan.optimize(list(model.parameters())),
        remedies,
        model=model,
        seed=2,
        subject=lambda one: joined(one, plan),
        **more,
    )
    for epoch in optimizer.training(plan.epochs):
        epochs = epoch
        model.train()
        for index in batches_of(len(targets), plan.batch_size, 2, epoch):

            def closure(index: torch.Tensor = index) -> torch.Tensor:
                optimizer.zero_grad()
                output = model(optimizer.inputs(inputs[index]))
                loss = optimizer.loss("cross_entropy", output, targets[index], index=index)
                loss.backward()
                return loss

            optimizer.step(closure)
    return model, epochs


@pytest.mark.parametrize("remedies", MORE, ids=lambda given: "+".join(one.name for one in given))
def test_every_hook_acts_as_in_fit(remedies: list[Remedy]) -> None:
    plan = recipe(epochs=5)
    model, _ = by_calls(plan, remedies)
    fitted, plain = fit(plan, remedies, seed=2).model, fit(plan, seed=2).model
    for left, right in zip(fitted.parameters(), model.parameters(), strict=True):
        assert torch.allclose(left, right, atol=1e-6)
    assert not same(plain, model)


def test_dropout_masks_act_and_are_removed() -> None:
    plan = recipe(epochs=2)
    model, _ = by_calls(plan, [Dropout(rate=0.5)])
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not same(model, by_calls(plan, [])[0])


def test_a_validation_loss_stops_training_and_lowers_the_rate() -> None:
    plan, falling = recipe(epochs=9), iter([3.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0])
    _, epochs = by_calls(plan, [EarlyStopping(patience=2)], validate=lambda: next(falling))
    assert epochs == 4
    rising = iter(range(9))
    plateau = [PlateauAnnealing(cut=0.9, patience=0)]
    lowered, _ = by_calls(plan, plateau, validate=lambda: float(next(rising)))
    assert not same(lowered, by_calls(plan, [])[0])


@pytest.mark.parametrize(
    ("remedy", "says"),
    [
        (LabelSmoothing(), "'label-smoothing' must change the losses .* call optimizer.loss"),
        (InputNoise(), "'input-noise' must change the inputs .* call optimizer.inputs"),
        (ActiveBias(), "'active-bias' must act after every epoch"),
        (WeightAveraging(), "'weight-averaging' must act after every epoch"),
        (Annealing(), "'annealing' must know how many epochs are planned"),
        (ClassBalance(), "Sample weights must enter the loss"),
    ],
)
def test_what_a_loop_leaves_out_is_refused(remedy: Remedy, says: str) -> None:
    plan = recipe(epochs=1)
    model = plan.build(2)
    optimizer = RemedyOptimizer(
        plan.optimize(list(model.parameters())),
        remedy,
        model=model,
        subject=lambda one: joined(one, plan),
    )
    with pytest.raises(InputError, match=says):
        train(model, optimizer, plan, range(1, 2))


def test_places_of_samples_are_asked_for() -> None:
    plan = recipe(epochs=1)
    model = plan.build(2)
    base = plan.optimize(list(model.parameters()))
    optimizer = RemedyOptimizer(
        base, ClassBalance(), model=model, subject=lambda one: joined(one, plan)
    )
    with pytest.raises(InputError, match="must know their places"):
        optimizer.loss("cross_entropy", model(plan.train[0]), plan.train[1])


def test_averages_survive_a_checkpoint() -> None:
    plan = recipe(epochs=3)
    model = plan.build(2)
    optimizer = RemedyOptimizer(
        plan.optimize(list(model.parameters())), WeightAveraging(share=1.0), model=model, epochs=3
    )
    optimizer.begin(3)
    train(model, optimizer, plan, range(1, 2))
    optimizer.end_epoch()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = RemedyOptimizer(
        plan.optimize(list(model.parameters())), WeightAveraging(share=1.0), model=model, epochs=3
    )
    other.load_state_dict(torch.load(file, weights_only=True))
    assert set(other.memories[0]["mean"]) == {name for name, _ in model.named_parameters()}


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
