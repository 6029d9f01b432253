"""PerturbedOPT: gradients at randomly perturbed weights."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mindgap.core import Remedy, TrainingState, option
from mindgap.ops.perturbed.noise import POOL
from mindgap.ops.perturbed.step import Perturbation, PerturbedStep

# The buffers of running trainings. The state's memory holds all that an exact resume needs. A core
# that does not own the very tensors of that memory is outdated: a checkpoint was read, or an epoch
# taken back. It is rebuilt from the memory.
_RUNNING: weakref.WeakKeyDictionary[torch.optim.Optimizer, PerturbedStep] = (
    weakref.WeakKeyDictionary()
)


class Perturbed(Remedy):
    r"""Takes every gradient at weights moved at random, further where the loss is flat.

    Formula: $w_{t+1} = \mathrm{OPT}\left(w_t, \nabla \hat L(w_t + u_t)\right), \quad u_{t,i} \sim
    U(-\sigma_i, \sigma_i), \quad \sigma_i = \min\left(\frac{1}{\ln(1+e) \sqrt{\eta (h_i + \rho_i
    \kappa_i)}}, \kappa_i\right) 1_{|g_i| < \beta_2}, \quad \kappa_i = \frac{\gamma
    |w_{t-1,i}|}{\ln(1+e)} + \epsilon, \quad \rho_i = \frac{|h_{t,i} - h_{t-1,i}|}{\lVert w_t -
    w_{t-1} \rVert}$

    Reading: h is the running mean of squared gradients, an estimate of the curvature, and e the
    epoch. A large γ perturbs more, up to a weight's own size and beyond. A large η perturbs curved
    directions less. Weights whose gradient is not below β₂ are not moved, so β₂ = 0 turns it off.
    The training loss rises, as under dropout, and the curve ``running_loss`` shows the loss at
    perturbed weights. Each step takes one forward and backward pass. The paper gives no η; its
    experiments use η = 0.01 and γ = 10 with Adam, η = 100 and γ = 1 with SGD.

    Assumes: Squared gradients tell curvature, as for a likelihood near its optimum.

    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 4, 1)), train=(inputs, inputs**2), loss="mse")
    >>> fit(recipe, [Perturbed(gamma=10)]).epochs
    20
    """

    method = ("P7",)
    cites = ("wang2018identifying",)
    strength = "beta2"
    treats = frozenset({"over-fitting", "sharp minimum"})
    cost = 1.3

    eta: float = option(
        0.01, help="η of the PAC-Bayes bound: a larger one perturbs curved directions less", above=0
    )
    gamma: float = option(0.1, help="largest perturbation, as a part of the weight's size", low=0)
    beta1: float = option(0.999, help="how much of the curvature a step keeps", low=0, below=1)
    beta2: float = option(
        0.1, help="weights with a larger gradient are not perturbed; 0 is off", low=0
    )
    epsilon: float = option(1e-5, help="largest perturbation of a weight that is zero", low=0)
    pool: int = option(
        POOL, help="places where a step may begin to read pre-drawn noise; 0 draws afresh", low=0
    )

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        """Run the closure at perturbed weights."""
        core = self._core(state.optimizer, state.memory, state.seed)
        weights = [weight for group in state.optimizer.param_groups for weight in group["params"]]
        loss = core.gradient(closure, weights, state.epoch)
        state.memory.update(core.state())
        return loss

    def _core(
        self, optimizer: torch.optim.Optimizer, memory: dict[str, Any], seed: int
    ) -> PerturbedStep:
        core = _RUNNING.get(optimizer)
        if core is None or not memory or not _holds(core, memory):
            core = _RUNNING[optimizer] = PerturbedStep(Perturbation(**self.parameters), seed)
            if memory:
                core.load(dict(memory))
        return core


def _holds(core: PerturbedStep, memory: dict[str, Any]) -> bool:
    """Whether the memory holds this core's own tensors."""
    mine, its = core.state()["blocks"], memory["blocks"]
    return len(mine) == len(its) and all(
        a["curvature"] is b["curvature"] for a, b in zip(mine, its, strict=True)
    )
