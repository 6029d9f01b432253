"""fit: the plain training loop, which calls the hooks of remedies."""

import contextlib
import copy
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mindgap.core import (
    Batch,
    CheckpointError,
    InputError,
    Inputs,
    Losses,
    NotFiniteError,
    Progress,
    Recipe,
    Remedy,
    Split,
    Subject,
    TrainingState,
    Which,
    as_loss,
    checked_call,
    integer,
    same_environment,
    seeded,
    shown,
    typed,
    validated,
)
from mindgap.training import checkpoint as checkpoints
from mindgap.training.batches import batches_of, chosen_order, epoch_seed, hold_out
from mindgap.training.fitted import Fitted, training_subject
from mindgap.training.probe import Probe
from mindgap.training.wrapped_optimizer import scaled_rates

if TYPE_CHECKING:  # whoever trains without a monitor need not load it
    from mindgap.training.monitor.monitor import Monitor


@validated
@same_environment()
def fit(
    recipe: Recipe,
    remedies: Sequence[Remedy] = (),
    *,
    seed: int = 0,
    probes: Sequence[Probe] = (),
    monitor: "Monitor | None" = None,
    checkpoint: str | Path | None = None,
    evaluate_every: int = 1,
    progress: bool = False,
) -> Fitted:
    """Train a recipe and return the model with its curves.

    Training depends on the recipe, the remedies and the seed alone. If the loss becomes NaN or
    infinite, or on Ctrl-C, training stops and the weights are those of the last complete epoch.

    Args:
        recipe: Model, data, loss and optimizer.
        remedies: Changes of training; their hooks are called in this order.
        seed: Fixes initial weights, batches and all noise.
        probes: Measures to take while the model is trained.
        monitor: Watches gradients, weights, updates and activations of every layer.
        checkpoint: A file that is written after every epoch. If it exists, training resumes from
            it, and the result is bit-identical to an uninterrupted run. A checkpoint of another
            run is refused, and the error says what differs: model, data, sample weights, loss,
            remedies, optimizer, settings or seed. Only the number of epochs and the name may.
        evaluate_every: How often, in epochs, the curves get losses and errors in evaluation mode;
            0 is never.
        progress: Whether to show a progress bar.

    Returns:
        The trained model, its curves, its initial weights, and why it stopped.

    >>> from mindgap.nets import MLP
    >>> from mindgap.remedies import WeightDecay
    >>> inputs = torch.linspace(-1, 1, 16)[:, None]
    >>> recipe = Recipe(model=lambda: MLP((1, 8, 1)), train=(inputs, inputs**2), loss="mse")
    >>> fitted = fit(recipe, [WeightDecay(decay=0.1)], seed=1)
    >>> fitted.epochs, fitted.history[-1]["train_loss"] < fitted.history[0]["train_loss"]
    (20, True)
    """
    integer("evaluate_every", evaluate_every, 0)
    if monitor is not None and not hasattr(monitor, "attach"):
        raise InputError(
            f"monitor must be a Monitor, got {shown(monitor)}. Write fit(recipe, monitor=Monitor())."
        )
    active = [remedy for remedy in remedies if remedy.on]
    loop = Loop(recipe, active, seed, tuple(probes), evaluate_every, monitor)
    path = None if checkpoint is None else Path(checkpoint)
    # It describes the model before its first step, and reads all data: once, and only if needed.
    identity = {} if path is None else loop.identity()
    if path is not None and path.exists():
        loop.load(_belonging(path, identity))
    bar = Progress(loop.recipe.epochs, done=loop.epoch, unit="epoch", shown=progress)
    with bar, loop.monitored():
        while loop.epoch < loop.recipe.epochs and not loop.stopped:
            loop.advance()
            if path is not None and not loop.broken:
                checkpoints.save(path, {"identity": identity, **loop.state()})
            bar.advance(_shown(loop.history))
    return loop.fitted()


