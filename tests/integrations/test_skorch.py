"""skorch's loop gives, bit by bit, the weights of the loop written out."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from raw_loop import (
    SETTINGS,
    SIZE,
    batches,
    by_perturbation,
    by_plain_steps,
    near,
    network,
    same,
    samples,
)
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.remedy import Remedy
from mindgap.core.subject import Subject
from mindgap.integrations.remedy_optimizer import RemedyOptimizer
from mindgap.measures import TrainingLoss
from mindgap.remedies import ASAM, SAM
from mindgap.training.probe import Probe

skorch = pytest.importorskip(
    "skorch", reason="skorch is not installed: pip install 'mindgap[skorch]'"
)

from mindgap.integrations.skorch import ProbeCallback, RemedyCallback, perturbed, remedied  # noqa: E402


def net(*callbacks: Any, **settings: Any) -> Any:
    return skorch.NeuralNetClassifier(
        **{
            "module": network(),
            "criterion": nn.CrossEntropyLoss,
            "optimizer": perturbed(torch.optim.Adam, **SETTINGS),
            "lr": 0.01,
            "batch_size": SIZE,
            "max_epochs": 3,
            "train_split": None,
            "verbose": 0,
            "callbacks": [RemedyCallback(), *callbacks],
            **settings,
        }
    )


def fitted(*callbacks: Any, **settings: Any) -> nn.Module:
    return net(*callbacks, **settings).fit(*samples()).module_


def test_equals_the_loop_written_out() -> None:
    assert same(fitted(), by_perturbation())
    assert not near(fitted(), by_plain_steps(), 1e-3)


def test_clipping_is_seen_by_the_step() -> None:
    clip = skorch.callbacks.GradientNormClipping(gradient_clip_value=0.05)
    assert same(fitted(clip), by_perturbation(clip=0.05))


def test_without_the_callback_only_the_epoch_is_missing() -> None:
    assert same(fitted(callbacks=[], max_epochs=1), by_perturbation(epochs=1))


@pytest.mark.parametrize("remedy", [SAM(radius=0.1), ASAM()], ids=lambda one: one.name)
def test_other_remedies(remedy: Remedy) -> None:
    model = network()
    raw = RemedyOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), remedy, model=model)
    for inputs, targets in batches() * 3:

        def closure(inputs: Tensor = inputs, targets: Tensor = targets) -> Tensor:
            raw.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            return loss

        raw.step(closure)
    optimizer = remedied(torch.optim.Adam, remedy)
    assert same(fitted(optimizer=optimizer), model)
    with pytest.raises(InputError, match="RemedyCallback"):
        fitted(optimizer=optimizer, callbacks=[])


def test_resumes_exactly_from_files_and_from_a_pickle(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("f_params", "f_optimizer", "f_history")}
    first = net(max_epochs=2).fit(*samples())
    first.save_params(**files)
    twin = pickle.loads(pickle.dumps(first))
    second = net(max_epochs=1).initialize()
    second.load_params(**files)
    for one in (second, twin.set_params(max_epochs=1)):
        one.partial_fit(*samples())
        assert one.optimizer_.epoch == 3
        assert same(one.module_, by_perturbation())


def test_settings_of_the_base_are_set_through_the_net() -> None:
    one = net(optimizer__betas=(0.5, 0.9)).initialize()
    assert one.optimizer_.base.param_groups[0]["betas"] == (0.5, 0.9)
    one.set_params(lr=0.5)
    assert one.optimizer_.base.param_groups[0]["lr"] == 0.5
    clone = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed").clone(one)
    assert same(
        clone.set_params(lr=0.01, optimizer__betas=(0.9, 0.999)).fit(*samples()).module_,
        by_perturbation(),
    )


def test_a_probe_reads_every_so_many_steps_and_leaves_no_trace() -> None:
    probe = Probe(measure=TrainingLoss(), every=7)
    callback = ProbeCallback(probe, lambda module: Subject(module, "cross_entropy", samples()))
    assert same(fitted(callback, train_split=None), by_perturbation())
    assert [step for step, _ in probe.readings] == [7, 14, 21]
    for epochs, (_, reading) in enumerate(probe.readings, start=1):
        there = Subject(by_perturbation(epochs=epochs), "cross_entropy", samples())
        assert float(reading) == pytest.approx(float(TrainingLoss()(there)))


def test_misuse_is_told() -> None:
    with pytest.raises(InputError, match="got Adam"):
        fitted(optimizer=torch.optim.Adam)
