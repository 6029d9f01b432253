"""skorch's loop gives, bit by bit, the weights of the loop written out."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from raw_loop import (
    EVERYWHERE,
    SETTINGS,
    SIZE,
    SMOOTH,
    WEIGHTED,
    batches,
    by_perturbation,
    by_plain_steps,
    by_remedies,
    joined,
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
from mindgap.ops.models.phases import gates_of
from mindgap.remedies import ASAM, SAM, ActiveBias, EarlyStopping, LabelSmoothing, TwoPhase
from mindgap.training.monitor.monitor import Monitor
from mindgap.training.probe import Probe

skorch = pytest.importorskip(
    "skorch", reason="skorch is not installed: pip install 'mindgap[skorch]'"
)

from mindgap.integrations.skorch import (  # noqa: E402
    MonitorCallback,
    ProbeCallback,
    RemedyCallback,
    RemedyMixin,
    perturbed,
    remedied,
)


class Net(RemedyMixin, skorch.NeuralNetClassifier):
    """A net that lets remedies change inputs and losses."""


def net(*callbacks: Any, kind: type = skorch.NeuralNetClassifier, **settings: Any) -> Any:
    return kind(
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


@pytest.mark.parametrize("remedies", [EVERYWHERE, SMOOTH], ids=["every hook", "smooth"])
def test_remedies_of_every_hook_act_as_in_the_loop_written_out(remedies: list[Remedy]) -> None:
    optimizer = remedied(torch.optim.Adam, remedies, seed=3, subject=joined)
    found = fitted(optimizer=optimizer, kind=Net)
    assert near(found, by_remedies(remedies))
    assert not near(found, by_remedies([]), 1e-3)


@pytest.mark.parametrize("remedy", WEIGHTED, ids=lambda one: one.name)
def test_sample_weights_act_as_in_the_loop_written_out(remedy: Remedy) -> None:
    optimizer = remedied(torch.optim.Adam, remedy, seed=3, subject=joined)
    found = fitted(optimizer=optimizer, kind=Net)
    assert near(found, by_remedies([remedy]))
    assert not near(found, by_remedies([]), 1e-4)


def test_places_are_those_of_the_data_given_to_fit() -> None:
    seen = list[int]()

    class Noted(Net):
        def get_loss(self, *given: Any, training: bool = False, **named: Any) -> Any:
            seen.extend(self._places.tolist() if training else [])
            return super().get_loss(*given, training=training, **named)

    optimizer = remedied(torch.optim.Adam, ActiveBias(), seed=3, subject=joined)
    split = skorch.dataset.ValidSplit(4, stratified=False)
    one = net(optimizer=optimizer, kind=Noted, max_epochs=1, train_split=split)
    one.fit(*samples())
    total = len(samples()[1])
    assert len(seen) == len(set(seen)) < total
    assert max(seen) >= len(seen)  # no place in the part that is trained on


def test_two_phases_have_the_samples_and_weights_of_the_loop_written_out() -> None:
    module = network()
    optimizer = remedied(torch.optim.Adam, TwoPhase(), seed=3, subject=joined, model=module)
    found = fitted(kind=Net, optimizer=optimizer, module=module)
    assert near(found, by_remedies([TwoPhase()], sampled=True))
    assert gates_of(found).frozen


def test_a_remedy_stops_the_net() -> None:
    losses = iter([2.0, 1.0, 3.0, 3.0, 3.0, 3.0])
    stopping = EarlyStopping(patience=2)
    optimizer = remedied(torch.optim.Adam, stopping, seed=3, validate=lambda: next(losses))
    one = net(optimizer=optimizer, max_epochs=9).fit(*samples())
    assert len(one.history) == 4
    assert same(one.module_, by_remedies([], epochs=2))


def test_a_net_without_the_mixin_is_refused() -> None:
    with pytest.raises(InputError, match=r"class Net\(RemedyMixin, NeuralNetClassifier\)"):
        fitted(optimizer=remedied(torch.optim.Adam, LabelSmoothing()))


def test_a_monitor_changes_nothing_and_sees_every_step() -> None:
    settings = {"optimizer": torch.optim.Adam}
    monitor = Monitor(every=3)
    plain = net(callbacks=[], **settings).fit(*samples())
    watched = net(callbacks=[MonitorCallback(monitor)], **settings)
    watched.fit(*samples())
    assert same(plain.module_, watched.module_)
    steps = 3 * len(batches())
    assert sum(len(line.get("losses", ())) for line in monitor.lines) == steps
    watched.partial_fit(*samples())
    assert monitor.steps == 2 * steps
