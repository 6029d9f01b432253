"""Remedies, probes and monitors in the training loop of Lightning."""

from collections.abc import Callable
from typing import Any

from torch import nn

from mindgap.core import InputError, Subject
from mindgap.integrations.optional import base_class
from mindgap.integrations.remedy_optimizer import RemedyOptimizer
from mindgap.training.monitor.monitor import Monitor
from mindgap.training.perturbed_optimizer import PerturbedOptimizer
from mindgap.training.probe import Probe
from mindgap.training.wrapped_optimizer import WrappedOptimizer

_Callback: Any = base_class("lightning.pytorch", "Callback", "lightning")


class RemedyCallback(_Callback):  # type: ignore[misc]
    """Tells a remedy's optimizer the epochs, and perturbs the weights for each batch.

    Let ``configure_optimizers`` return a
    :class:`~mindgap.training.perturbed_optimizer.PerturbedOptimizer` or a
    :class:`~mindgap.integrations.remedy_optimizer.RemedyOptimizer`. For a ``PerturbedOptimizer``
    the weights are perturbed from ``on_train_batch_start`` to ``on_after_backward``. So accumulated
    gradients, a scaler and clipping work, and a hook before the step sees the weights themselves.
    With manual optimization the callback tells the epochs only. For a remedy that changes inputs or
    losses, ``training_step`` returns ``optimizer.loss("cross_entropy", self(optimizer.inputs(x)),
    y)``, with the optimizer that ``configure_optimizers`` made.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Check the settings before the first batch."""
        kinds = [type(optimizer) for optimizer in _own(trainer)]
        for optimizer in _remedied(trainer):
            optimizer.model = pl_module if optimizer.model is None else optimizer.model
            optimizer.begin(max(0, trainer.max_epochs or 0))
        if not kinds:
            raise InputError(
                "configure_optimizers must return a PerturbedOptimizer or a RemedyOptimizer, got "
                "none. Wrap its optimizer, or leave out RemedyCallback."
            )
        if (
            RemedyOptimizer in kinds
            and pl_module.automatic_optimization
            and trainer.accumulate_grad_batches != 1
        ):
            raise InputError(
                "A RemedyOptimizer must see all of a step in one batch, got "
                f"accumulate_grad_batches={trainer.accumulate_grad_batches}. Set it to 1, or use "
                "PerturbedOptimizer."
            )

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Tell the epoch, from 1."""
        for optimizer in _own(trainer):
            optimizer.epoch = trainer.current_epoch + 1

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Perturb the weights."""
        if pl_module.automatic_optimization:
            for optimizer in _own(trainer):
                if isinstance(optimizer, PerturbedOptimizer):
                    optimizer.perturb()

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """Restore the weights."""
        if pl_module.automatic_optimization:
            _restore(trainer)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Restore the weights where a batch had no backward pass."""
        _restore(trainer)

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        """Restore the weights where a batch was skipped; let remedies act after the epoch."""
        _restore(trainer)
        stops = [optimizer.end_epoch() for optimizer in _remedied(trainer)]
        trainer.should_stop = trainer.should_stop or any(stops)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Let remedies finish the model."""
        for optimizer in _remedied(trainer):
            optimizer.finish()

    def on_exception(self, trainer: Any, *_: Any) -> None:
        """Restore the weights, which Lightning may save after Ctrl-C."""
        _restore(trainer)


class ProbeCallback(_Callback):  # type: ignore[misc]
    """Takes a probe's measure every so many steps, without a trace in the training.

    Args:
        probe: The measure and its interval; the readings are in ``probe.readings``.
        subject: Makes the subject of the module that is trained, once per training, as in ``lambda
            module: Subject(module, "cross_entropy", train)``.
    """

    def __init__(self, probe: Probe, subject: Callable[[nn.Module], Subject]) -> None:
        super().__init__()
        self.probe, self.make, self.seen = probe, subject, 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the subject."""
        self.subject, self.seen = self.make(pl_module), trainer.global_step

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Take the measure if it is due and the batch completed a step."""
        if trainer.global_step > self.seen:
            self.seen = trainer.global_step
            self.probe.look(self.subject, self.seen)


class MonitorCallback(_Callback):  # type: ignore[misc]
    """Lets a monitor watch the module that is trained; gradients may be accumulated or scaled.

    Args:
        monitor: A monitor without a model, as in ``Monitor(log="run.jsonl")``.
    """

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self.monitor, self.seen = monitor, 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach the monitor."""
        self.seen = trainer.global_step
        self.monitor.attach(pl_module, self.seen)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:  # noqa: ARG002
        """Tell the monitor if the batch completed a step."""
        if trainer.global_step > self.seen:
            self.seen = trainer.global_step
            self.monitor.step(outputs.get("loss") if isinstance(outputs, dict) else outputs)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Remove all hooks and write the rest."""
        self.monitor.close()

    def on_exception(self, trainer: Any, *_: Any) -> None:  # noqa: ARG002
        """Remove all hooks and write the rest."""
        self.monitor.close()


def _own(trainer: Any) -> list[WrappedOptimizer]:
    return [
        optimizer for optimizer in trainer.optimizers if isinstance(optimizer, WrappedOptimizer)
    ]


def _remedied(trainer: Any) -> list[RemedyOptimizer]:
    return [one for one in _own(trainer) if isinstance(one, RemedyOptimizer)]


def _restore(trainer: Any) -> None:
    for optimizer in _own(trainer):
        if isinstance(optimizer, PerturbedOptimizer):
            optimizer.restore()
