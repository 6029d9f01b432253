"""Remedies around any torch optimizer, for training loops other than :func:`mindgap.fit`."""

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Loss, Losses, Remedy, Subject, TrainingState, as_loss, integer
from mindgap.integrations.preparation import check_remedy, prepared_weights
from mindgap.integrations.sampler import EpochSampler
from mindgap.training.batches import chosen_order, epoch_order
from mindgap.training.wrapped_optimizer import WrappedOptimizer, scaled_rates

_Inputs = TypeVar("_Inputs", Tensor, tuple[Tensor, ...], dict[str, Tensor])

# The hooks for which a loop must make a call of its own, by the name of that call.
_CALLS = {"inputs": "inputs", "losses": "loss", "weights": "loss", "penalty": "loss"}


class RemedyOptimizer(WrappedOptimizer):
    """Steps ``base`` along the gradient that remedies leave.

    It calls the hooks of remedies as :func:`mindgap.fit` does: equal batches give equal weights.
    ``step`` takes a closure that clears the gradients, runs forward and backward, and returns the
    loss. The closure may run more than once per step. A loop that calls ``step`` without a closure
    calls ``gradient(closure)`` before.

    Some remedies need more of the loop than the gradient, and the error says what is missing. For a
    remedy that changes inputs or losses (mixup, noise, label smoothing, sample weights), write
    ``optimizer.loss("cross_entropy", model(optimizer.inputs(x)), y)`` in the closure. For one that
    acts after epochs or at the end (weight averaging, early stopping), write
    ``for epoch in optimizer.training(epochs)``; the callbacks of the integrations do this
    themselves. For one that chooses samples (two-phase training), give the DataLoader
    ``sampler=optimizer.sampler(len(data))``. Sample weights (class balance, active bias) need
    ``loss(…, index=places)``, which the integrations of Hugging Face and skorch pass themselves.
    Where gradients are scaled or accumulated over several batches, use
    :class:`~mindgap.training.perturbed_optimizer.PerturbedOptimizer` for PerturbedOPT.

    Args:
        base: The torch optimizer that takes the step.
        remedies: One remedy or several; their hooks are called in this order.
        model: The model that is trained. The callbacks of the integrations set it if it is None.
        seed: Fixes the noise of remedies.
        epochs: How many epochs are planned. The callbacks of the integrations set it if it is 0.
        validate: Gives the mean loss on held-out training data, for early stopping and annealing
            on a plateau.
        subject: Joins the model to its training data and loss, for remedies that look at the
            training data (class balance, dropout, variance weighting), as in
            ``lambda model: Subject(model, "cross_entropy", train)``.

    >>> from mindgap.remedies import SAM
    >>> model = nn.Linear(2, 1)
    >>> optimizer = RemedyOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), SAM(), model=model)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = model(torch.ones(1, 2)).square().sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item() >= 0
    True
    """

    key = "remedies"

    def __init__(
        self,
        base: torch.optim.Optimizer,
        remedies: Remedy | Sequence[Remedy],
        *,
        model: nn.Module | None = None,
        seed: int = 0,
        epochs: int = 0,
        validate: Callable[[], float] | None = None,
        subject: Callable[[nn.Module], Subject] | None = None,
    ) -> None:
        super().__init__(base)
        given = [remedies] if isinstance(remedies, Remedy) else list(remedies)
        self.remedies = [remedy for remedy in given if remedy.on]
        self.model, self.seed, self.epochs = (
            model,
            integer("seed", seed, 0),
            integer("epochs", epochs, 0),
        )
        self.validate, self.subject = validate, subject
        self.sample_weights: Tensor | None = None
        for remedy in self.remedies:
            check_remedy(remedy, validate, subject)
        self._prepared = False
        if model is not None:
            self._prepare()
        self.steps, self.memories = 0, [dict[str, Any]() for _ in self.remedies]
        self._called, self._driven, self._ordered = set[str](), False, 0

    def _prepare(self) -> None:
        """Let remedies look at the model and the training data, once, before the first step."""
        if self._prepared:
            return
        for remedy in self.remedies:
            if "prepare" in remedy.hooks():
                self.sample_weights = prepared_weights(
                    remedy, self.sample_weights, self.model, self.subject, self.epochs
                )
        self._prepared = True

    @property
    def weighs(self) -> bool:
        """Whether the loss must know the places of its samples in the training data."""
        return self.sample_weights is not None or self.writes("weights")

    def writes(self, *hooks: str) -> bool:
        """Return whether a remedy writes one of these hooks."""
        return any(remedy.hooks() & set(hooks) for remedy in self.remedies)

    def sampler(self, samples: int) -> EpochSampler:
        """Make the sampler of a DataLoader: in every epoch the samples that the remedies choose.

        Without such a remedy it is the order in which :func:`mindgap.fit` visits them.

        Args:
            samples: How many training samples there are.
        """
        return EpochSampler(self._order, integer("samples", samples, 1))

    def _order(self, samples: int, epoch: int) -> Tensor:
        states = [dataclasses.replace(state, epoch=epoch) for state in self._states()]
        order, self._ordered = chosen_order(self.remedies, states, samples), epoch
        return epoch_order(samples, self.seed, epoch) if order is None else order

    def inputs(self, inputs: _Inputs) -> _Inputs:
        """Return the inputs of a batch as the remedies want the model to see them.

        Args:
            inputs: A tensor, a tuple of tensors, or a dict of tensors.
        """
        self._called.add("inputs")
        found: Any = (inputs,) if isinstance(inputs, Tensor) else inputs
        for remedy, training in zip(self.remedies, self._states(), strict=True):
            found = remedy.inputs(training, found)
        return found[0] if isinstance(inputs, Tensor) else found  # type: ignore[no-any-return]

    def loss(
        self,
        loss: str | Loss | Callable[..., Tensor],
        output: Tensor,
        target: Tensor,
        index: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a batch with what the remedies change in it.

        Args:
            loss: A name, a torch loss, or any callable ``(output, target)``, as in a recipe.
            output: The model's output on the batch.
            target: The targets of the batch.
            index: Places of the samples in the training data, for remedies that remember each
                sample (active bias).
        """
        self._called.add("loss")
        function: Losses = as_loss(loss)
        pairs = list(zip(self.remedies, self._states(), strict=True))
        for remedy, training in pairs:
            function = functools.partial(remedy.losses, training, function)
        losses = function(output, target)
        factors = [weights.to(losses) for weights in self._weights(index)]
        for factor in factors:
            losses = losses * factor
        value, joint = losses.mean(), torch.stack(factors).prod(0) if factors else None
        for remedy, training in pairs:
            penalty = remedy.penalty(training, output, target, joint)
            value = value if penalty is None else value + penalty
        return value

    def _weights(self, index: Tensor | None) -> list[Tensor]:
        pairs = zip(self.remedies, self._states(), strict=True)
        asked = [(one, state) for one, state in pairs if "weights" in one.hooks()]
        if index is None and (asked or self.sample_weights is not None):
            raise InputError(
                "A remedy that weights samples must know their places in the training data, got "
                "index=None. Write optimizer.loss(…, index=places), or train with mindgap.fit."
            )
        if index is None:
            return []
        own = [] if self.sample_weights is None else [self.sample_weights[index.cpu()]]
        found = [remedy.weights(training, index) for remedy, training in asked]
        return own + [weights for weights in found if weights is not None]

    def training(self, epochs: int) -> Iterator[int]:
        """Run through the epochs of a training, calling the remedies after each and at the end.

        Leaving the loop by ``break`` leaves out the end.

        Args:
            epochs: How many there are; a remedy may stop training before.

        Returns:
            The numbers of the epochs, from 1.
        """
        self.begin(epochs)
        for epoch in range(1, epochs + 1):
            self.epoch = epoch
            yield epoch
            if self.end_epoch():
                break
        self.finish()

    def begin(self, epochs: int) -> None:
        """Tell that the loop will call ``end_epoch`` after every epoch and ``finish`` at the end.

        Args:
            epochs: How many epochs are planned; 0 if that is not known.
        """
        self.epochs, self._driven = self.epochs or epochs, True
        self._prepare()
        self._check_plan()

    def end_epoch(self) -> bool:
        """Call the remedies after an epoch; return whether training is to stop."""
        pairs = zip(self.remedies, self._states(), strict=True)
        stops = [remedy.after_epoch(training) for remedy, training in pairs]
        return any(stops)

    def finish(self) -> nn.Module:
        """Let the remedies finish the model, in place, and return it."""
        for remedy, training in zip(self.remedies, self._states(), strict=True):
            if remedy.finish(training) is not self.model:
                raise InputError(
                    f"A remedy of an optimizer must finish the model itself, got {remedy.name!r}, "
                    "which returned another. Train with mindgap.fit."
                )
        self._driven = False
        return self.model  # type: ignore[return-value]

    def _check_plan(self) -> None:
        late = [one for one in self.remedies if one.hooks() & {"after_epoch", "finish"}]
        if late and not self._driven:
            raise InputError(
                f"The remedy {late[0].name!r} must act after every epoch or at the end, got a loop "
                "that does not tell when that is. Write: for epoch in optimizer.training(epochs), "
                "or add the integration's RemedyCallback."
            )
        blind = [one for one in self.remedies if one.horizon and not self.epochs]
        if blind:
            raise InputError(
                f"The remedy {blind[0].name!r} must know how many epochs are planned, got none. "
                "Pass epochs=."
            )

    def _factor(self) -> float:
        pairs = zip(self.remedies, self._states(), strict=True)
        return math.prod(remedy.rate_factor(training) for remedy, training in pairs)

    def gradient(self, closure: Callable[[], Tensor]) -> Tensor:
        """Leave the gradient to step along in ``.grad`` and return the loss.

        Args:
            closure: Clears the gradients, runs forward and backward, and returns the loss.
        """
        self._prepare()
        self._check_plan()
        self._called.clear()
        for remedy, training in zip(self.remedies, self._states(), strict=True):
            closure = functools.partial(remedy.backward, training, closure)
        with torch.enable_grad(), scaled_rates(self.base, self._factor()):
            loss = closure()
        self._check_calls()
        self._ready = True
        return loss

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step along the remedies' gradient.

        Args:
            closure: As for ``gradient``, which is called with it; None if it was called before.
        """
        loss = None if closure is None else self.gradient(closure)
        if not self._ready:
            raise InputError(
                "step must follow a gradient that the remedies made, got none. Pass a closure, or "
                "call optimizer.gradient(closure) before."
            )
        self._ready = False
        with scaled_rates(self.base, self._factor()):
            self.base.step()
        for remedy, training in zip(self.remedies, self._states(), strict=True):
            remedy.after_step(training)
        self.steps += 1
        return loss

    def _check_calls(self) -> None:
        """Refuse a closure that leaves out what a remedy needs; it would act in part or not."""
        if self.writes("order") and self._ordered < self._epoch:
            raise InputError(
                "A remedy that chooses the samples of an epoch must be asked for them, got a loop "
                "that does not. Write DataLoader(data, batch_size, sampler=optimizer.sampler("
                "len(data)))."
            )
        if self.sample_weights is not None and "loss" not in self._called:
            raise InputError(
                "Sample weights must enter the loss of every batch, got a closure that does not "
                "call optimizer.loss. Write optimizer.loss(loss, output, target, index=places)."
            )
        for remedy in self.remedies:
            for hook, call in _CALLS.items():
                if hook in remedy.hooks() and call not in self._called:
                    raise InputError(
                        f"The remedy {remedy.name!r} must change the {hook} of every batch, got a "
                        f"closure that does not call optimizer.{call}. Write "
                        "optimizer.loss(loss, model(optimizer.inputs(x)), y)."
                    )

    def _states(self) -> list[TrainingState]:
        model = self.model
        if model is None:
            raise InputError(
                "The optimizer must know the model whose weights it trains, got none. Pass "
                "model=, or add the integration's RemedyCallback."
            )
        now = functools.partial(
            TrainingState,
            model=model,
            optimizer=self.base,
            epoch=self._epoch,
            epochs=self.epochs,
            seed=self.seed,
            validate=self.validate,
            subject=self.subject,
        )
        return [now(step=self.steps + 1, memory=memory) for memory in self.memories]

    def own_state(self) -> dict[str, Any]:
        """Return the remedies' memories and the number of steps."""
        return {
            "memories": self.memories,
            "steps": self.steps,
            "names": [remedy.name for remedy in self.remedies],
        }

    def load_own_state(self, own: dict[str, Any]) -> None:
        """Restore the memories, which must be those of the same remedies."""
        names = [remedy.name for remedy in self.remedies]
        if own["names"] != names:
            raise InputError(
                f"The state must be that of the remedies {names}, got one of {own['names']}. Make "
                "the optimizer with the remedies that it was saved with."
            )
        self.memories, self.steps = copy.deepcopy(own["memories"]), own["steps"]

    def __getstate__(self) -> dict[str, Any]:
        names = ["model", "remedies", "seed", "steps", "memories", "epochs", "validate", "subject"]
        names += ["sample_weights", "_called", "_driven", "_ordered", "_prepared"]
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in names}}

    def __repr__(self) -> str:
        return f"RemedyOptimizer({self.remedies}, epoch={self._epoch}, base={self.base!r})"
