"""Optimizer steps on one flat tensor, with each member's step size and weight decay."""

import abc
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mindgap.core import Recipe
from mindgap.training.vectorized.hooks import Hooks
from mindgap.training.vectorized.parameters import Number, Store
from mindgap.training.vectorized.problem import Unsupported


class Rule(abc.ABC):
    """Moves ``store.weights`` along ``store.gradient``, which it may overwrite."""

    def __init__(self, store: Store, weight_decay: Number, settings: Mapping[str, Any]) -> None:
        self.store, self.point, self.gradient = store, store.weights, store.gradient
        self.weight_decay, self.settings = weight_decay, settings
        self.count = 0
        self.memory: list[Tensor] = []

    @property
    def rate(self) -> Number:
        """The learning rate of the running epoch."""
        return self.store.rate

    @abc.abstractmethod
    def step(self) -> None:
        """Take one step."""

    def state(self) -> tuple[int, list[Tensor]]:
        """Copy what :meth:`restore` needs."""
        return self.count, [tensor.clone() for tensor in self.memory]

    def restore(self, state: tuple[int, list[Tensor]]) -> None:
        """Go back to a copy of the state."""
        self.count = state[0]
        for tensor, kept in zip(self.memory, state[1], strict=True):
            tensor.copy_(kept)

    def _remember(self, number: int) -> None:
        self.memory = [torch.zeros_like(self.point) for _ in range(number)]

    def _decay_gradient(self) -> None:
        if isinstance(self.weight_decay, Tensor):
            self.gradient.addcmul_(self.point, self.weight_decay)
        elif self.weight_decay:
            self.gradient.add_(self.point, alpha=self.weight_decay)

    def _descend(self, direction: Tensor) -> None:
        if isinstance(self.rate, Tensor):
            self.point.addcmul_(direction, self.rate, value=-1)
        else:
            self.point.add_(direction, alpha=-self.rate)

    def _descend_quotient(self, above: Tensor, below: Tensor, scale: float) -> None:
        if isinstance(self.rate, Tensor):
            self.point.addcdiv_(above * self.rate, below, value=-scale)
        else:
            self.point.addcdiv_(above, below, value=-scale * self.rate)


class SGD(Rule):
    """Gradient descent with momentum, damping and Nesterov's variant."""

    def __init__(self, store: Store, weight_decay: Number, settings: Mapping[str, Any]) -> None:
        super().__init__(store, weight_decay, settings)
        self.momentum, self.nesterov = settings["momentum"], settings["nesterov"]
        self.fresh = 1 - settings["dampening"]
        self._remember(1 if self.momentum else 0)

    def step(self) -> None:
        """Take one step."""
        self._decay_gradient()
        direction = self._with_momentum() if self.momentum else self.gradient
        self.count += 1
        self._descend(direction)

    def _with_momentum(self) -> Tensor:
        velocity = self.memory[0]
        if self.count:
            velocity.mul_(self.momentum).add_(self.gradient, alpha=self.fresh)
        else:
            velocity.copy_(self.gradient)
        return self.gradient.add_(velocity, alpha=self.momentum) if self.nesterov else velocity


class Adam(Rule):
    """Adam; weight decay enters the gradient."""

    fused: ClassVar[Any] = getattr(
        torch, "_fused_adam_", None
    )  # torch's own one-pass kernel, where this version has it

    def __init__(self, store: Store, weight_decay: Number, settings: Mapping[str, Any]) -> None:
        super().__init__(store, weight_decay, settings)
        (self.first, self.second), self.epsilon = settings["betas"], settings["eps"]
        self._remember(2)
        self._scale = torch.empty_like(self.point)
        self._count = torch.zeros((), dtype=torch.float32)

    def step(self) -> None:
        """Take one step."""
        self.count += 1
        if (
            self.fused is None
            or isinstance(self.rate, Tensor)
            or isinstance(self.weight_decay, Tensor)
        ):
            self._by_hand()
        else:
            self._at_once(self.rate, self.weight_decay)

    def _at_once(self, rate: float, weight_decay: float) -> None:
        mean, square = ([tensor] for tensor in self.memory)
        options = {
            "lr": rate,
            "beta1": self.first,
            "beta2": self.second,
            "weight_decay": weight_decay,
        }
        options |= {"eps": self.epsilon, "amsgrad": False, "maximize": False}
        self.fused(
            [self.point],
            [self.gradient],
            mean,
            square,
            [],
            [self._count.fill_(self.count)],
            **options,
        )

    def _by_hand(self) -> None:
        self._decay_gradient()
        mean, square = self.memory
        correction = math.sqrt(1 - self.second**self.count)
        mean.lerp_(self.gradient, 1 - self.first)
        square.mul_(self.second).addcmul_(self.gradient, self.gradient, value=1 - self.second)
        torch.sqrt(square, out=self._scale)
        self._scale.add_(self.epsilon * correction)
        self._descend_quotient(mean, self._scale, correction / (1 - self.first**self.count))


