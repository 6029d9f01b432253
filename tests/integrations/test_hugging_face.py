"""The loop of Hugging Face's Trainer gives the weights of the loop written out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from raw_loop import (
    EVERYWHERE,
    SIZE,
    SMOOTH,
    WEIGHTED,
    base,
    batches,
    by_perturbation,
    by_plain_steps,
    by_remedies,
    joined,
    near,
    network,
    perturbed,
    same,
    samples,
)
from torch import Tensor, nn
from torch.utils.data import SequentialSampler

from mindgap.core.errors import InputError
from mindgap.core.remedy import Remedy
from mindgap.core.subject import Subject
from mindgap.integrations.remedy_optimizer import RemedyOptimizer
from mindgap.measures import TrainingLoss
from mindgap.ops.models.phases import gates_of
from mindgap.remedies import ASAM, SAM, EarlyStopping, InputNoise, LabelSmoothing, TwoPhase
from mindgap.training.monitor.monitor import Monitor
from mindgap.training.probe import Probe

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install 'mindgap[hf]'"
)
pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'mindgap[hf]'")

from mindgap.integrations.hugging_face import (  # noqa: E402
    MonitorCallback,
    ProbeCallback,
    RemedyMixin,
    RemedyTrainer,
)


class Classifier(nn.Module):
    """A net in the manner of Hugging Face."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.net(inputs)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


class Trainer(RemedyTrainer):
    """Reads the samples in their order."""

    def _get_train_sampler(self, *_: Any) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)


def rows() -> list[dict[str, Tensor]]:
    return [{"inputs": one, "labels": label} for one, label in zip(*samples(), strict=True)]


def trainer(
    folder: Path,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = lambda model: perturbed(
        model.parameters()
    ),
    kind: type = Trainer,
    callbacks: tuple[Any, ...] = (),
    **settings: Any,
) -> Any:
    model = Classifier()
    made = optimizer(model)
    arguments = transformers.TrainingArguments(
        **{
            "output_dir": str(folder),
            "per_device_train_batch_size": SIZE,
            "num_train_epochs": 3,
            "lr_scheduler_type": "constant",
            "max_grad_norm": 0.0,
            "use_cpu": True,
            "report_to": [],
            "disable_tqdm": True,
            "logging_strategy": "no",
            "save_strategy": "no",
            "dataloader_pin_memory": False,
            **settings,
        }
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda _: 1.0)
    return kind(
        model,
        arguments,
        train_dataset=rows(),
        optimizers=(made, schedule),
        callbacks=list(callbacks),
    )


def trained(folder: Path, *given: Any, **settings: Any) -> nn.Module:
    one = trainer(folder, *given, **settings)
    one.train()
    return one.model.net


@pytest.mark.parametrize(
    ("settings", "raw"),
    [
        ({}, {}),
        ({"max_grad_norm": 0.05}, {"clip": 0.05}),
        (
            {"gradient_accumulation_steps": 3, "max_grad_norm": 0.05},
            {"collect": 3, "clip": 0.05, "part": lambda number: 3 if number < 6 else 1},
        ),
        ({"bf16": True}, {"autocast": True}),
    ],
    ids=["plain", "clipped", "collected", "bf16"],
)
def test_equals_the_loop_written_out(
    tmp_path: Path, settings: dict[str, Any], raw: dict[str, Any]
) -> None:
    found = trained(tmp_path, **settings)
    assert same(found, by_perturbation(**raw))
    if not raw:
        assert not near(found, by_plain_steps(), 1e-3)


@pytest.mark.parametrize("save", [7, 10])
def test_resumes_exactly_at_and_within_an_epoch(tmp_path: Path, save: int) -> None:
    trained(tmp_path, save_strategy="steps", save_steps=save, max_steps=save)
    one = trainer(tmp_path)
    one.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{save}"))
    assert one.state.global_step == 3 * len(batches())
    assert same(one.model.net, by_perturbation())


@pytest.mark.parametrize("remedy", [SAM(radius=0.1), ASAM()], ids=lambda one: one.name)
def test_other_remedies(tmp_path: Path, remedy: Remedy) -> None:
    def optimizer(model: nn.Module) -> RemedyOptimizer:
        return RemedyOptimizer(base(model.parameters()), remedy, model=model)

    model = network()
    raw = optimizer(model)
    for inputs, targets in batches() * 3:

        def closure(inputs: Tensor = inputs, targets: Tensor = targets) -> Tensor:
            raw.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            return loss

        raw.step(closure)
    assert same(trained(tmp_path, optimizer), model)
    with pytest.raises(InputError, match="gradient_accumulation_steps=2"):
        trained(tmp_path, optimizer, gradient_accumulation_steps=2)


