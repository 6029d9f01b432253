"""Which units of a model are inactive, whether activations are layers or function calls."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Flat = Callable[[Tensor], Tensor]

# A rectified unit that fires once still learns. A saturated one would need many samples.
RECTIFIED, SATURATED = 1.0, 0.99
STEPS = 8  # calls of one module in a pass, from which on they are steps of a recurrent net

# Where the slope of an activation is below a hundredth of its largest.
_FLAT: Mapping[str, tuple[Flat, float]] = {
    "relu": (lambda x: x <= 0, RECTIFIED),
    "relu_": (lambda x: x <= 0, RECTIFIED),
    "relu6": (lambda x: (x <= 0) | (x >= 6), RECTIFIED),
    "gelu": (lambda x: x < -3.1, RECTIFIED),
    "silu": (lambda x: x < -6.5, RECTIFIED),
    "elu": (lambda x: x < -4.6, RECTIFIED),
    "selu": (lambda x: x < -4.6, RECTIFIED),
    "softplus": (lambda x: x < -4.6, RECTIFIED),
    "tanh": (lambda x: x.abs() > 3.0, SATURATED),
    "sigmoid": (lambda x: x.abs() > 6.0, SATURATED),
    "hardsigmoid": (lambda x: x.abs() >= 3, SATURATED),
}
_CLAMPS = ("clamp", "clamp_", "clamp_min", "clip")


@dataclasses.dataclass(frozen=True)
class Activation:
    """One activation of a model, over all samples seen.

    Args:
        place: The module in which it happens, with a number if it happens there several times.
        kind: The name of the function.
        inactive: For every unit the share of values where the slope is next to zero.
        least: The share from which a unit counts as inactive.
    """

    place: str
    kind: str
    inactive: Tensor
    least: float

    @property
    def dead(self) -> Tensor:
        """Tell for every unit whether it is inactive."""
        return self.inactive >= self.least

    @property
    def share(self) -> float:
        """The share of units that are inactive."""
        return float(self.dead.double().mean())

    @property
    def alive(self) -> int:
        """The number of units that are active."""
        return int((~self.dead).sum())


def activations(model: nn.Module, runs: Iterable[Callable[[], Tensor]]) -> list[Activation]:
    """Watch the activations of a model during passes; one that makes the outputs is left out.

    Args:
        model: Its modules name the places.
        runs: Functions that pass one batch each through the model and return its outputs.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> with torch.no_grad():
    ...     _ = model[0].bias.copy_(torch.tensor([-9.0, -9.0, 9.0])), model[0].weight.fill_(0.1)
    >>> found = activations(model, [lambda: model(torch.ones(5, 2))])
    >>> [(layer.place, layer.kind, layer.alive) for layer in found]
    [('1', 'relu', 1)]
    """
    seen = Seen()
    with torch.no_grad(), placed(model, seen.stack), seen:
        for run in runs:
            seen.begin()
            seen.end(run())
    return list(joined(seen.noted))


@dataclasses.dataclass
class _Noted:
    """What is known of one call: which axis holds the units, and how often each was flat."""

    kind: str
    least: float
    axis: int
    flat: Tensor
    values: int


class Seen(TorchFunctionMode):
    """Notes the inputs of activations, in every call of torch inside a forward pass.

    ``F.relu``, ``torch.tanh``, methods of tensors and layers such as ``nn.ReLU`` all come by here.
    Whoever uses it keeps the name of the running module at the end of ``stack``, calls ``begin``
    before every pass and ``end`` after it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.calls: collections.Counter[str] = collections.Counter()
        self.noted: dict[tuple[str, int], _Noted] = {}
        self.latest: tuple[tuple[str, int], Any] | None = None

    def begin(self) -> None:
        """Prepare for a pass: calls are numbered from one again."""
        self.calls.clear()
        self.stack.clear()

    def end(self, outputs: Any) -> None:
        """Leave out the activation that made the outputs of the pass."""
        if self.latest is not None and self.latest[1] is outputs:
            self.noted.pop(self.latest[0], None)
        self.latest = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        name = getattr(func, "__name__", "")
        values = args[0] if args else given.get("input")
        found = _flat_of(name, args, given)
        if found is None or not isinstance(values, Tensor) or values.ndim < 2:
            return func(*args, **given)
        place = self.stack[-1] if self.stack else ""
        self.calls[place] += 1
        key = (place, self.calls[place])
        self._note(key, name, found[0](values.detach()), found[1])
        result = func(*args, **given)
        self.latest = (key, result)
        return result

    def _note(self, key: tuple[str, int], name: str, flat: Tensor, least: float) -> None:
        known = self.noted.get(key)
        axis = _axis(flat) if known is None else known.axis
        total = flat.sum([k for k in range(flat.ndim) if k != axis])
        values = flat.numel() // max(1, flat.shape[axis])
        if known is None:
            self.noted[key] = _Noted(name, least, axis, total, values)
        elif known.flat.shape == total.shape:
            known.flat, known.values = known.flat + total, known.values + values


