"""Lightning's loop gives, bit by bit, the weights of the loop written out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from raw_loop import (
    EVERYWHERE,
    ROWS,
    SIZE,
    SMOOTH,
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
from torch.utils.data import DataLoader, TensorDataset

from mindgap.core.errors import InputError
from mindgap.core.remedy import Remedy
from mindgap.core.subject import Subject
from mindgap.integrations.remedy_optimizer import RemedyOptimizer
from mindgap.measures import ParameterNorm, TrainingLoss
from mindgap.ops.models.phases import gates_of
from mindgap.remedies import (
    ASAM,
    SAM,
    EarlyStopping,
    LabelSmoothing,
    Perturbed,
    TwoPhase,
    WeightAveraging,
)
from mindgap.training.monitor.monitor import Monitor
from mindgap.training.perturbed_optimizer import PerturbedOptimizer
from mindgap.training.probe import Probe

lightning = pytest.importorskip(
    "lightning.pytorch", reason="Lightning is not installed: pip install 'mindgap[lightning]'"
)

from mindgap.integrations.lightning import MonitorCallback, ProbeCallback, RemedyCallback  # noqa: E402

pytestmark = [  # what Lightning itself calls that is deprecated, and its advice for loaders
    pytest.mark.filterwarnings(
        "ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"
    ),
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
]


class Module(lightning.LightningModule):
    """A net whose weights are seen by a hook before every step."""

    def __init__(self, optimizer: Callable[[Any], torch.optim.Optimizer], skip: int = -1) -> None:
        super().__init__()
        self.net, self.make, self.skip, self.seen = network(), optimizer, skip, []

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)

    def training_step(self, batch: list[Tensor], number: int) -> Tensor | None:
        if number == self.skip:
            return None
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.make(self)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.seen.append(
            optimizer.core.moved if isinstance(optimizer, PerturbedOptimizer) else False
        )


def of_module(module: Module) -> PerturbedOptimizer:
    return perturbed(module.parameters())


def loader() -> DataLoader:
    return DataLoader(TensorDataset(*samples()), batch_size=SIZE)


def trainer(*callbacks: Any, epochs: int = 3, **settings: Any) -> Any:
    return lightning.Trainer(
        **{
            "max_epochs": epochs,
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "callbacks": list(callbacks),
            **settings,
        }
    )


def trained(module: Module, *callbacks: Any, **settings: Any) -> nn.Module:
    trainer(RemedyCallback(), *callbacks, **settings).fit(module, loader())
    return module.net


@pytest.mark.parametrize(
    ("settings", "raw"),
    [
        ({}, {}),
        ({"gradient_clip_val": 0.05}, {"clip": 0.05}),
        ({"accumulate_grad_batches": 3}, {"collect": 3}),
        ({"accumulate_grad_batches": 2, "gradient_clip_val": 0.05}, {"collect": 2, "clip": 0.05}),
        ({"precision": "bf16-mixed"}, {"autocast": True}),
    ],
    ids=str,
)
def test_equals_the_loop_written_out(settings: dict[str, Any], raw: dict[str, Any]) -> None:
    module = Module(of_module)
    found = trained(module, **settings)
    assert same(found, by_perturbation(**raw))
    assert module.seen
    assert not any(module.seen)
    if not raw:
        assert not near(found, by_plain_steps(), 1e-3)


def test_a_gradient_scaler_is_seen_through() -> None:
    from lightning.pytorch.plugins import MixedPrecision

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=10_000)
    plugin = MixedPrecision("16-mixed", "cpu", scaler=scaler)
    plugin.autocast_context_manager = lambda: torch.autocast(
        "cpu", enabled=False
    )  # so that only the scale differs
    assert near(trained(Module(of_module), plugins=[plugin]), by_perturbation())


def test_resumes_exactly(tmp_path: Path) -> None:
    first = trainer(RemedyCallback(), epochs=2)
    first.fit(Module(of_module), loader())
    first.save_checkpoint(tmp_path / "two.ckpt")
    module = Module(of_module)
    trainer(RemedyCallback()).fit(module, loader(), ckpt_path=tmp_path / "two.ckpt")
    assert same(module.net, by_perturbation())
    assert module.trainer.optimizers[0].core.step == 3 * len(batches())


def test_without_the_callback_only_the_epoch_is_missing() -> None:
    module = Module(of_module)
    trainer(epochs=1).fit(module, loader())
    assert same(module.net, by_perturbation(epochs=1))


@pytest.mark.parametrize(
    "remedy", [SAM(radius=0.1), ASAM(), Perturbed(gamma=2.0, beta2=5.0)], ids=lambda one: one.name
)
def test_other_remedies(remedy: Remedy) -> None:
    def optimizer(module: nn.Module) -> RemedyOptimizer:
        return RemedyOptimizer(base(module.parameters()), remedy, model=module, seed=3)

    model = network()
    raw = optimizer(model)
    for epoch in (1, 2, 3):
        raw.epoch = epoch
        for inputs, targets in batches():

            def closure(inputs: Tensor = inputs, targets: Tensor = targets) -> Tensor:
                raw.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                return loss

            raw.step(closure)
    module = Module(optimizer)
    assert same(trained(module), model)
    if isinstance(remedy, Perturbed):
        assert same(model, by_perturbation())
    with pytest.raises(InputError, match="accumulate_grad_batches=2"):
        trained(Module(optimizer), accumulate_grad_batches=2)


def test_manual_optimization_is_left_to_its_author() -> None:
    class Manual(Module):
        def __init__(self) -> None:
            super().__init__(of_module)
            self.automatic_optimization = False

        def training_step(self, batch: list[Tensor], number: int) -> None:
            optimizer = self.optimizers().optimizer
            optimizer.zero_grad()
            with optimizer.perturbed():
                self.manual_backward(nn.functional.cross_entropy(self(batch[0]), batch[1]))
            optimizer.step()

    assert same(trained(Manual()), by_perturbation())


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
@pytest.mark.parametrize("settings", [{}, {"accumulate_grad_batches": 2}])
def test_weights_are_at_rest_after_a_batch_without_a_loss(settings: dict[str, Any]) -> None:
    module, moved = Module(of_module, skip=2), []

    class Look(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            moved.append(trainer.optimizers[0].core.moved)

    trained(module, Look(), **settings)
    assert moved
    assert not any(moved)


def test_weights_come_back_after_an_exception_and_a_skipped_epoch() -> None:
    class Failing(Module):
        def training_step(self, batch: list[Tensor], number: int) -> Tensor:
            if number == 3:
                self.inside = self.net[0].weight.detach().clone()
                raise ZeroDivisionError
            return super().training_step(batch, number)

    module = Failing(of_module)
    with pytest.raises(ZeroDivisionError):
        trained(module)
    assert not module.trainer.optimizers[0].core.moved
    assert not torch.equal(module.inside, module.net[0].weight)

    class Skipping(Module):
        def on_train_batch_start(self, batch: list[Tensor], number: int) -> int | None:
            return -1 if number == 3 else None

    module = Skipping(of_module)
    trained(module, epochs=1)
    assert not module.trainer.optimizers[0].core.moved


def test_a_probe_reads_every_so_many_steps_and_leaves_no_trace() -> None:
    probes = [Probe(measure=TrainingLoss(), every=2), Probe(measure=ParameterNorm(), every=5)]
    callbacks = [
        ProbeCallback(probe, lambda module: Subject(module.net, "cross_entropy", samples()))
        for probe in probes
    ]
    assert same(
        trained(Module(of_module), *callbacks, accumulate_grad_batches=2),
        by_perturbation(collect=2),
    )
    assert [step for step, _ in probes[0].readings] == [2, 4, 6, 8, 10, 12]
    assert [step for step, _ in probes[1].readings] == [5, 10]
    last = Subject(by_perturbation(collect=2), "cross_entropy", samples())
    assert float(probes[0].readings[-1][1]) == pytest.approx(float(TrainingLoss()(last)))


def test_misuse_is_told() -> None:
    with pytest.raises(InputError, match="configure_optimizers must return"):
        trained(Module(lambda module: base(module.parameters())))


class Calling(Module):
    """A module whose step calls the optimizer for inputs and loss."""

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        optimizer = self.made
        return optimizer.loss("cross_entropy", self(optimizer.inputs(batch[0])), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        self.made = self.make(self)
        return self.made


def remedied(remedies: Any, **more: Any) -> Callable[[Module], RemedyOptimizer]:
    settings = {"seed": 3, "subject": lambda _: joined(_), **more}
    return lambda module: RemedyOptimizer(
        base(module.parameters()), remedies, model=module.net, **settings
    )


@pytest.mark.parametrize("remedies", [EVERYWHERE, SMOOTH], ids=["every hook", "smooth"])
def test_remedies_of_every_hook_act_as_in_the_loop_written_out(remedies: list[Remedy]) -> None:
    found = trained(Calling(remedied(remedies)))
    assert same(found, by_remedies(remedies))
    assert not near(found, by_remedies([]), 1e-3)


class Sampling(Calling):
    """A module whose loader lets the optimizer choose the samples."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            TensorDataset(*samples()), batch_size=SIZE, sampler=self.made.sampler(ROWS)
        )