def test_a_trainer_of_ones_own_takes_the_mixin(tmp_path: Path) -> None:
    class Mine(transformers.Trainer):
        def compute_loss(
            self, model: nn.Module, inputs: dict[str, Tensor], *more: Any, **named: Any
        ) -> Tensor:
            return nn.functional.cross_entropy(model(inputs["inputs"])["logits"], inputs["labels"])

        def _get_train_sampler(self, *_: Any) -> SequentialSampler:
            return SequentialSampler(self.train_dataset)

    class Both(RemedyMixin, Mine):
        pass

    assert same(trained(tmp_path, kind=Both), by_perturbation())


def test_a_probe_reads_every_so_many_steps_and_leaves_no_trace(tmp_path: Path) -> None:
    probe = Probe(measure=TrainingLoss(), every=7)
    callback = ProbeCallback(probe, lambda model: Subject(model.net, "cross_entropy", samples()))
    assert same(trained(tmp_path, callbacks=(callback,)), by_perturbation())
    assert [step for step, _ in probe.readings] == [7, 14, 21]
    there = Subject(by_perturbation(), "cross_entropy", samples())
    assert float(probe.readings[-1][1]) == pytest.approx(float(TrainingLoss()(there)))


def test_misuse_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got Adam"):
        trained(tmp_path, lambda model: base(model.parameters()))


def remedied(remedies: Any, **more: Any) -> Callable[[nn.Module], RemedyOptimizer]:
    settings = {"seed": 3, "subject": joined, **more}
    return lambda model: RemedyOptimizer(
        base(model.parameters()), remedies, model=model.net, **settings
    )


@pytest.mark.parametrize("remedies", [EVERYWHERE, SMOOTH], ids=["every hook", "smooth"])
def test_remedies_of_every_hook_act_as_in_the_loop_written_out(
    tmp_path: Path, remedies: list[Remedy]
) -> None:
    found = trained(tmp_path, remedied(remedies))
    assert near(found, by_remedies(remedies))
    assert not near(found, by_remedies([]), 1e-3)


@pytest.mark.parametrize("remedy", WEIGHTED, ids=lambda one: one.name)
def test_sample_weights_act_as_in_the_loop_written_out(tmp_path: Path, remedy: Remedy) -> None:
    found = trained(tmp_path, remedied(remedy))
    assert near(found, by_remedies([remedy]))
    assert not near(found, by_remedies([]), 1e-4)


def test_a_remedy_of_the_inputs_leaves_the_models_own_loss(tmp_path: Path) -> None:
    found = trained(tmp_path, remedied(InputNoise(scale=0.5)))
    assert near(found, by_remedies([InputNoise(scale=0.5)]))


def test_two_phases_have_the_samples_and_weights_of_the_loop_written_out(tmp_path: Path) -> None:
    found = trained(tmp_path, remedied(TwoPhase()), kind=RemedyTrainer)
    assert near(found, by_remedies([TwoPhase()], sampled=True))
    assert gates_of(found).frozen


def test_a_remedy_stops_the_trainer(tmp_path: Path) -> None:
    losses = iter([2.0, 1.0, 3.0, 3.0, 3.0, 3.0])
    stopping = remedied(EarlyStopping(patience=2), validate=lambda: next(losses))
    found = trained(tmp_path, stopping, num_train_epochs=9)
    assert near(found, by_remedies([], epochs=2))


def test_other_tasks_than_classification_are_refused(tmp_path: Path) -> None:
    one = trainer(tmp_path, remedied(LabelSmoothing()))
    one.train_dataset = [{**row, "labels": row["labels"].float()} for row in one.train_dataset]
    with pytest.raises(InputError, match="one class number per sample"):
        one.train()


def test_a_monitor_changes_nothing_and_sees_every_step(tmp_path: Path) -> None:
    def adam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.01)

    monitor, nets = Monitor(every=3), []
    for callbacks in ((), (MonitorCallback(monitor),)):
        given = {"kind": transformers.Trainer, "callbacks": callbacks, "seed": 1}
        one = trainer(tmp_path, adam, gradient_accumulation_steps=2, max_grad_norm=0.05, **given)
        one.train()
        nets.append(one.model)
    assert same(*nets)
    assert monitor.steps == one.state.global_step > 3
    losses = [loss for line in monitor.lines for loss in line.get("losses", ())]
    assert len(losses) == monitor.steps
    assert all(loss > 0 for loss in losses)
    assert max(norm for line in monitor.lines for norm in line.get("gradient", ())) < 0.0501
    assert not any(module._forward_hooks for module in nets[1].modules())