class AdamW(Adam):
    """Adam with weight decay that shrinks the weights themselves."""

    fused: ClassVar[Any] = getattr(torch, "_fused_adamw_", None)

    def _decay_gradient(self) -> None:
        shrink = self.rate * self.weight_decay
        if isinstance(shrink, Tensor) or shrink:
            self.point.mul_(1 - shrink)


class RMSprop(Rule):
    """RMSprop with momentum."""

    def __init__(self, store: Store, weight_decay: Number, settings: Mapping[str, Any]) -> None:
        super().__init__(store, weight_decay, settings)
        self.keep, self.epsilon, self.momentum = (
            settings["alpha"],
            settings["eps"],
            settings["momentum"],
        )
        self._remember(2 if self.momentum else 1)
        self._scale = torch.empty_like(self.point)

    def step(self) -> None:
        """Take one step."""
        self._decay_gradient()
        self.count += 1
        square = self.memory[0]
        square.mul_(self.keep).addcmul_(self.gradient, self.gradient, value=1 - self.keep)
        torch.sqrt(square, out=self._scale)
        self._scale.add_(self.epsilon)
        if self.momentum:
            self._descend(self.memory[1].mul_(self.momentum).addcdiv_(self.gradient, self._scale))
        else:
            self._descend_quotient(self.gradient, self._scale, 1.0)


RULES: dict[type[torch.optim.Optimizer], type[Rule]] = {
    torch.optim.SGD: SGD,
    torch.optim.Adam: Adam,
    torch.optim.AdamW: AdamW,
    torch.optim.RMSprop: RMSprop,
}
_FLAGS = ("amsgrad", "maximize", "centered", "differentiable")


def check_rule(optimizer: torch.optim.Optimizer) -> type[Rule]:
    """Find the rule that equals a torch optimizer; refuse any other optimizer."""
    if type(optimizer) not in RULES:
        raise Unsupported(f"the optimizer {type(optimizer).__name__} has no vectorized step")
    if len(optimizer.param_groups) != 1:
        raise Unsupported("the optimizer has several parameter groups")
    wanted = [flag for flag in _FLAGS if optimizer.param_groups[0].get(flag)]
    if wanted:
        raise Unsupported(f"the optimizer's option {wanted[0]} has no vectorized step")
    return (
        AdamW if optimizer.param_groups[0].get("decoupled_weight_decay") else RULES[type(optimizer)]
    )


class Rates:
    """The step sizes of every member in every epoch, as the recipe's schedule gives them."""

    def __init__(self, recipe: Recipe, start: Sequence[float], store: Store, hooks: Hooks) -> None:
        self._store, self._hooks = store, hooks
        self._distinct = sorted(set(start))
        self._which = torch.tensor([self._distinct.index(rate) for rate in start])
        self._table = _schedule_table(recipe, self._distinct)
        self._last: tuple[list[float], Number] | None = None

    def at(self, epoch: int) -> Number:
        """Return the step sizes of an epoch, from 1: one number if all members share it."""
        row = self._table[min(epoch, len(self._table)) - 1]
        if "rate_factor" in self._hooks.written:
            factors = self._hooks.factors(epoch)
            pairs = zip(self._which.tolist(), factors, strict=True)
            return self._store.spread([row[k] * factor for k, factor in pairs])
        if self._last is None or self._last[0] != row:
            self._last = row, self._store.spread([row[k] for k in self._which.tolist()])
        return self._last[1]


def _schedule_table(recipe: Recipe, start: Sequence[float]) -> list[list[float]]:
    """List step sizes, one row per epoch (one in all without a schedule), one column per start."""
    if recipe.schedule is None:
        return [list(start)]
    optimizer = recipe.optimize([nn.Parameter(torch.zeros(1))])
    optimizer.param_groups[0]["lr"] = start[0]
    for rate in start[1:]:
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": rate})
    return _recorded(recipe, optimizer)


def _recorded(recipe: Recipe, optimizer: torch.optim.Optimizer) -> list[list[float]]:
    assert recipe.schedule is not None
    fixed = _others(optimizer)
    schedule, table = recipe.schedule(optimizer), []
    for _ in range(recipe.epochs):
        if _others(optimizer) != fixed:
            raise Unsupported("the schedule changes more than the step size")
        table.append([_number(group["lr"]) for group in optimizer.param_groups])
        optimizer.step()
        _advance(schedule)
    return table or [[_number(group["lr"]) for group in optimizer.param_groups]]


def _advance(schedule: Any) -> None:
    try:
        schedule.step()
    except TypeError as error:
        raise Unsupported("the schedule looks at a measured value") from error


def _others(optimizer: torch.optim.Optimizer) -> list[list[Any]]:
    names = ("momentum", "betas", "weight_decay")
    return [[group.get(name) for name in names] for group in optimizer.param_groups]


def _number(rate: float | Tensor) -> float:
    return float(rate)
