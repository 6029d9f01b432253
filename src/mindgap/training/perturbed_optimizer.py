"""PerturbedOPT around any torch optimizer, for a training loop of one's own."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from mindgap.core import InputError, implements, validated
from mindgap.ops.perturbed.noise import POOL
from mindgap.ops.perturbed.step import Perturbation, PerturbedStep
from mindgap.training.wrapped_optimizer import WrappedOptimizer


@implements("P7", cites=("wang2018identifying",))
@validated
class PerturbedOptimizer(WrappedOptimizer):
    r"""Steps ``base`` along the gradient at randomly perturbed weights (PerturbedOPT).

    Formula: $w_{t+1} = \mathrm{OPT}\left(w_t, \nabla \hat L(w_t + u_t)\right), \qquad u_{t,i} \sim
    U(-\sigma_i, \sigma_i)$

    Reading: The widths σ are those of the remedy ``perturbed``: large where the loss is flat. This
    class is that remedy for a training loop of your own.

    Assumes: Squared gradients tell curvature, as for a likelihood near its optimum.

    Say where the gradient is taken, in one of two ways, and when an epoch is over::

        optimizer = PerturbedOptimizer(torch.optim.Adam(model.parameters()), gamma=10)
        for inputs, targets in loader:
            optimizer.zero_grad()
            with optimizer.perturbed():  # forward and backward at w + u; w is restored bit for bit
                loss(model(inputs), targets).backward()
            optimizer.step()  # or optimizer.step(closure), which needs no context
        optimizer.next_epoch()

    - The parameter groups and the state are those of ``base``: schedulers, ``zero_grad`` and
      ``add_param_group`` work as usual, and ``state_dict`` is that of ``base`` with one more key.
    - Gradients may be accumulated under one context or under several: until ``step`` the
      perturbation stays the same.
    - ``step`` sees ``.grad`` as ``base`` does: after clipping, and unscaled when a ``GradScaler``
      steps this object. A step that the scaler skips changes nothing.
    - Weights without gradient, frozen weights and sparse gradients are allowed. For a sparse
      gradient the wrapper keeps dense buffers, while ``base`` gets it as it is.
    - Noise depends on ``seed`` and the number of the step alone. So a resumed run continues
      exactly, and the processes of a distributed run draw the same perturbation.

    Args:
        base: The torch optimizer that takes the step.
        eta: η of the PAC-Bayes bound; a larger one perturbs curved directions less.
        gamma: The largest perturbation, as a part of the weight's size.
        beta1: How much of the running curvature a step keeps.
        beta2: Weights with a larger gradient are not perturbed; 0 turns perturbation off.
        epsilon: The largest perturbation of a weight that is zero.
        pool: How many places there are where a step may begin to read pre-drawn noise; 0 draws new
            noise at every step.
        seed: Fixes the noise.

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
        """Perturb the weights for the passes inside, and restore them bit for bit."""
        self.perturb()
        with self._restoring():
            yield

    @contextlib.contextmanager
    def _restoring(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # Also on Ctrl-C the weights must not stay moved. ``_ready`` stays false: the gradient
            # is not complete, so no step may follow.
            self.core.restore()
            raise
        self.restore()

    def perturb(self) -> None:
        """Begin what ``perturbed`` does, for a loop of callbacks without a place for it."""
        self.core.perturb(self.weights(), self._epoch)

    def restore(self) -> None:
        """End what ``perturb`` began; does nothing if the weights are not moved."""
        if self.core.moved:
            self.core.restore()
            self._ready = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step along the gradient at perturbed weights.

        Args:
            closure: Clears the gradient, runs forward and backward, and returns the loss; it is run
                at perturbed weights. None if ``perturbed`` left the gradient already.
        """
        loss = None
        if closure is not None:
            if not self.core.moved:  # a callback may have called ``perturb`` before
                self.perturb()
            with torch.enable_grad(), self._restoring():
                loss = closure()
        if self.core.moved or not self._ready:
            raise InputError(
                "step must follow a backward pass at perturbed weights, got none. Run forward and "
                "backward inside `with optimizer.perturbed():`, or pass a closure."
            )
        self.core.observe()
        self._ready = False
        self.base.step()
        return loss

    def own_state(self) -> dict[str, Any]:
        """Return what Algorithm 1 remembers between steps."""
        return self.core.state()

    def load_own_state(self, own: dict[str, Any]) -> None:
        """Restore it, and lay the buffers out for the present weights."""
        self.core.load(own)
        self.core.lay_out(self.weights())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "core": self.core}

    def __repr__(self) -> str:
        return f"PerturbedOptimizer({self.core.settings}, epoch={self._epoch}, base={self.base!r})"
