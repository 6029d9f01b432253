"""The base of optimizers that wrap another: its groups, its state, and an epoch."""

import abc
import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from mindgap.core import InputError, integer


@contextlib.contextmanager
def scaled_rates(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """Multiply all learning rates of an optimizer, and give it its own back at the end.

    Args:
        optimizer: Its parameter groups carry their learning rate as ``lr``.
        factor: The factor; one changes nothing.

    >>> sgd = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5)
    >>> with scaled_rates(sgd, 0.1):
    ...     print(sgd.param_groups[0]["lr"])
    0.05
    >>> sgd.param_groups[0]["lr"]
    0.5
    """
    own = [group["lr"] for group in optimizer.param_groups] if factor != 1 else []
    for group, rate in zip(optimizer.param_groups, own, strict=False):
        group["lr"] = rate * factor
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, own, strict=False):
            group["lr"] = rate


class WrappedOptimizer(torch.optim.Optimizer, abc.ABC):
    """An optimizer whose parameter groups and state are those of ``base``.

    Schedulers, ``zero_grad`` and ``add_param_group`` work as usual, and ``state_dict`` is that of
    ``base`` with one more key. Subclasses name the key and write ``step``, ``own_state`` and
    ``load_own_state``.

    Args:
        base: A torch optimizer that takes one gradient per step, so not L-BFGS.
    """

    key: ClassVar[str]

    def __init__(self, base: torch.optim.Optimizer) -> None:
        if not isinstance(base, torch.optim.Optimizer) or isinstance(
            base, torch.optim.LBFGS | WrappedOptimizer
        ):
            raise InputError(
                "The base must be a torch optimizer that takes one gradient per step, got "
                f"{type(base).__name__}. Pass, say, torch.optim.Adam(model.parameters())."
            )
        super().__init__(base.param_groups, base.defaults)
        self.base = base
        self._epoch, self._ready = 1, False
        self._share()

    def _share(self) -> None:
        """Use the very containers of the base, so that schedulers and scalers act on both."""
        self.param_groups, self.state, self.defaults = (
            self.base.param_groups,
            self.base.state,
            self.base.defaults,
        )

    @abc.abstractmethod
    def own_state(self) -> dict[str, Any]:
        """Return what must be saved besides the state of the base."""

    @abc.abstractmethod
    def load_own_state(self, own: dict[str, Any]) -> None:
        """Restore what ``own_state`` returned."""

    @property
    def epoch(self) -> int:
        """The number of the running epoch, from 1."""
        return self._epoch

    @epoch.setter
    def epoch(self, number: int) -> None:
        self._epoch = integer("epoch", number, 1)

    def next_epoch(self) -> None:
        """Tell the optimizer that an epoch is over."""
        self._epoch += 1

    def weights(self) -> list[Tensor]:
        """List all weights, in the order of the parameter groups."""
        return [weight for group in self.param_groups for weight in group["params"]]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add weights to the base."""
        if "base" in self.__dict__:
            self.base.add_param_group(param_group)
        else:  # torch's constructor calls this before there is a base
            super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the base, and under one more key what this optimizer remembers."""
        return {**self.base.state_dict(), self.key: {**self.own_state(), "epoch": self._epoch}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a saved state; training resumes exactly."""
        if self.key not in state_dict:
            raise InputError(
                f"The state must be that of a {type(self).__name__}, got one without "
                f"{self.key!r}. Load the state of a bare optimizer into optimizer.base."
            )
        self.base.load_state_dict(
            {name: part for name, part in state_dict.items() if name != self.key}
        )
        self._share()
        self._epoch, self._ready = state_dict[self.key]["epoch"], False
        self.load_own_state(state_dict[self.key])

    def __getstate__(self) -> dict[str, Any]:
        return {"base": self.base, "_epoch": self._epoch, "_ready": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"defaults": state["base"].defaults, **state})
        self._share()
