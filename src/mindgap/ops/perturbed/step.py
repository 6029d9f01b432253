"""PerturbedOPT, Algorithm 1 of Wang, Keskar, Xiong and Socher: leave the gradient at perturbed weights in ``.grad``."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from mindgap.core import InputError, integer, option
from mindgap.core.spec import check
from mindgap.ops.perturbed.block import BUFFERS, Numbers, PerturbedBlock, block_of
from mindgap.ops.perturbed.noise import POOL, mixed

Loss = TypeVar("Loss")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perturbation:
    """The numbers of Algorithm 1, named as there, and how noise is drawn.

    >>> Perturbation(eta=0.01, gamma=10).beta1
    0.999
    """

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

    def __post_init__(self) -> None:
        check(self)


class PerturbedStep:
    """What Algorithm 1 remembers between steps, and the perturbation of one step.

    ``perturbed`` moves the weights in place, lets the caller run forward and backward (as often as
    needed: until ``observe`` the perturbation stays the same) and puts them back bit for bit, also
    after an exception. ``observe`` then reads ``.grad`` and ends the step. The caller's optimizer
    steps from the weights themselves.

    Where the paper leaves a choice: at the first step nothing is perturbed. Where the weights did
    not move, ρ is infinite for a weight whose curvature changed (it is not perturbed) and zero for
    one whose curvature did not. Where h and ρ are zero, σ = κ. Frozen weights are left out
    altogether; one that is thawed starts like a first step. The derivative by a weight that the
    loss does not use is zero, and a sparse gradient is zero where it has no entry.

    >>> weight = torch.ones(3, requires_grad=True)
    >>> core = PerturbedStep(Perturbation(), seed=0)
    >>> def closure():
    ...     weight.grad = None
    ...     loss = weight.square().sum()
    ...     loss.backward()
    ...     return loss.item()
    >>> core.gradient(closure, [weight], epoch=1), weight.grad.tolist()
    (3.0, [2.0, 2.0, 2.0])
    """

    def __init__(self, settings: Perturbation, seed: int = 0) -> None:
        self.settings, self.seed = settings, integer("seed", seed, 0)
        self.step, self.drawn, self.moved = 0, False, False
        self.blocks: list[PerturbedBlock] = []
        self.signature: list[tuple[int, int, torch.dtype, torch.device]] = []
        self.loaded: dict[str, Any] | None = None

    def gradient(self, closure: Callable[[], Loss], weights: Sequence[Tensor], epoch: int) -> Loss:
        """Run the closure at perturbed weights, restore them and remember the gradient; epochs count from 1."""
        with self.perturbed(weights, epoch):
            loss = closure()
        self.observe()
        return loss

    @contextlib.contextmanager
    def perturbed(self, weights: Sequence[Tensor], epoch: int) -> Iterator[None]:
        """Move the weights, and put them back at the end."""
        self.perturb(weights, epoch)
        try:
            yield
        finally:
            self.restore()

    def perturb(self, weights: Sequence[Tensor], epoch: int) -> None:
        """Move the weights; for a loop that cannot use ``perturbed``, and that calls ``restore`` come what may."""
        if self.moved:
            raise InputError(
                "The weights must be at rest to be perturbed, got moved ones. Do not nest "
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
        """Put the weights back, if they are moved."""
        if self.moved:
            for block in self.blocks:
                block.restore()
            self.moved = False
            torch.clear_autocast_cache()

    @torch.no_grad()
    def observe(self) -> None:
        """Read ``.grad``, which ends the step. Clip or unscale before, if the optimizer is to see it so."""
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
        """Everything in units of ``scale``, so that no pass is spent on a factor."""
        given, logarithm = self.settings, math.log1p(epoch)
        scale = 1 / (logarithm * math.sqrt(given.eta))
        slope, floor = given.gamma / (logarithm * scale), given.epsilon / scale
        return Numbers(
            slope=slope, floor=floor, limit=given.beta2, forget=1 - given.beta1, scale=scale
        )

    def lay_out(self, weights: Sequence[Tensor]) -> None:
        """Make buffers for the weights that are trained; what is known about them is carried over."""
        active = [(number, weight) for number, weight in enumerate(weights) if weight.requires_grad]
        signature = [(number, id(weight), weight.dtype, weight.device) for number, weight in active]
        if signature == self.signature and self.loaded is None:
            return
        state = self.state() if self.loaded is None else self.loaded
        pieces, groups = (
            _pieces(state, weights),
            dict[tuple[torch.dtype, torch.device], list[int]](),
        )
        for number, weight in active:
            if not weight.dtype.is_floating_point:
                raise InputError(
                    f"Perturbed weights must be real numbers, got {weight.dtype}. Leave complex "
                    "ones out."
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
        """All that is needed to go on exactly from here: numbers, and the buffers themselves (not copies)."""
        if self.loaded is not None:
            return self.loaded
        names = BUFFERS if self.drawn else BUFFERS[:-1]
        blocks = [block.state(names) for block in self.blocks]
        return {"step": self.step, "seed": self.seed, "drawn": self.drawn, "blocks": blocks}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state; its buffers are copied when the weights are next laid out."""
        self.step, self.seed = state["step"], state["seed"]
        self.drawn, self.loaded = state["drawn"], state

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings, "state": self.state()}

    def __setstate__(self, content: dict[str, Any]) -> None:
        self.__init__(content["settings"])  # type: ignore[misc]
        self.load(content["state"])


def _pieces(state: dict[str, Any], weights: Sequence[Tensor]) -> dict[int, dict[str, Tensor]]:
    """The parts of the saved buffers by number of the weight tensor."""
    pieces: dict[int, dict[str, Tensor]] = {}
    for block in state["blocks"]:
        sizes = [
            weights[number].numel() if number < len(weights) else 0 for number in block["members"]
        ]
        for name in BUFFERS:
            if name in block and len(block[name]) != sum(sizes):
                raise InputError(
                    f"The state must hold {sum(sizes)} numbers for the weights "
                    f"{block['members']}, got "
                    f"{len(block[name])}. Load the state of the same model and the same parameter "
                    "groups."
                )
            if name in block:
                for number, part in zip(block["members"], block[name].split(sizes), strict=True):
                    pieces.setdefault(number, {})[name] = part
        for number in block["fresh"]:
            pieces.pop(number, None)
    return pieces
