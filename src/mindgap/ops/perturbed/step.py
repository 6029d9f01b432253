"""PerturbedOPT: leave the gradient at randomly perturbed weights in ``.grad``."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from mindgap.core import InputError, implements, integer, option
from mindgap.core.spec import check
from mindgap.ops.perturbed.block import BUFFERS, Numbers, PerturbedBlock, block_of
from mindgap.ops.perturbed.noise import POOL, mixed

Loss = TypeVar("Loss")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perturbation:
    """The parameters of Algorithm 1, named as there, and how noise is drawn.

    >>> Perturbation(eta=0.0)
    Traceback (most recent call last):
    mindgap.core.errors.InputError: eta must be a number above 0, got 0.0. It is: η of the PAC-Bayes \
bound: a larger one perturbs curved directions less.
    """

    eta: float = option(
        0.01, help="η of the PAC-Bayes bound: a larger one perturbs curved directions less", above=0
    )
    gamma: float = option(0.1, help="largest perturbation, relative to the weight", low=0)
    beta1: float = option(0.999, help="how much of the curvature a step keeps", low=0, below=1)
    beta2: float = option(
        0.1, help="weights with a larger gradient are not perturbed; 0 perturbs none", low=0
    )
    epsilon: float = option(1e-5, help="largest perturbation of a weight that is zero", low=0)
    pool: int = option(
        POOL, help="size of the pool of pre-drawn noise; 0 draws new noise at every step", low=0
    )

    def __post_init__(self) -> None:
        check(self)


@implements("P7", cites=("wang2018identifying",))
class PerturbedStep:
    r"""Perturb weights as Algorithm 1 (PerturbedOPT) does, and keep its state between steps.

    Formula: $\sigma_i = \min\left( \frac{1}{\ln(1 + t) \sqrt{\eta (h_i + \rho_i \kappa_i)}},
    \kappa_i \right) [\, |g_i| < \beta_2 \,], \quad u_i \sim U(-\sigma_i, \sigma_i), \quad
    \kappa_i = \frac{\gamma}{\ln(1 + t)} |w_i| + \epsilon$

    Reading: The gradient is taken at w + u, the step is made from w. Flat directions get much
    noise, curved ones little, and the noise shrinks with the epoch t.

    Assumes: A running mean h of squared gradients that follows the curvature. Costs one forward and
    backward pass per step.

    ``perturbed`` moves the weights in place and restores them bit for bit, also after an exception.
    Within it the caller runs forward and backward, as often as needed. ``observe`` then reads
    ``.grad`` and ends the step; until then the perturbation stays the same. The caller's optimizer
    steps from the weights themselves.

    Where the paper leaves a choice: the first step is not perturbed. If the weights did not move, ρ
    is infinite for a weight whose curvature changed (it is not perturbed) and zero for any other.
    If h and ρ are zero, σ = κ. Frozen weights are left out; once they are trained again, they begin
    like at a first step. The gradient of a weight that the loss does not use is zero, and a sparse
    gradient is zero where it has no entry.

    Args:
        settings: The parameters of the algorithm.
        seed: Seed of the noise.

    >>> weight = torch.ones(3, requires_grad=True)
    >>> step, optimizer = PerturbedStep(Perturbation(beta2=10)), torch.optim.SGD([weight], lr=0.1)
    >>> def closure():
    ...     weight.grad = None
    ...     loss = weight.square().sum()
    ...     loss.backward()
    ...     return loss.item()
    >>> step.gradient(closure, [weight], epoch=1), weight.grad.tolist()  # the first: unperturbed
    (3.0, [2.0, 2.0, 2.0])
    >>> optimizer.step()
    >>> _ = step.gradient(closure, [weight], epoch=1)
    >>> bool((weight.grad != 2 * weight).all())
    True
    """

    def __init__(self, settings: Perturbation, seed: int = 0) -> None:
        self.settings, self.seed = settings, integer("seed", seed, 0)
        self.step, self.drawn, self.moved = 0, False, False
        self.blocks: list[PerturbedBlock] = []
        self.signature: list[tuple[int, int, torch.dtype, torch.device]] = []
        self.loaded: dict[str, Any] | None = None

    def gradient(self, closure: Callable[[], Loss], weights: Sequence[Tensor], epoch: int) -> Loss:
        """Run the closure at perturbed weights, restore them and read the gradient.

        Args:
            closure: Clears gradients and runs forward and backward.
            weights: All weights, always in the same order.
            epoch: The epoch, counted from 1.
        """
        with self.perturbed(weights, epoch):
            loss = closure()
        self.observe()
        return loss

    @contextlib.contextmanager
    def perturbed(self, weights: Sequence[Tensor], epoch: int) -> Iterator[None]:
        """Perturb the weights, and restore them at the end."""
        self.perturb(weights, epoch)
        try:
            yield
        finally:
            self.restore()

    def perturb(self, weights: Sequence[Tensor], epoch: int) -> None:
        """Perturb the weights, for loops that cannot use ``perturbed`` and call ``restore``."""
        if self.moved:
            raise InputError(
                "The weights must be unperturbed to be perturbed, got perturbed ones. Do not nest "
                "perturbed()."
            )
        self._prepare(weights, integer("epoch", epoch, 1))
        try:
            self._push()
        except BaseException:
            self.restore()
            raise

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the weights, if they are perturbed."""
        if self.moved:
            for block in self.blocks:
                block.restore()
            self.moved = False
            torch.clear_autocast_cache()

    @torch.no_grad()
    def observe(self) -> None:
        """Read ``.grad``, which ends the step. Unscale or clip gradients before."""
        for block in self.blocks:
            block.take_gradients()
        self.step, self.drawn = self.step + 1, False

    @torch.no_grad()
    def _prepare(self, weights: Sequence[Tensor], epoch: int) -> None:
        self.lay_out(weights)
        for block in self.blocks:
            block.keep()
        if self.drawn:
            for block in self.blocks:
                block.follow()
        else:
            self._draw(epoch)

    @torch.no_grad()
    def _push(self) -> None:
        self.moved = True
        torch.clear_autocast_cache()  # it may hold the weights in half precision
        if self.step:
            for block in self.blocks:
                block.push()

    def _draw(self, epoch: int) -> None:
        if self.step:
            numbers = self._numbers(epoch)
            length = math.sqrt(math.fsum(block.squared_move() for block in self.blocks))
            weight = numbers.scale * numbers.forget / length if length else math.inf
            for block in self.blocks:
                block.draw(self.step, numbers, weight)
        for block in self.blocks:
            block.age()
        self.drawn = True

    def _numbers(self, epoch: int) -> Numbers:
        """Compute the constants in units of ``scale``, so that no pass is spent on a factor."""
        given, logarithm = self.settings, math.log1p(epoch)
        scale = 1 / (logarithm * math.sqrt(given.eta))
        slope, floor = given.gamma / (logarithm * scale), given.epsilon / scale
        return Numbers(
            slope=slope, floor=floor, limit=given.beta2, forget=1 - given.beta1, scale=scale
        )

    def lay_out(self, weights: Sequence[Tensor]) -> None:
        """Create buffers for the weights that are trained, and carry over what is known of them."""
        active = [(number, weight) for number, weight in enumerate(weights) if weight.requires_grad]
        signature = [(number, id(weight), weight.dtype, weight.device) for number, weight in active]
        if signature == self.signature and self.loaded is None:
            return
        state = self.state() if self.loaded is None else self.loaded
        pieces = _pieces(state, weights)
        groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
        for number, weight in active:
            if not weight.dtype.is_floating_point:
                raise InputError(
                    f"Perturbed weights must be real numbers, got {weight.dtype}. Leave these "
                    "weights out."
                )
            groups.setdefault((weight.dtype, weight.device), []).append(number)
        self.blocks = [
            block_of(
                members,
                [weights[i] for i in members],
                pieces,
                mixed(self.seed, i),
                self.settings.pool,
            )
            for i, members in enumerate(groups.values())
        ]
        self.signature, self.loaded = signature, None

    def state(self) -> dict[str, Any]:
        """Return all that is needed to resume exactly; the buffers themselves, not copies."""
        if self.loaded is not None:
            return self.loaded
        names = BUFFERS if self.drawn else BUFFERS[:-1]
        blocks = [block.state(names) for block in self.blocks]
        return {"step": self.step, "seed": self.seed, "drawn": self.drawn, "blocks": blocks}

    def load(self, state: dict[str, Any]) -> None:
        """Resume from a state; its buffers are copied at the next step."""
        self.step, self.seed = state["step"], state["seed"]
        self.drawn, self.loaded = state["drawn"], state

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings, "state": self.state()}

    def __setstate__(self, content: dict[str, Any]) -> None:
        self.__init__(content["settings"])  # type: ignore[misc]
        self.load(content["state"])


def _pieces(state: dict[str, Any], weights: Sequence[Tensor]) -> dict[int, dict[str, Tensor]]:
    """Split the saved buffers by weight tensor."""
    pieces: dict[int, dict[str, Tensor]] = {}
    for block in state["blocks"]:
        sizes = [
            weights[number].numel() if number < len(weights) else 0 for number in block["members"]
        ]
        for name in BUFFERS:
            if name in block and len(block[name]) != sum(sizes):
                raise InputError(
                    f"The state must hold {sum(sizes)} numbers for the weights {block['members']}, "
                    f"got {len(block[name])}. Load the state of the same model and the same "
                    "parameter groups."
                )
            if name in block:
                for number, part in zip(block["members"], block[name].split(sizes), strict=True):
                    pieces.setdefault(number, {})[name] = part
        for number in block["fresh"]:
            pieces.pop(number, None)
    return pieces
