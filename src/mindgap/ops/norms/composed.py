"""An upper bound of the Lipschitz constant of a whole network, sums and concatenations included."""

import dataclasses
import math
import re
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mindgap.core import Inputs, call, evaluating, implements, mapped
from mindgap.ops.norms.layer_norms import has_rule, layer_norm
from mindgap.ops.norms.watch import Call, as_inputs

# No function here makes two inputs differ by more than they did.
_ONE = re.compile(
    "get|view|reshape|flatten|unflatten|permute|transpose|t|squeeze|unsqueeze|contiguous|getitem|chunk|"
    "split|clone|detach|narrow|select|movedim|size|dim|numel|ndimension|len|to|float|double|type|relu6?|"
    "tanh|hardtanh|softplus|log_?sigmoid|a(max|min)|(feature_)?dropout[12]?d?|is_(floating_point|complex)"
)


@dataclasses.dataclass(frozen=True)
class Composed:
    """The constant of a network.

    Args:
        upper: A guaranteed upper bound; infinite if there is none.
        reason: Why it is infinite.
    """

    upper: float
    reason: str = ""


@implements("E9", cites=("bartlett2017spectrally",))
def lipschitz_upper(model: nn.Module, inputs: Tensor | Inputs) -> Composed:
    r"""Bound the Lipschitz constant of a network by those of its layers.

    Formula: $L(g \circ f) \le L(g) L(f), \quad L(f + g) \le L(f) + L(g), \quad L((f, g)) \le \sqrt{L(f)^2 +
    L(g)^2}$

    Reading: An upper bound for all inputs, and far above the largest slope that real inputs show. It
    is infinite, with the reason, where a layer has no constant or a function no rule.

    Assumes: A model that takes the same way for all inputs.

    Args:
        model: Any module, in evaluation mode.
        inputs: A batch, of which the shape counts: one tensor, a tuple of them, or a dict.

    >>> class Residual(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = nn.Linear(2, 2)
    ...
    ...     def forward(self, x):
    ...         return x + torch.relu(self.layer(x))
    >>> net = Residual()
    >>> _ = net.layer.weight.data.copy_(3 * torch.eye(2))
    >>> round(lipschitz_upper(net, torch.zeros(1, 2)).upper, 6)
    4.0
    """
    given = mapped(as_inputs(inputs), lambda value: value.detach().clone())
    mode = _Constants()
    known = [module for module in model.modules() if has_rule(module)]
    handles = [hook for module in known for hook in mode.watch(module)]
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    # A layer that gets words instead of numbers has the constant of its table.
    for value in given.values() if isinstance(given, dict) else given:
        mode.keep(value, 1.0)
    try:
        with evaluating(model), mode:
            output = call(model, given, like)
    finally:
        for handle in handles:
            handle.remove()
    found = mode.constant(output)
    upper = math.inf if found is None else found
    return Composed(upper, mode.reason if upper == math.inf else "")


class _Constants(TorchFunctionMode):
    """Follows, for every tensor that depends on the input, how steeply it can."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, tuple[Tensor, float]] = {}
        self.inside = 0  # layers that are being called: their own functions do not count
        self.reason = "the output does not depend on the input by functions that are known"

    def keep(self, value: Any, constant: float) -> Any:
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, Tensor):
                self.known[id(each)] = (each, constant)
        return value

    def constant(self, value: Any) -> float | None:
        entry = self.known.get(id(value))
        return None if entry is None else entry[1]

    def watch(self, module: nn.Module) -> list[Any]:
        entered = list[float]()

        def enter(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            found = (self.constant(value) for value in (*given, *named.values()))
            entered.append(max((each for each in found if each is not None), default=0.0))
            self.inside += 1

        def leave(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any], left: Any) -> None:
            self.inside -= 1
            first = next((v for v in (*given, *named.values()) if isinstance(v, Tensor)), None)
            output = left[0] if isinstance(left, tuple) else left
            row = layer_norm(Call("", module, first, output))
            self.keep(left, self._grown(entered.pop(), row.upper, row.reason))

        return [
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave, with_kwargs=True),
        ]

    def _grown(self, constant: float, factor: float, reason: str) -> float:
        if factor == math.inf and constant > 0:
            self.reason = reason
            return math.inf
        return constant * factor if constant else 0.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, name = kwargs or {}, getattr(func, "__name__", "")
        result = func(*args, **given)
        flat = [each for value in (*args, *given.values()) for each in _each(value)]
        found = [constant for each in flat if (constant := self.constant(each)) is not None]
        if self.inside or not found:
            return result
        grown = self._rule(name.strip("_"), found, args, given, result)
        if grown is None:
            self.reason = f"no rule for the Lipschitz constant of the function {name}"
            grown = math.inf
        return self.keep(result, grown)

    def _rule(
        self, name: str, found: list[float], args: Any, given: Any, result: Any
    ) -> float | None:
        """Return the constant of a function's result, or None if it has no rule."""
        if re.fullmatch("[ir]?(add|sub)", name) and "alpha" not in given:
            return math.fsum(self._spread(args, result))
        if re.fullmatch("cat|concat|stack", name):
            return math.hypot(*found)
        if re.fullmatch("[ir]?mul|i?(true)?div", name) and len(found) == 1:
            return self._spread(args, result)[0] * self._factor(args, name.endswith("div"))
        factor = _factor_of(name, args, given, result)
        return None if factor is None else factor * found[0]

    def _spread(self, args: Any, result: Tensor) -> list[float]:
        """Return the constants of what was added or multiplied; copies by broadcasting count."""
        known = [(value, self.constant(value)) for value in args]
        return [
            constant * math.sqrt(max(1.0, result.numel() / value.numel()))
            for value, constant in known
            if constant is not None
        ]

    def _factor(self, args: Any, divides: bool) -> float:
        """The largest entry of the constant factor, or the inverse of the smallest."""
        other = next(value for value in args if self.constant(value) is None)
        sizes = torch.as_tensor(other, dtype=torch.double).detach().abs()
        if divides and self.constant(args[0]) is None:
            return math.inf
        return float(1 / sizes.min()) if divides else float(sizes.max())


def _each(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _may_repeat(index: Any) -> bool:
    """Tell whether an index could name a place twice, as tensors and lists can."""
    return any(isinstance(one, Tensor | list) for one in _each(index)) or isinstance(index, list)


def _factor_of(name: str, args: Any, given: Any, result: Any) -> float | None:
    """Return the constant of a function of one tensor, or None if it has no rule."""
    if name == "getitem" and _may_repeat(args[1]):
        return None
    if _ONE.fullmatch(name):
        return 1.0
    if name == "leaky_relu":
        slope = args[1] if len(args) > 1 else given.get("negative_slope", 0.01)
        return max(1.0, abs(float(slope)))
    if name == "pad":
        mode = given.get("mode", args[2] if len(args) > 2 else "constant")
        return 1.0 if mode == "constant" else None
    if name in ("mean", "sum"):
        root = math.sqrt(float(args[0].numel() / result.numel()))
        return 1 / root if name == "mean" else root
    return {"sigmoid": 0.25, "softmax": 0.5}.get(name)
