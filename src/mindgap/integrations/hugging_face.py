"""Remedies, probes and monitors in the training loop of Hugging Face's Trainer."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from mindgap.core import InputError, Subject
from mindgap.integrations.optional import base_class
from mindgap.integrations.preparation import PLACE, Placed
from mindgap.integrations.remedy_optimizer import RemedyOptimizer
from mindgap.training.monitor.monitor import Monitor
from mindgap.training.perturbed_optimizer import PerturbedOptimizer
from mindgap.training.probe import Probe
from mindgap.training.wrapped_optimizer import WrappedOptimizer

_Trainer: Any = base_class("transformers", "Trainer", "hf")
_Callback: Any = base_class("transformers", "TrainerCallback", "hf")


class RemedyMixin:
    """Adds remedies to a Trainer of your own: ``class Mine(RemedyMixin, YourTrainer)``.

    Pass ``optimizers=(optimizer, None)`` with a
    :class:`~mindgap.training.perturbed_optimizer.PerturbedOptimizer` or a
    :class:`~mindgap.integrations.remedy_optimizer.RemedyOptimizer`. The Trainer clips, steps and
    saves as always. With a ``PerturbedOptimizer`` gradients may be accumulated over several
    batches, all at the same perturbation.

    >>> class Mine(RemedyMixin, _Trainer):
    ...     "A Trainer of your own, in place of transformers.Trainer."
    >>> issubclass(Mine, RemedyMixin) and issubclass(RemedyTrainer, RemedyMixin)
    True
    """

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], *more: Any, **named: Any
    ) -> Tensor:
        """Run forward and backward at the weights where the remedy takes the gradient."""
        optimizer = _bare(self.optimizer)  # type: ignore[attr-defined]
        step = super().training_step  # type: ignore[misc]
        if not isinstance(optimizer, WrappedOptimizer):
            raise InputError(
                "The optimizer must be a PerturbedOptimizer or a RemedyOptimizer, got "
                f"{type(optimizer).__name__}. Pass optimizers=(optimizer, None) to the Trainer."
            )
        # The Trainer counts epochs as a fraction, which may be rounded to just below an integer.
        optimizer.epoch = int(self.state.epoch + 1e-6) + 1  # type: ignore[attr-defined]
        if isinstance(optimizer, PerturbedOptimizer):
            with optimizer.perturbed():
                return step(model, inputs, *more, **named)  # type: ignore[no-any-return]
        assert isinstance(optimizer, RemedyOptimizer)
        self._check()

        def closure() -> Tensor:
            optimizer.zero_grad()
            return step(model, dict(inputs), *more, **named)  # type: ignore[no-any-return]

        return optimizer.gradient(closure)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], *more: Any, **named: Any
    ) -> Any:
        """Compute the loss that the remedies want, in training."""
        optimizer, plain = _bare(getattr(self, "optimizer", None)), super().compute_loss  # type: ignore[misc]
        places = inputs.get(PLACE)
        inputs = {name: value for name, value in inputs.items() if name != PLACE}
        if not model.training or not isinstance(optimizer, RemedyOptimizer):
            return plain(model, inputs, *more, **named)
        if optimizer.writes("inputs"):
            changed = {name: value for name, value in inputs.items() if name != "labels"}
            inputs = {**inputs, **optimizer.inputs(changed)}
        if not (optimizer.weighs or optimizer.writes("losses", "penalty")):
            return plain(model, inputs, *more, **named)
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        return optimizer.loss(
            "cross_entropy", *_classes(outputs, inputs.get("labels")), index=places
        )

    def _get_train_sampler(self, *given: Any, **named: Any) -> Any:
        """Let a remedy choose the samples of every epoch."""
        optimizer = _bare(getattr(self, "optimizer", None))
        if isinstance(optimizer, RemedyOptimizer) and optimizer.writes("order"):
            return optimizer.sampler(len(self.train_dataset))
        return super()._get_train_sampler(*given, **named)  # type: ignore[misc]

    def train(self, *given: Any, **named: Any) -> Any:
        """Train, and let remedies act after every epoch and at the end."""
        optimizer = _bare(self.optimizer)  # type: ignore[attr-defined]
        if isinstance(optimizer, RemedyOptimizer):
            if optimizer.model is None:
                optimizer.model = self.model  # type: ignore[attr-defined]
            optimizer.begin(int(self.args.num_train_epochs))  # type: ignore[attr-defined]
        self.remove_callback(_Ends)  # type: ignore[attr-defined]
        self.add_callback(_Ends(optimizer))  # type: ignore[attr-defined]
        return super().train(*given, **named)  # type: ignore[misc]

    def get_train_dataloader(self) -> Any:
        """Read the training data with their places, if a remedy weights samples."""
        make, whole = super().get_train_dataloader, self.train_dataset  # type: ignore[misc, has-type]
        optimizer = _bare(self.optimizer)  # type: ignore[attr-defined]
        if not (isinstance(optimizer, RemedyOptimizer) and optimizer.weighs):
            return make()
        self.train_dataset = Placed(whole)
        try:
            return make()
        finally:
            self.train_dataset = whole

    def _set_signature_columns_if_needed(self) -> None:
        """Let the places pass, although the model does not take them."""
        super()._set_signature_columns_if_needed()  # type: ignore[misc]
        columns: list[str] = self._signature_columns  # type: ignore[has-type]
        self._signature_columns = list(dict.fromkeys([*columns, PLACE]))

    def _check(self) -> None:
        batches = self.args.gradient_accumulation_steps  # type: ignore[attr-defined]
        scaler = self.accelerator.scaler  # type: ignore[attr-defined]
        if batches != 1 or scaler is not None:
            came = (
                "a gradient scaler (fp16)"
                if batches == 1
                else f"gradient_accumulation_steps={batches}"
            )
            raise InputError(
                "A RemedyOptimizer must see all of a step in one batch, with gradients as they "
                f"are, got {came}. Use one batch per step and bf16 or no mixed precision, or use "
                "PerturbedOptimizer."
            )


class RemedyTrainer(RemedyMixin, _Trainer):  # type: ignore[misc]
    """Hugging Face's Trainer for a ``PerturbedOptimizer`` or a ``RemedyOptimizer``."""


