"""A pass through a model, function by function, with the moments of all that depends on weights."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from mindgap.ops.initialization.moments import (
    SURE,
    Affine,
    Apply,
    Moments,
    activated,
    clear_mean,
    layered,
    lifted,
    multiplied,
    normalized,
    summed,
)

# Functions that move numbers and do not change them.
_MOVES = re.compile(
    "get|view|view_as|reshape|flatten|unflatten|permute|transpose|t|squeeze|unsqueeze|getitem|chunk|"
    "split|tensor_split|narrow|select|movedim|swapaxes|expand|expand_as|repeat|unbind|stack|cat|"
    "concat|pad|roll|flip|index_select|ravel"
)
_SAME = re.compile(
    "contiguous|clone|to|float|double|type|type_as|(feature_|alpha_)?dropout[123]?d?"
)
_SMOOTH = re.compile(
    "relu6|elu|selu|celu|gelu|silu|mish|softplus|tanh|sigmoid|hardtanh|hardsigmoid|hardswish|"
    "log_?sigmoid|softsign|tanhshrink|hardshrink|softshrink|abs|absolute|sin|cos|erf|exp|square|pow|"
    "clamp|clamp_min|clamp_max|clip|threshold"
)
_WEIGHTED = re.compile("linear|conv[123]d|conv_transpose[123]d")
_LIKE = re.compile(".*_like|new_.*|size|dim|ndimension|numel|len|shape")  # take no values
SMALL = 0.05  # of the variance of a layer's output: what a mean of its weights may add
FEW = 16  # channels of a group, below which their mean is not near its expectation


class Refused(Exception):  # noqa: N818  (a verdict, not a fault)
    """Raised where a function has no rule; its text is the reason."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """One call of a function with weights.

    Args:
        name: The module in which it happens.
        weight: The weights, or None where they are several or a table.
        forward: Mean square of what it returned.
        signal: Mean over units of the variance over samples.
        size: How many numbers it returned.
        edge: Place of what it returned in the graph of the real pass.
        moments: Predicted moments of what it returned, or None.
    """

    name: str
    weight: Tensor | None
    forward: float
    signal: float
    size: int
    edge: Any
    moments: Moments | None


class Following(TorchFunctionMode):
    """Follows the moments of all tensors of a pass.

    A result without a rule counts as known from there on: its real values are taken. ``cuts`` are
    the places where the graph of the moments ends for that reason, ``sums`` the sources of what is
    added to each other.

    Args:
        names: Names of the parameters, by their ``id``.
        variances: Second moments of weights that are known without looking at them, by name.
    """

    def __init__(self, names: Mapping[int, str], variances: Mapping[str, float]) -> None:
        super().__init__()
        self.names, self.variances = names, variances
        self.stack: list[str] = []
        self.known: dict[int, tuple[Tensor, Moments]] = {}
        self.layers: list[Seen] = []
        self.cuts: list[tuple[Tensor, Any]] = []
        self.sums: list[tuple[str, str]] = []
        self.refused: dict[str, str] = {}
        self.approximated: dict[str, str] = {}

    @property
    def place(self) -> str:
        """The name of the running module."""
        return self.stack[-1] if self.stack else ""

    def moments(self, value: Any) -> Moments | None:
        """Return what is known about a tensor, or None if it does not depend on weights."""
        entry = self.known.get(id(value))
        return None if entry is None else entry[1]

    def lifted(self, value: Any, axis: int | None = None) -> Moments:
        """Return the moments of a tensor, or those of its real values."""
        found = self.moments(value)
        return lifted(value, axis) if found is None else found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = _Call(func, args, kwargs or {})
        tracked = [each for each in call.tensors if self.moments(each) is not None]
        weighted = call.is_weighted
        if _LIKE.fullmatch(call.name) or not (tracked or weighted):
            return func(*args, **call.given)
        edges = [_edge(each) for each in tracked]  # before a function may work in place
        found, reason = list[Moments](), ""
        try:
            found = self._rule(call)
        except Refused as refusal:
            reason = str(refusal)
        result = func(*args, **call.given)
        numbers = [each for each in _tensors(result) if each.is_floating_point()]
        if reason and (numbers or call.name == "setitem"):
            self._cut(tracked, edges, reason)
            for each in (*numbers, *args[:1]):
                self.known.pop(id(each), None)
        self.known.update(
            {id(each): (each, row) for each, row in zip(numbers, found, strict=False)}
        )
        if weighted and numbers:
            self._note(numbers[0], call)
        return result

    def _cut(self, tracked: list[Tensor], edges: list[Any], reason: str) -> None:
        for each, edge in zip(tracked, edges, strict=True):
            square = self.known[id(each)][1].square
            if edge is not None and square.requires_grad:
                self.cuts.append((square, edge))
        self.refused.setdefault(self.place, reason)

    def _note(self, result: Tensor, call: "_Call") -> None:
        """Measure what a function with weights returned, at once: it may be overwritten later."""
        values, moments = result.detach().double(), self.moments(result)
        if torch.is_grad_enabled() and moments is not None and not moments.square.requires_grad:
            moments.square.requires_grad_()
        single = _WEIGHTED.fullmatch(call.name)
        self.layers.append(
            Seen(
                name=self.place,
                weight=call.argument(1, "weight") if single else None,
                forward=float(values.square().mean()),
                signal=float(values.var(0, correction=0).mean()) if values.ndim else 0.0,
                size=values.numel(),
                edge=_edge(result),
                moments=moments,
            )
        )

    def _rule(self, call: "_Call") -> list[Moments]:
        """Return the moments of what a function returns; raise Refused if it has no rule."""
        if _MOVES.fullmatch(call.name):
            return self._moved(call)
        rule = _RULES.get(call.name)
        if rule is not None:
            return [rule(self, call)]
        if _WEIGHTED.fullmatch(call.name):
            return [self._layer(call)]
        row = self._first(call)
        if _SAME.fullmatch(call.name):
            return [self._dropped(call, row)]
        if _SMOOTH.fullmatch(call.name):
            rest = {key: value for key, value in call.given.items() if key != "input"}
            return [self._active(row, lambda x: call.func(x, *call.args[1:], **rest))]
        raise Refused(f"no rule for the function {call.name}")

    def _first(self, call: "_Call") -> Moments:
        row = self.moments(call.argument(0, "input"))
        if row is None:
            raise Refused(f"no rule for the function {call.name}")
        return row

    def _layer(self, call: "_Call") -> Moments:
        linear, weight = call.name == "linear", call.argument(1, "weight")
        bias = call.argument(2, "bias")
        row = self.lifted(call.argument(0, "input"), -1 if linear else 1)
        if linear and _is_identity(weight):
            return self._through_identity(row, float(weight[0, 0].detach()), bias)
        # A transposed convolution has its inputs first, and takes as many taps.
        fan = weight.numel() // weight.shape["transpose" in call.name]
        made = layered(row, _equal_weights(call, weight, self._variance(weight, fan)), bias)
        return dataclasses.replace(made, source=self.place)

    def _variance(self, weight: Tensor, fan: int) -> float:
        """Return the second moment of weights; a mean that matters is refused."""
        given = self.variances.get(self.names.get(id(weight), ""))
        if given is not None:
            return given
        values = weight.detach().double()
        square, mean = float(values.square().mean()), float(values.mean())
        clear = abs(mean) > SURE * (square / values.numel()) ** 0.5
        if clear and fan * mean**2 > SMALL * square:
            raise Refused("weights whose mean is not zero have no rule")
        return square

    def _through_identity(self, row: Moments, factor: float, bias: Tensor | None) -> Moments:
        self._approximate(
            "what an identity returns counts as uncorrelated with what it is added to"
        )
        moved = multiplied(row, lifted(factor), gaussian=row.gaussian, slope=row.slope * factor**2)
        return moved if bias is None else summed(moved, lifted(bias))

    def _table(self, call: "_Call") -> Moments:
        ids, weight = call.argument(0, "input"), call.argument(1, "weight")
        zero = weight.new_zeros((*ids.shape, weight.shape[1]), dtype=torch.float64).detach()
        return Moments(zero, zero + self._variance(weight, 1), zero, gaussian=True)

    def _moved(self, call: "_Call") -> list[Moments]:
        def of(part: str) -> list[Tensor]:
            pick = lambda each: getattr(self.lifted(each), part)  # noqa: E731
            made = call.func(*self._replaced(call.args, pick), **self._replaced(call.given, pick))
            return _tensors(made)

        rows = [each for each in map(self.moments, call.tensors) if each is not None]
        parts = zip(of("mean"), of("square"), of("common"), strict=True)
        gaussian = all(row.gaussian for row in rows)
        return [
            dataclasses.replace(rows[0], mean=m, square=s, common=c, gaussian=gaussian)
            for m, s, c in parts
        ]

    def _replaced(self, value: Any, pick: Callable[[Any], Any]) -> Any:
        """Replace tensors of numbers by their moments; indices stay."""
        if isinstance(value, Tensor):
            return pick(value) if value.is_floating_point() else value
        if isinstance(value, dict):
            return {key: self._replaced(each, pick) for key, each in value.items()}
        if type(value) in (tuple, list):
            return type(value)(self._replaced(each, pick) for each in value)
        return value

    def _dropped(self, call: "_Call", row: Moments) -> Moments:
        if "dropout" not in call.name or not call.argument(2, "training"):
            return row
        kept = 1 - float(call.argument(1, "p") or 0.0)
        return dataclasses.replace(row, square=row.square / kept, gaussian=False)

    def _active(
        self, row: Moments, function: Callable[[Tensor], Tensor], negative: float | None = None
    ) -> Moments:
        if not row.gaussian:
            self._approximate("what enters an activation counts as Gaussian")
        return activated(row, function, negative)

    def _rectified(self, call: "_Call") -> Moments:
        slope = 0.01 if call.name == "leaky_relu" else 0.0
        if call.name != "relu":
            given = call.argument(1, "weight" if call.name == "prelu" else "negative_slope")
            slope = slope if given is None else float(torch.as_tensor(given).detach().mean())
        leaky = lambda x: nn.functional.leaky_relu(x, slope)  # noqa: E731
        return self._active(self._first(call), leaky, slope)

    def _sum(self, call: "_Call") -> Moments:
        one, other = call.pair()
        if one is other:
            raise Refused("no rule for a tensor that is added to itself")
        sign = -1.0 if "sub" in call.name else 1.0
        rows = [self.moments(one), self.moments(other)]
        made = summed(self.lifted(one), self.lifted(other), sign)
        if rows[0] is not None and rows[1] is not None:
            self.sums.append((rows[0].source, rows[1].source))
            return made
        row = next(row for row in rows if row is not None)
        return dataclasses.replace(made, gaussian=row.gaussian, slope=row.slope, source=row.source)

    def _product(self, call: "_Call") -> Moments:
        one, other = call.pair()
        if "div" in call.name:
            if self.moments(other) is not None or call.name == "rdiv":
                raise Refused("no rule for a division by random numbers")
            other = 1 / torch.as_tensor(other)
        if one is other:
            raise Refused("no rule for a tensor that is multiplied by itself")
        rows = [self.moments(one), self.moments(other)]
        if None not in rows:
            self._approximate("the factors of a product count as independent")
            return multiplied(self.lifted(one), self.lifted(other), gaussian=False)
        row = next(row for row in rows if row is not None)
        known = lifted(other if rows[1] is None else one)
        slope = row.slope * float(known.square.mean())
        return multiplied(row, known, gaussian=row.gaussian, slope=slope, source=row.source)

    def _negative(self, call: "_Call") -> Moments:
        row = self._first(call)
        return dataclasses.replace(row, mean=-row.mean)

    def _detached(self, call: "_Call") -> Moments:
        row = self._first(call)
        return dataclasses.replace(row, square=row.square.detach())

    def _batch_norm(self, call: "_Call") -> Moments:
        row = self._first(call)
        if not call.argument(5, "training"):
            raise Refused("no rule for batch normalization with stored statistics")
        variance = (row.square.detach() - row.common).mean()
        # The mean of one over a variance of n samples is larger by n/(n-3), and two of n directions
        # have no gradient.
        count = max(row.square.numel() // row.square.shape[1], 4)
        return normalized(row, variance, variance, call.affine(3, 7), (count - 2) / (count - 3))

    def _layer_norm(self, call: "_Call") -> Moments:
        row = self._first(call)
        dims = tuple(range(-len(call.argument(1, "normalized_shape")), 0))
        center = row.mean.mean(dims, keepdim=True)
        square = row.square.detach() - 2 * center * row.mean + center.square()
        return normalized(row, square.mean(dims, keepdim=True), square, call.affine(2, 4))

    def _group_norm(self, call: "_Call") -> Moments:
        row, groups = self._first(call), int(call.argument(1, "num_groups"))
        if row.square.shape[1] // groups < FEW:
            self._approximate("the mean of a small group counts as its expectation")
        parts = [each.detach().reshape(len(each), groups, -1) for each in (row.mean, row.square)]
        center = parts[0].mean(2, keepdim=True)
        square = parts[1] - 2 * center * parts[0] + center.square()
        whole = square.mean(2, keepdim=True).expand_as(square)
        shape = row.square.shape
        return normalized(row, whole.reshape(shape), square.reshape(shape), call.affine(2, 4))

    def _approximate(self, how: str) -> None:
        self.approximated.setdefault(self.place, how)


_RULES: dict[str, Callable[[Following, "_Call"], Moments]] = {
    "embedding": Following._table,
    "detach": Following._detached,
    "batch_norm": Following._batch_norm,
    "layer_norm": Following._layer_norm,
    "group_norm": Following._group_norm,
    **dict.fromkeys(("relu", "leaky_relu", "prelu"), Following._rectified),
    **dict.fromkeys(("add", "iadd", "radd", "sub", "isub"), Following._sum),
    **dict.fromkeys(("mul", "imul", "rmul", "multiply"), Following._product),
    **dict.fromkeys(
        ("div", "truediv", "itruediv", "idiv", "rdiv", "true_divide"), Following._product
    ),
    **dict.fromkeys(("neg", "negative"), Following._negative),
}


@dataclasses.dataclass(frozen=True)
class _Call:
    """A function of torch and what it was given."""

    func: Any
    args: Any
    given: dict[str, Any]

    @property
    def name(self) -> str:
        return getattr(self.func, "__name__", "").strip("_")

    @property
    def tensors(self) -> list[Tensor]:
        return _tensors((self.args, self.given))

    @property
    def is_weighted(self) -> bool:
        """Whether it multiplies by weights, as far as its name or its arguments tell."""
        if _WEIGHTED.fullmatch(self.name) or self.name == "embedding":
            return True
        if _MOVES.fullmatch(self.name) or _SAME.fullmatch(self.name) or self.name in _RULES:
            return False
        own = [each for each in self.tensors if isinstance(each, nn.Parameter)]
        return len(self.tensors) > len(own) and any(each.ndim > 1 for each in own)

    def argument(self, place: int, name: str) -> Any:
        return self.args[place] if len(self.args) > place else self.given.get(name)

    def pair(self) -> tuple[Any, Any]:
        other = self.argument(1, "other")
        if set(self.given) - {"input", "other"}:
            raise Refused(f"no rule for the options of the function {self.name}")
        return self.argument(0, "input"), other

    def affine(self, place: int, epsilon: int) -> Affine:
        gain, shift = self.argument(place, "weight"), self.argument(place + 1, "bias")
        return Affine(
            gain=1.0 if gain is None else float(gain.detach().double().square().mean()),
            shift=0.0 if shift is None else float(shift.detach().double().square().mean()),
            center=clear_mean(shift),
            epsilon=float(self.argument(epsilon, "eps") or 1e-5),
        )


def _equal_weights(call: _Call, weight: Tensor, size: float) -> Apply:
    """Return the layer with all its weights equal: what matters of random ones."""
    rest = {
        key: value for key, value in call.given.items() if key not in ("input", "weight", "bias")
    }
    whole = "transpose" in call.name or call.argument(6, "groups") not in (None, 1)
    few = weight if whole else weight[:1, :1]
    sizes = torch.full_like(few, size, dtype=torch.float64).detach()

    def apply(part: Tensor, shift: float) -> Tensor:
        if whole:
            return _plus(call.func(part, sizes, None, *call.args[3:], **rest), shift)
        # All units are alike, so that one with the sum of all inputs is enough.
        axis = part.ndim - 1 if call.name == "linear" else part.ndim - weight.ndim + 1
        made = call.func(part.sum(axis, keepdim=True), sizes, None, *call.args[3:], **rest)
        shape = (*made.shape[:axis], len(weight), *made.shape[axis + 1 :])
        return _plus(made.expand(shape), shift)

    return apply


def _plus(part: Tensor, shift: float) -> Tensor:
    return part + shift if shift else part


def _is_identity(weight: Tensor) -> bool:
    if weight.ndim != 2 or weight.shape[0] != weight.shape[1] or len(weight) < 2:
        return False
    factor = float(weight[0, 0].detach())
    return factor != 0 and torch.equal(weight, factor * torch.eye(len(weight)).to(weight))


def _edge(value: Tensor) -> Any:
    return get_gradient_edge(value) if value.requires_grad else None


def _tensors(value: Any) -> list[Tensor]:
    """Return all tensors in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | tuple | list):
        return []
    return [each for part in parts for each in _tensors(part)]