def test_two_phases_have_the_samples_and_weights_of_the_loop_written_out() -> None:
    module = Sampling(remedied(TwoPhase()))
    trainer(RemedyCallback()).fit(module)
    assert same(module.net, by_remedies([TwoPhase()], sampled=True))
    assert gates_of(module.net).frozen
    with pytest.raises(InputError, match="sampler"):
        trained(Calling(remedied(TwoPhase())))


def test_a_remedy_stops_the_trainer() -> None:
    losses = iter([2.0, 1.0, 3.0, 3.0, 3.0, 3.0])
    module = Calling(remedied(EarlyStopping(patience=2), validate=lambda: next(losses)))
    one = trainer(RemedyCallback(), epochs=9)
    one.fit(module, loader())
    assert one.current_epoch == 4
    assert same(module.net, by_remedies([], epochs=2))


def test_what_the_module_leaves_out_is_refused() -> None:
    with pytest.raises(InputError, match=r"does not call optimizer\.loss"):
        trained(Module(remedied(LabelSmoothing())))
    with pytest.raises(InputError, match="RemedyCallback"):
        trainer().fit(Calling(remedied(WeightAveraging())), loader())
    with pytest.raises(InputError, match="how many epochs"):
        trained(Calling(remedied(WeightAveraging())), epochs=-1, max_steps=3)


@pytest.mark.parametrize(
    "settings", [{}, {"accumulate_grad_batches": 2, "gradient_clip_val": 0.05}]
)
def test_a_monitor_changes_nothing_and_sees_every_step(settings: dict[str, Any]) -> None:
    def plain(module: Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(module.parameters(), lr=0.01)

    nets, monitor = [], Monitor(every=3)
    for callbacks in ([], [MonitorCallback(monitor)]):
        module = Module(plain)
        trainer(*callbacks, **settings).fit(module, loader())
        nets.append(module.net)
    assert same(*nets)
    steps = sum(len(line.get("losses", ())) for line in monitor.lines)
    assert steps == monitor.steps > 3
    assert all(loss > 0 for line in monitor.lines for loss in line.get("losses", ()))
    if settings:
        assert max(norm for line in monitor.lines for norm in line.get("gradient", ())) < 0.0501
    reading = [line for line in monitor.lines if "layers" in line][-1]
    assert all(row.get("backward") for row in reading["layers"].values())
    assert not any(module._forward_hooks for module in nets[1].modules())
