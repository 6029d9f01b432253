"""Remedies, probes and monitors in the training loop of skorch."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from mindgap.core import InputError, Remedy, Subject
from mindgap.integrations.optional import base_class
from mindgap.integrations.preparation import Placed
from mindgap.integrations.remedy_optimizer import RemedyOptimizer
from mindgap.training.monitor.monitor import Monitor
from mindgap.training.perturbed_optimizer import PerturbedOptimizer
from mindgap.training.probe import Probe
from mindgap.training.wrapped_optimizer import WrappedOptimizer

_Callback: Any = base_class("skorch.callbacks", "Callback", "skorch")
Made = Callable[..., torch.optim.Optimizer]
_LOSS = ("losses", "weights", "penalty")
_BATCH = ("order", "inputs", *_LOSS)
_PLACED = ("inputs", "target", "place")  # parts of a batch with its places


def perturbed(base: Made, **settings: Any) -> Callable[..., PerturbedOptimizer]:
    """Make the ``optimizer`` of a net for PerturbedOPT.

    Args:
        base: The class of the optimizer that takes the steps. It gets the net's ``lr`` and
            ``optimizer__…``.
        **settings: Settings of :class:`~mindgap.training.perturbed_optimizer.PerturbedOptimizer`.

    >>> made = perturbed(torch.optim.SGD, gamma=2.0)([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    >>> made.core.settings.gamma, made.param_groups[0]["lr"]
    (2.0, 0.1)
    """
    return functools.partial(_perturbed, base, settings)


def remedied(
    base: Made, remedies: Remedy | Sequence[Remedy], *, seed: int = 0, **more: Any
) -> Callable[..., RemedyOptimizer]:
    """Make the ``optimizer`` of a net for SAM and other remedies.

    Add a :class:`RemedyCallback` to the net too, and for remedies that change inputs or losses a
    :class:`RemedyMixin` to its class.

    Args:
        base: The class of the optimizer that takes the steps. It gets the net's ``lr`` and
            ``optimizer__…``.
        remedies: One remedy or several; their hooks are called in this order.
        seed: Fixes the noise of remedies.
        **more: Further arguments of
            :class:`~mindgap.integrations.remedy_optimizer.RemedyOptimizer`, as ``validate``.

    >>> from mindgap.remedies import SAM
    >>> made = remedied(torch.optim.SGD, SAM())([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    >>> made.remedies, made.param_groups[0]["lr"]
    ([SAM(radius=0.05)], 0.1)
    """
    return functools.partial(_remedied, base, remedies, {"seed": seed, **more})


class RemedyMixin:
    """Lets remedies change inputs and losses: ``class Net(RemedyMixin, NeuralNetClassifier)``.

    Pass an optimizer of :func:`remedied` and a :class:`RemedyCallback`. Evaluation and the losses
    on validation data stay as they are.
    """

    _places: Tensor | None = None  # of the samples of this batch in the data given to fit

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """Read the samples that a remedy chooses, with their places if one weights them."""
        make, optimizer = super().get_iterator, getattr(self, "optimizer_", None)  # type: ignore[misc]
        if not training or not isinstance(optimizer, RemedyOptimizer):
            return make(dataset, training=training)
        if optimizer.weighs:
            dataset = Placed(dataset)
        loader = make(dataset, training=training)
        if not optimizer.writes("order"):
            return loader
        options = {"batch_size": loader.batch_size, "collate_fn": loader.collate_fn}
        return DataLoader(dataset, sampler=optimizer.sampler(len(dataset)), **options)

    def run_single_epoch(self, iterator: Any, training: bool, *more: Any, **named: Any) -> Any:
        """Run an epoch; remember the places of every batch and hand on the rest."""
        batches = self._noted(iterator) if training else iterator
        return super().run_single_epoch(batches, training, *more, **named)  # type: ignore[misc]

    def _noted(self, iterator: Any) -> Iterator[Any]:
        for batch in iterator:
            parts = list(batch) if isinstance(batch, tuple | list) else [batch]
            self._places = parts.pop() if len(parts) == len(_PLACED) else None
            yield parts if self._places is not None else batch

    def train_step_single(self, batch: Any, **fit_params: Any) -> Any:
        """Run a batch whose inputs the remedies changed."""
        optimizer = self.optimizer_  # type: ignore[attr-defined]
        inputs, target = batch
        if isinstance(optimizer, RemedyOptimizer) and optimizer.writes("inputs"):
            batch = optimizer.inputs(inputs), target
        return super().train_step_single(batch, **fit_params)  # type: ignore[misc]

    def get_loss(
        self,
        y_pred: Any,
        y_true: Any,
        X: Any = None,
        training: bool = False,
    ) -> Any:
        """Compute the loss that the remedies want, in training."""
        plain = super().get_loss  # type: ignore[misc]
        optimizer = getattr(self, "optimizer_", None)
        if not (training and isinstance(optimizer, RemedyOptimizer)) or not (
            optimizer.weighs or optimizer.writes(*_LOSS)
        ):
            return plain(y_pred, y_true, X=X, training=training)
        return optimizer.loss(
            lambda output, target: plain(output, target, training=training),
            y_pred,
            y_true,
            index=self._places,
        )


class RemedyCallback(_Callback):  # type: ignore[misc]
    """Tells the optimizer of :func:`perturbed` or :func:`remedied` the epochs and the module."""

    def on_train_begin(self, net: Any, **_: Any) -> None:
        """Tell the optimizer the module."""
        optimizer = net.optimizer_
        if not isinstance(optimizer, WrappedOptimizer):
            raise InputError(
                "The net's optimizer must come from mindgap.integrations.skorch, got "
                f"{type(optimizer).__name__}. Pass, say, optimizer=perturbed(torch.optim.Adam)."
            )
        if isinstance(optimizer, RemedyOptimizer):
            optimizer.model = net.module_
            optimizer.begin(len(net.history) + net.max_epochs)
            if (optimizer.weighs or optimizer.writes(*_BATCH)) and not isinstance(net, RemedyMixin):
                raise InputError(
                    "A remedy that changes inputs, losses or samples must go with a net that lets it, got "
                    f"{type(net).__name__}. Write class Net(RemedyMixin, {type(net).__name__})."
                )

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        """Let remedies act after the epoch; KeyboardInterrupt is how a callback of skorch stops."""
        if isinstance(net.optimizer_, RemedyOptimizer) and net.optimizer_.end_epoch():
            raise KeyboardInterrupt

    def on_train_end(self, net: Any, **_: Any) -> None:
        """Let remedies finish the module."""
        if isinstance(net.optimizer_, RemedyOptimizer):
            net.optimizer_.finish()

    def on_epoch_begin(self, net: Any, **_: Any) -> None:
        """Tell the optimizer the epoch, which counts from 1 over all calls of ``partial_fit``."""
        net.optimizer_.epoch = len(net.history)


class ProbeCallback(_Callback):  # type: ignore[misc]
    """Takes a probe's measure every so many steps, without a trace in the training.

    Args:
        probe: The measure and its interval; the readings are in ``probe.readings``.
        subject: Makes the subject of the module that is trained, once per training, as in ``lambda
            module: Subject(module, "cross_entropy", (inputs, targets))``.

    >>> import torch
    >>> from skorch import NeuralNetClassifier
    >>> from mindgap.measures import ParameterNorm
    >>> probe = Probe(measure=ParameterNorm(), every=2)
    >>> data = torch.eye(4), torch.arange(4) % 2
    >>> watch = ProbeCallback(probe, lambda module: Subject(module, "cross_entropy", data))
    >>> net = NeuralNetClassifier(
    ...     nn.Linear(4, 2),
    ...     criterion=nn.CrossEntropyLoss,
    ...     max_epochs=4,
    ...     train_split=None,
    ...     verbose=0,
    ...     callbacks=[watch],
    ... )
    >>> _ = net.fit(*data)
    >>> [step for step, _ in probe.readings]
    [2, 4]
    """

    def __init__(self, probe: Probe, subject: Callable[[nn.Module], Subject]) -> None:
        self.probe, self.subject = probe, subject

    def initialize(self) -> "ProbeCallback":
        """Count steps from zero."""
        self.steps_ = 0
        return self

    def on_train_begin(self, net: Any, **_: Any) -> None:
        """Make the subject."""
        self.subject_ = self.subject(net.module_)

    def on_batch_end(self, net: Any, batch: Any = None, training: bool = False, **_: Any) -> None:  # noqa: ARG002
        """Take the measure if it is due."""
        if training:
            self.steps_ += 1
            self.probe.look(self.subject_, self.steps_)


class MonitorCallback(_Callback):  # type: ignore[misc]
    """Lets a monitor watch the module that is trained.

    Args:
        monitor: A monitor without a model, as in ``Monitor(log="run.jsonl")``.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def on_train_begin(self, net: Any, **_: Any) -> None:
        """Attach the monitor; ``partial_fit`` counts on."""
        again = bool(net.history) and self.monitor.steps > 0
        self.monitor.attach(net.module_, self.monitor.steps if again else 0)

    def on_batch_end(
        self,
        net: Any,  # noqa: ARG002
        batch: Any = None,  # noqa: ARG002
        training: bool = False,
        loss: Any = None,
        **_: Any,
    ) -> None:
        """Tell the monitor of the step."""
        if training:
            self.monitor.step(loss)

    def on_train_end(self, net: Any, **_: Any) -> None:  # noqa: ARG002
        """Remove all hooks and write the rest."""
        self.monitor.close()


def _perturbed(
    base: Made, settings: dict[str, Any], parameters: Any, **options: Any
) -> PerturbedOptimizer:
    return PerturbedOptimizer(base(parameters, **options), **settings)


def _remedied(
    base: Made,
    remedies: Remedy | Sequence[Remedy],
    more: dict[str, Any],
    parameters: Any,
    **options: Any,
) -> RemedyOptimizer:
    return RemedyOptimizer(base(parameters, **options), remedies, **more)
