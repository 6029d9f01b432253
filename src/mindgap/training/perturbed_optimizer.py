"""PerturbedOPT around any torch optimizer, for a training loop of one's own."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from mindgap.core import InputError
from mindgap.ops.perturbed.noise import POOL
from mindgap.ops.perturbed.step import Perturbation, PerturbedStep
from mindgap.training.wrapped_optimizer import WrappedOptimizer


class PerturbedOptimizer(WrappedOptimizer):
    """Steps ``base`` along the gradient at randomly perturbed weights (Algorithm 1 of Wang and others, 2018).

    Say where the gradient is taken, in one of two ways, and when an epoch is over::

        optimizer = PerturbedOptimizer(torch.optim.Adam(model.parameters()), gamma=10)
        for inputs, targets in loader:
            optimizer.zero_grad()
            with optimizer.perturbed():  # forward and backward at w + u; w comes back bit for bit
                loss(model(inputs), targets).backward()
            optimizer.step()  # or optimizer.step(closure), which needs no context
        optimizer.next_epoch()

    - The parameter groups and the state are those of ``base``: schedulers, ``zero_grad`` and
      ``add_param_group`` work as usual, and ``state_dict`` is that of ``base`` with one more key.
    - Gradients may be accumulated under one context or under several: until ``step`` the
        perturbation stays the same.
    - ``step`` sees ``.grad`` as ``base`` does: after clipping, and unscaled when a ``GradScaler``
      steps this object. A step that the scaler skips leaves all as it was.
    - Weights without gradient, frozen ones and sparse gradients are allowed; for a sparse one the
      wrapper keeps dense buffers, while ``base`` gets it as it is.
    - Noise depends on ``seed`` and the number of the step alone, so a resumed run goes on exactly,
      and the processes of a distributed run perturb alike.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = PerturbedOptimizer(torch.optim.SGD([weight], lr=0.1), seed=1)
    >>> with optimizer.perturbed():
    ...     weight.square().sum().backward()
    >>> optimizer.step()
    >>> weight.tolist()
    [0.800000011920929, 0.800000011920929]
    """

    key = "perturbation"

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
        settings = Perturbation(
            eta=eta, gamma=gamma, beta1=beta1, beta2=beta2, epsilon=epsilon, pool=pool
        )
        super().__init__(base)
        self.core = PerturbedStep(settings, seed)

    @contextlib.contextmanager
    def perturbed(self) -> Iterator[None]:
        """Perturb the weights for the forward and backward passes inside, and put them back bit for bit."""
        self.perturb()
        with self._restoring():
            yield

    @contextlib.contextmanager
    def _restoring(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.core.restore()  # and no step may follow
            raise
        self.restore()

    def perturb(self) -> None:
        """Begin what ``perturbed`` does; for a loop with hooks, which has no place for a context."""
        self.core.perturb(self.weights(), self._epoch)

    def restore(self) -> None:
        """End it. Weights that are at rest already are left alone."""
        if self.core.moved:
            self.core.restore()
            self._ready = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step along the gradient that the context left, or that ``closure`` leaves at perturbed weights."""
        loss = None
        if closure is not None:
            if not self.core.moved:  # a hook may have begun
                self.perturb()
            with torch.enable_grad(), self._restoring():
                loss = closure()
        if self.core.moved or not self._ready:
            raise InputError(
                "step must follow a backward pass at perturbed weights, got none. Run forward and "
                "backward inside "
                "`with optimizer.perturbed():`, or pass a closure."
            )
        self.core.observe()
        self._ready = False
        self.base.step()
        return loss

    def own_state(self) -> dict[str, Any]:
        """What Algorithm 1 remembers."""
        return self.core.state()

    def load_own_state(self, own: dict[str, Any]) -> None:
        """Go on exactly from there."""
        self.core.load(own)
        self.core.lay_out(self.weights())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "core": self.core}

    def __repr__(self) -> str:
        return f"PerturbedOptimizer({self.core.settings}, epoch={self._epoch}, base={self.base!r})"