def _shown(history: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The numbers of the last epoch that a progress bar shows."""
    last = history[-1] if history else {}
    return {name: value for name, value in last.items() if name in ("running_loss", "test_error")}


def _belonging(path: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Read a checkpoint, and refuse one of another run with what differs."""
    content = checkpoints.load(path)
    wrong = checkpoints.differences(content.get("identity", {}), identity)
    if wrong:
        raise CheckpointError(
            f"The checkpoint {str(path)!r} must belong to this recipe, these remedies and this "
            f"seed, got one of another run, which differs in: {', '.join(wrong)}. Pass another "
            "path or delete it."
        )
    return content


class Loop:
    """The state of one training run, advanced one epoch at a time."""

    def __init__(
        self,
        recipe: Recipe,
        remedies: Sequence[Remedy],
        seed: int,
        probes: tuple[Probe, ...],
        evaluate_every: int,
        monitor: "Monitor | None" = None,
    ) -> None:
        self.monitor = monitor
        share = recipe.validation or max((remedy.validation for remedy in remedies), default=0.0)
        self.recipe, self.validation = hold_out(recipe.replace(validation=share), seed)
        for remedy in remedies:
            self.recipe = remedy.prepare(self.recipe, self.recipe.splits()[0])
        self.train, self.test = self.recipe.splits()
        self.remedies, self.seed, self.probes, self.evaluate_every = (
            remedies,
            seed,
            probes,
            evaluate_every,
        )
        self.model = self.recipe.build(seed)
        self.initial = _copy(self.model.state_dict())
        self.loss = as_loss(self.recipe.loss)
        self.optimizer = self.recipe.optimize(
            [p for p in self.model.parameters() if p.requires_grad]
        )
        self.schedule = (
            None if self.recipe.schedule is None else self.recipe.schedule(self.optimizer)
        )
        self.subject = Subject(
            self.model,
            self.loss,
            self.train,
            self.test,
            initial=self.initial,
            task=recipe.task,
            name=recipe.name,
        )
        self.history: list[dict[str, float]] = []
        self.epoch, self.step, self.stopped, self.broken = 0, 0, "", False
        self.states = [self._training_state() for _ in remedies]
        self.sample_weights = _checked_weights(self.recipe.weights(self.train), self.train)
        first = self.train.take(torch.arange(1)).inputs
        for remedy in remedies:
            remedy.check(self.subject.task, first)

    def _training_state(self) -> TrainingState:
        validate = (
            None
            if self.validation is None
            else functools.partial(mean_loss, self.subject, self.validation)
        )
        subject = functools.partial(training_subject, self.subject)
        return TrainingState(
            model=self.model,
            optimizer=self.optimizer,
            epochs=self.recipe.epochs,
            seed=self.seed,
            validate=validate,
            subject=subject,
        )

    def monitored(self) -> contextlib.AbstractContextManager[Any]:
        """Attach the monitor, if there is one, until the end of a block."""
        if self.monitor is None:
            return contextlib.nullcontext()
        return self.monitor.attach(self.model, self.step)

    def advance(self) -> None:
        """Run one epoch; on divergence or Ctrl-C, restore the end of the epoch before."""
        kept = self._kept()
        try:
            # Every epoch begins from a seed of its own, not from where the last one left the
            # generators. So a checkpoint need not hold their states for an exact resume.
            with seeded(epoch_seed(self.seed, self.epoch + 1)):
                with self._scaled_rates():
                    self._epoch()
                self._end_epoch()
        except KeyboardInterrupt:
            self._back(kept, f"interrupted in epoch {self.epoch + 1}")
        except Diverged as trouble:
            self._back(
                kept,
                f"diverged: {trouble}; the weights are those from the end of epoch {self.epoch}",
            )

    def _kept(self) -> dict[str, Any]:
        """A copy of the state; the live one holds the very tensors that the epoch changes."""
        state = self.state()
        moving = {
            name: copy.deepcopy(state[name])
            for name in ("model", "optimizer", "schedule", "memories")
        }
        return {**state, **moving, "history": self.history.copy()}

    def _back(self, kept: dict[str, Any], why: str) -> None:
        self.load(kept)
        self.stopped, self.broken = why, True

    @contextlib.contextmanager
    def _scaled_rates(self) -> Iterator[None]:
        """Multiply the learning rates of an epoch by the remedies' factors.

        The optimizer has its own rates back at the end, so a schedule counts on from them.
        """
        self._now(self.epoch + 1)
        pairs = zip(self.remedies, self.states, strict=True)
        factor = math.prod(remedy.rate_factor(training) for remedy, training in pairs)
        with scaled_rates(self.optimizer, factor):
            yield

    def _now(self, epoch: int) -> None:
        for training in self.states:
            training.epoch, training.step = epoch, self.step

    def _epoch(self) -> None:
        self.model.train()
        total, number = 0.0, self.epoch + 1
        for index in self._batches(number):
            loss = self._step(self.train.take(index), number)
            total += loss * len(index)
        try:
            evaluated = self._evaluated(number)
        except NotFiniteError as error:  # the loss was finite, and the last step went too far
            raise Diverged(
                f"weights or outputs became NaN or infinite in epoch {number}"
            ) from error
        row = {"epoch": float(number), "running_loss": total / len(self.train), **evaluated}
        self.history.append(row)
        self.epoch = number

    def _batches(self, number: int) -> Sequence[Tensor]:
        """The places of the epoch's samples, as a remedy chooses them or all."""
        samples, size = len(self.train), self.recipe.batch_size
        order = chosen_order(self.remedies, self.states, samples)
        return batches_of(samples, size, self.seed, number) if order is None else order.split(size)

    def _end_epoch(self) -> None:
        if self.schedule is not None:
            self.schedule.step()
        for remedy, training in zip(self.remedies, self.states, strict=True):
            if remedy.after_epoch(training):
                self.stopped = f"{remedy.name} after epoch {self.epoch}"

    def _step(self, batch: Batch, epoch: int) -> float:
        self.step += 1
        self._now(epoch)
        loss = float(self._nested(batch)())
        if not math.isfinite(loss):
            self._tell_monitor(loss)
            raise Diverged(f"the loss became {loss} in epoch {epoch}, step {self.step}")
        self.optimizer.step()
        for remedy, training in zip(self.remedies, self.states, strict=True):
            remedy.after_step(training)
        for probe in self.probes:
            probe.look(self.subject, self.step)
        self._tell_monitor(loss)
        return loss

    def _tell_monitor(self, loss: float) -> None:
        if self.monitor is not None:
            self.monitor.step(loss)

    def _nested(self, batch: Batch) -> Callable[[], Tensor]:
        """Wrap the closure in every remedy's ``backward``; the first remedy is the innermost."""
        closure: Callable[[], Tensor] = functools.partial(self._closure, batch)
        for remedy, training in zip(self.remedies, self.states, strict=True):
            closure = functools.partial(remedy.backward, training, closure)
        return closure

    def _closure(self, batch: Batch) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        like, inputs = next(self.model.parameters()), batch.inputs
        loss: Losses = self.loss
        for remedy, training in zip(self.remedies, self.states, strict=True):
            inputs = remedy.inputs(training, inputs)
            loss = functools.partial(remedy.losses, training, loss)
        output, target = (
            _forward(self.model, inputs, like),
            typed(batch.target, self.subject.task, like),
        )
        losses = loss(output, target)
        factors = [weights.to(losses) for weights in self._weights(batch.index)]
        for factor in factors:
            losses = losses * factor
        value, weights = losses.mean(), torch.stack(factors).prod(0) if factors else None
        for remedy, training in zip(self.remedies, self.states, strict=True):
            penalty = remedy.penalty(training, output, target, weights)
            value = value if penalty is None else value + penalty
        value.backward()
        return value.detach()

    def _weights(self, index: Tensor) -> list[Tensor]:
        own = [] if self.sample_weights is None else [self.sample_weights[index]]
        found = [
            remedy.weights(training, index)
            for remedy, training in zip(self.remedies, self.states, strict=True)
        ]
        return own + [weights for weights in found if weights is not None]

    def _evaluated(self, epoch: int) -> dict[str, float]:
        if not self.evaluate_every or (epoch % self.evaluate_every and epoch != self.recipe.epochs):
            return {}
        whiches: tuple[Which, ...] = ("train",) if self.test is None else ("train", "test")
        row = {f"{which}_loss": self.subject.mean_loss(which) for which in whiches}
        if self.subject.task != "regression":
            row |= {f"{which}_error": self.subject.mean_error(which) for which in whiches}
        if self.validation is not None:
            row["validation_loss"] = mean_loss(self.subject, self.validation)
        return row

    def identity(self) -> dict[str, Any]:
        """Describe all that a checkpoint must agree with; the number of epochs may grow."""
        data = {
            "training data": self.train,
            "validation data": self.validation,
            "test data": self.test,
        }
        return checkpoints.identity(
            self.recipe,
            self.remedies,
            self.seed,
            model=self.model,
            loss=self.loss,
            task=self.subject.task,
            optimizer=self.optimizer,
            schedule=self.schedule,
            data=data,
            sample_weights=self.sample_weights,
        )

    def state(self) -> dict[str, Any]:
        """Return all that an exact resume needs."""
        return {
            "model": self.model.state_dict(),
            "initial": self.initial,
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "memories": [training.memory for training in self.states],
            "history": self.history,
            "epoch": self.epoch,
            "step": self.step,
            "stopped": self.stopped,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        for training, memory in zip(self.states, state["memories"], strict=True):
            training.memory = memory
        self.initial, self.history = state["initial"], list(state["history"])
        self.epoch, self.step, self.stopped = state["epoch"], state["step"], state["stopped"]

    def fitted(self) -> Fitted:
        """Let the remedies finish, and return the model."""
        model = self.model
        for remedy, training in zip(self.remedies, self.states, strict=True):
            training.model = model
            model = remedy.finish(training)
        return Fitted(
            model=model.eval(),
            history=tuple(self.history),
            initial=self.initial,
            recipe=self.recipe,
            seed=self.seed,
            epochs=self.epoch,
            stopped=self.stopped,
            remedies=tuple(remedy.name for remedy in self.remedies),
        )


class Diverged(Exception):  # noqa: N818  (an event of the loop, caught by it)
    """The loss became NaN or infinite."""


def mean_loss(subject: Subject, split: Split) -> float:
    """Compute the mean loss of the subject's model on other data than its own."""
    other = Subject(subject.model, subject.loss, split, task=subject.task, check_determinism=False)
    return other.mean_loss("train")


def _forward(model: torch.nn.Module, inputs: Inputs, like: Tensor) -> Tensor:
    try:
        return checked_call(model, inputs, like)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise InputError(
            "Batch normalization must see at least two samples per batch, got a last batch of "
            "one. Change the batch size."
        ) from error


def _checked_weights(weights: Tensor | None, train: Split) -> Tensor | None:
    if weights is None:
        return None
    if weights.shape != (len(train),) or not torch.isfinite(weights).all() or (weights < 0).any():
        raise InputError(
            f"sample_weights must be {len(train)} finite numbers that are not negative, got the "
            f"shape {tuple(weights.shape)}. Give one weight per training sample."
        )
    return weights


def _copy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}