def _flat_of(name: str, args: Any, given: Mapping[str, Any]) -> tuple[Flat, float] | None:
    """Return where the function called is flat, or None if it is no activation."""
    if name == "hardtanh":
        low, high = (
            args[at] if len(args) > at else given.get(key, default)
            for at, key, default in ((1, "min_val", -1.0), (2, "max_val", 1.0))
        )
        return (lambda x: (x <= low) | (x >= high)), RECTIFIED if low == 0 else SATURATED
    if name in _CLAMPS:
        low = args[1] if len(args) > 1 else given.get("min")
        above = len(args) > 2 or given.get("max") is not None
        rectifies = isinstance(low, int | float) and low == 0 and not above
        return _FLAT["relu"] if rectifies else None
    return _FLAT.get(name)


def _axis(flat: Tensor) -> int:
    """Return which axis holds the units.

    Of (n, a, b) it is the one along which more units are flat: convolutions over time have channels
    first, recurrent nets and transformers have them last. On the axis of time a place is flat only
    if all units are.
    """
    if flat.ndim != 3:
        return 1
    first, last = flat.all(2).all(0).double().mean(), flat.all(1).all(0).double().mean()
    return 1 if float(first) > float(last) else 2


@contextmanager
def placed(model: nn.Module, stack: list[str]) -> Iterator[None]:
    """Keep, inside, the names of the running modules on a stack, the innermost last.

    Args:
        model: Its modules have the names.
        stack: Empty at first.
    """
    handles = []
    for name, module in model.named_modules():
        enter = _Enter(stack, name or type(module).__name__)
        handles += [
            module.register_forward_pre_hook(enter),
            module.register_forward_hook(_Leave(stack)),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclasses.dataclass(frozen=True)
class _Enter:
    stack: list[str]
    name: str

    def __call__(self, *_: Any) -> None:
        self.stack.append(self.name)


@dataclasses.dataclass(frozen=True)
class _Leave:
    stack: list[str]

    def __call__(self, *_: Any) -> None:
        self.stack.pop()


def joined(noted: Mapping[tuple[str, int], Any]) -> Iterator[Activation]:
    """Join the steps of a recurrent net, whose units are the same in every step."""
    places: dict[str, list[_Noted]] = {}
    for (place, _), call in noted.items():
        places.setdefault(place, []).append(call)
    for place, calls in places.items():
        alike = len({call.flat.shape for call in calls}) == 1
        if len(calls) >= STEPS and alike:
            flat = torch.stack([call.flat for call in calls]).sum(0)
            inactive = flat.double() / sum(call.values for call in calls)
            yield Activation(place, calls[0].kind, inactive, calls[0].least)
            continue
        for number, call in enumerate(calls, 1):
            title = place if number == 1 else f"{place} (call {number})"
            yield Activation(title, call.kind, call.flat.double() / call.values, call.least)