class _Ends(_Callback):  # type: ignore[misc]
    """Calls the remedies of an optimizer after every epoch and at the end."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer if isinstance(optimizer, RemedyOptimizer) else None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Tell how many epochs are planned."""
        if self.optimizer is not None:
            self.optimizer.begin(int(state.num_train_epochs))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Call the remedies, which may stop training."""
        if self.optimizer is not None and self.optimizer.end_epoch():
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Let remedies finish the model."""
        if self.optimizer is not None:
            self.optimizer.finish()


class ProbeCallback(_Callback):  # type: ignore[misc]
    """Takes a probe's measure every so many steps, without a trace in the training.

    Args:
        probe: The measure and its interval; the readings are in ``probe.readings``.
        subject: Makes the subject of the model that is trained, once per training, as in ``lambda
            model: Subject(model, "cross_entropy", {"input_ids": ids, "labels": labels})``.

    >>> import torch
    >>> from mindgap.measures import ParameterNorm
    >>> rows = {"input": torch.eye(4), "labels": torch.arange(4) % 2}
    >>> probe = Probe(measure=ParameterNorm(), every=10)
    >>> watch = ProbeCallback(probe, lambda model: Subject(model, "cross_entropy", rows))
    >>> watch.on_train_begin(None, None, None, model=nn.Linear(4, 2))
    >>> watch.subject.loss.name, probe.readings
    ('cross_entropy', [])
    """

    def __init__(self, probe: Probe, subject: Callable[[nn.Module], Subject]) -> None:
        super().__init__()
        self.probe, self.make = probe, subject

    def on_train_begin(
        self,
        args: Any,  # noqa: ARG002
        state: Any,  # noqa: ARG002
        control: Any,  # noqa: ARG002
        *,
        model: nn.Module,
        **_: Any,
    ) -> None:
        """Make the subject."""
        self.subject = self.make(model)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Take the measure if it is due."""
        self.probe.look(self.subject, state.global_step)


class MonitorCallback(_Callback):  # type: ignore[misc]
    """Lets a monitor watch the model that is trained; gradients may be accumulated or scaled.

    The loss is the one that the model returns for the last batch of a step.

    Args:
        monitor: A monitor without a model, as in ``Monitor(log="run.jsonl")``.
    """

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self.monitor = monitor
        self._loss: Tensor | None = None
        self._hook: Any = None

    def on_train_begin(
        self,
        args: Any,  # noqa: ARG002
        state: Any,
        control: Any,  # noqa: ARG002
        *,
        model: nn.Module,
        **_: Any,
    ) -> None:
        """Attach the monitor, and note the losses that the model returns."""
        self.monitor.attach(model, state.global_step)
        self._hook = model.register_forward_hook(self._note)

    def _note(self, model: nn.Module, inputs: Any, outputs: Any) -> None:  # noqa: ARG002
        loss = outputs.get("loss") if isinstance(outputs, dict) else None
        if isinstance(loss, Tensor) and model.training:
            self._loss = loss.detach()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Tell the monitor, before the gradients are cleared."""
        self.monitor.step(self._loss)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Remove all hooks and write the rest."""
        if self._hook is not None:
            self._hook.remove()
        self.monitor.close()


def _classes(outputs: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Logits and labels of a classification of whole samples, the only task that is known here."""
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    if not isinstance(labels, Tensor) or labels.is_floating_point() or logits.ndim != 2:
        raise InputError(
            "A remedy that changes losses must train a classifier with one class number per sample "
            f"in RemedyTrainer, got logits of shape {tuple(logits.shape)}. Override compute_loss "
            "and return optimizer.loss(loss, output, target)."
        )
    return logits, labels


def _bare(optimizer: Any) -> Any:
    """The optimizer without the wrapper that accelerate puts around it."""
    return (
        optimizer
        if isinstance(optimizer, WrappedOptimizer)
        else getattr(optimizer, "optimizer", optimizer)
    )
