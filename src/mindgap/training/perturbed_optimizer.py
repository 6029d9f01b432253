"""PerturbedOPT around any torch optimizer, for a training loop of one's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from mindgap.core.arguments import integer
from mindgap.core.errors import InputError
from mindgap.ops.perturbed_step import Perturbation, PerturbedStep
from mindgap.ops.uniform_noise import POOL


class PerturbedOptimizer(torch.optim.Optimizer):
    """Steps ``base`` along the gradient at randomly perturbed weights (Algorithm 1 of Wang and others, 2018).

    Say where the gradient is taken, in one of two ways, and when an epoch is over::

        optimizer = PerturbedOptimizer(torch.optim.Adam(model.parameters()), gamma=10)
        for inputs, targets in loader:
            optimizer.zero_grad()
            with optimizer.perturbed():  # forward and backward at w + u; w comes back bit for bit
                loss(model(inputs), targets).backward()
            optimizer.step()  # or optimizer.step(closure), which needs no context
        optimizer.next_epoch()

    - The parameter groups and the state are those of ``base``: schedulers, ``zero_grad`` and ``add_param_group`` work
      as usual, and ``state_dict`` is that of ``base`` with one more key.
    - Gradients may be accumulated under one context or under several: until ``step`` the perturbation stays the same.
    - ``step`` sees ``.grad`` as ``base`` does: after clipping, and unscaled when a ``GradScaler`` steps this object. A
      step that the scaler skips leaves all as it was.
    - Weights without gradient, frozen ones and sparse gradients are allowed; for a sparse one the wrapper keeps dense
      buffers, while ``base`` gets it as it is.
    - Noise depends on ``seed`` and the number of the step alone, so a resumed run goes on exactly, and the processes
      of a distributed run perturb alike.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = PerturbedOptimizer(torch.optim.SGD([weight], lr=0.1), seed=1)
    >>> with optimizer.perturbed():
    ...     weight.square().sum().backward()
    >>> optimizer.step()
    >>> weight.tolist()
    [0.800000011920929, 0.800000011920929]
    """

    def __init__(
        self,
        base: torch.optim.Optimizer,
        *,
        eta: float = 0.01,
        gamma: float = 0.1,
        beta1: float = 0.999,
        beta2: float = 0.1,
        epsilon: float = 1e-5,
        pool: int = POOL,
        seed: int = 0,
    ) -> None:
        if not isinstance(base, torch.optim.Optimizer) or isinstance(base, torch.optim.LBFGS | PerturbedOptimizer):
            raise InputError(
                "The base must be a torch optimizer that takes one gradient a step, got "
                f"{type(base).__name__}. Pass, say, torch.optim.Adam(model.parameters())."
            )
        settings = Perturbation(eta=eta, gamma=gamma, beta1=beta1, beta2=beta2, epsilon=epsilon, pool=pool)
        super().__init__(base.param_groups, base.defaults)
        self.base, self.core = base, PerturbedStep(settings, seed)
        self._epoch, self._ready = 1, False
        self._share()

    def _share(self) -> None:
        self.param_groups, self.state, self.defaults = self.base.param_groups, self.base.state, self.base.defaults

    @property
    def epoch(self) -> int:
        """The number of the running epoch, from 1; the perturbation shrinks with its logarithm."""
        return self._epoch

    @epoch.setter
    def epoch(self, number: int) -> None:
        self._epoch = integer("epoch", number, 1)

    def next_epoch(self) -> None:
        """Say that an epoch is over."""
        self._epoch += 1

    @contextlib.contextmanager
    def perturbed(self) -> Iterator[None]:
        """Perturb the weights for the forward and backward passes inside, and put them back bit for bit."""
        with self.core.perturbed(self._weights(), self._epoch):
            yield
        self._ready = True

    def _weights(self) -> list[Tensor]:
        return [weight for group in self.param_groups for weight in group["params"]]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step along the gradient that the context left, or that ``closure`` leaves at perturbed weights."""
        loss = None
        if closure is not None:
            with torch.enable_grad(), self.perturbed():
                loss = closure()
        if not self._ready:
            raise InputError(
                "step must follow a backward pass at perturbed weights, got none. Run forward and backward inside "
                "`with optimizer.perturbed():`, or pass a closure."
            )
        self.core.observe()
        self._ready = False
        self.base.step()
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add weights; their first step is not perturbed."""
        if "base" in self.__dict__:
            self.base.add_param_group(param_group)
        else:  # called by the constructor of torch
            super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The state of the base, and under ``perturbation`` what Algorithm 1 remembers."""
        return {**self.base.state_dict(), "perturbation": {**self.core.state(), "epoch": self._epoch}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on exactly from a saved state."""
        if "perturbation" not in state_dict:
            raise InputError(
                "The state must be that of a PerturbedOptimizer, got one without 'perturbation'. Load the state of a "
                "bare optimizer into optimizer.base."
            )
        own = state_dict["perturbation"]
        self.base.load_state_dict({name: part for name, part in state_dict.items() if name != "perturbation"})
        self._share()
        self._epoch, self._ready = own["epoch"], False
        self.core.load(own)
        self.core.lay_out(self._weights())

    def __getstate__(self) -> dict[str, Any]:
        return {"base": self.base, "core": self.core, "_epoch": self._epoch, "_ready": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"defaults": state["base"].defaults, **state})
        self._share()

    def __repr__(self) -> str:
        return f"PerturbedOptimizer({self.core.settings}, epoch={self._epoch}, base={self.base!r})"
