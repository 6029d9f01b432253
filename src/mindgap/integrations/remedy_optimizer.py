"""Remedies around any torch optimizer, for training loops other than :func:`mindgap.fit`."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import InputError, MissingExtraError, Remedy, TrainingState, integer, require
from mindgap.training.wrapped_optimizer import WrappedOptimizer

# The hooks for which a loop must hand over more than the gradient.
_ELSEWHERE = ("prepare", "weights", "penalty", "after_epoch", "finish")


class RemedyOptimizer(WrappedOptimizer):
    """Steps ``base`` along the gradient that remedies leave.

    It takes SAM, ASAM, PerturbedOPT, gradient clipping and weight decay, and calls their hooks as
    :func:`mindgap.fit` does: equal batches give equal weights. ``step`` takes a closure that clears
    the gradients, runs forward and backward, and returns the loss. The closure may run more than
    once per step. A loop that calls ``step`` without a closure calls ``gradient(closure)`` before.

    A remedy that needs more of the loop than the gradient (dropout, early stopping, sample weights)
    is refused. Where gradients are scaled or accumulated over several batches, use
    :class:`~mindgap.training.perturbed_optimizer.PerturbedOptimizer` for PerturbedOPT.

    Args:
        base: The torch optimizer that takes the step.
        remedies: One remedy or several; their hooks are called in this order.
        model: The model that is trained. The callbacks of the integrations set it if it is None.
        seed: Fixes the noise of remedies.

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
    ) -> None:
        super().__init__(base)
        given = [remedies] if isinstance(remedies, Remedy) else list(remedies)
        self.remedies = [_checked(remedy) for remedy in given if remedy.on]
        self.model, self.seed = model, integer("seed", seed, 0)
        self.steps, self.memories = 0, [dict[str, Any]() for _ in self.remedies]

    def gradient(self, closure: Callable[[], Tensor]) -> Tensor:
        """Leave the gradient to step along in ``.grad`` and return the loss.

        Args:
            closure: Clears the gradients, runs forward and backward, and returns the loss.
        """
        for remedy, training in zip(self.remedies, self._states(), strict=True):
            closure = functools.partial(remedy.backward, training, closure)
        with torch.enable_grad():
            loss = closure()
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
        self.base.step()
        for remedy, training in zip(self.remedies, self._states(), strict=True):
            remedy.after_step(training)
        self.steps += 1
        return loss

    def _states(self) -> list[TrainingState]:
        model = self.model
        if model is None:
            raise InputError(
                "The optimizer must know the model whose weights it trains, got none. Pass "
                "model=, or add the integration's RemedyCallback."
            )
        now = functools.partial(
            TrainingState, model=model, optimizer=self.base, epoch=self._epoch, seed=self.seed
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
        names = ("model", "remedies", "seed", "steps", "memories")
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in names}}

    def __repr__(self) -> str:
        return f"RemedyOptimizer({self.remedies}, epoch={self._epoch}, base={self.base!r})"


def _checked(remedy: Remedy) -> Remedy:
    more = [hook for hook in _ELSEWHERE if hook in remedy.hooks()]
    if more:
        raise InputError(
            f"A remedy of an optimizer must change the gradient alone, got {remedy.name!r}, which "
            f"also needs {' and '.join(more)}. Train with mindgap.fit, which calls all hooks."
        )
    return remedy


def base_class(module: str, name: str, extra: str) -> Any:
    """Return a class of an optional package, to inherit from.

    If the package is missing, it is a class that says so when an object is made.

    Args:
        module: The module that holds the class.
        name: The name of the class.
        extra: The extra of mindgap that installs the package.

    >>> base_class("collections", "OrderedDict", "none").__name__
    'OrderedDict'
    >>> base_class("no_such_package", "Thing", "tools")()
    Traceback (most recent call last):
    mindgap.core.errors.MissingExtraError: This needs the package 'no_such_package', which is not installed. Run: ...
    """
    try:
        return getattr(require(module, extra), name)
    except MissingExtraError as error:
        text = str(error)

    class Missing:
        """Takes the place of the package's class."""

        def __init__(self, *_: Any, **__: Any) -> None:
            raise MissingExtraError(text)

    return Missing
