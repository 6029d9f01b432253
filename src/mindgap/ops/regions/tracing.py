"""A network run on all cells at once: affine functions as they are, others by cutting the cells."""

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mindgap.core import InputError
from mindgap.ops.regions.cells import Cells

_AFFINE = re.compile(
    "linear|conv(_transpose)?[123]d|(adaptive_)?avg_pool[123]d|batch_norm|instance_norm|flatten|unflatten|view|"
    "reshape|permute|transpose|t|squeeze|unsqueeze|contiguous|cat|concat|stack|[ir]?(add|sub)|neg|mean|sum|"
    "getitem|pad|(feature_)?dropout[123]?d?|chunk|split|clone|detach|to|double|float|movedim|narrow|select|"
    "identity|get|type|expand|repeat|interpolate|upsample|pixel_shuffle|view_as|expand_as"
)
_PRODUCT = re.compile("[ir]?(mul|matmul)|i?(true)?div(ide)?|mm|bmm|einsum|addmm|baddbmm|multiply")
_ASKED = re.compile("size|dim|numel|ndimension|len|is_(floating_point|complex)|stride|device|dtype")


class _PiecewiseLinear(TorchFunctionMode):
    """Follows every tensor that depends on the inputs, and cuts the cells where a kink runs.

    Args:
        cells: The cells at the beginning.
        most: The largest number of cells before it gives up.
    """

    def __init__(self, cells: Cells, most: int) -> None:
        super().__init__()
        self.cells, self.most, self.kinks = cells, most, 0
        self._parents: list[Tensor] = []  # for every cut, the old cell of every new one
        self._known: dict[int, tuple[Tensor, Tensor, int]] = {}

    def follow(self, tensor: Tensor, value: Tensor | None = None) -> Tensor:
        """Remember that a tensor has one row per cell and anchor."""
        value = tensor if value is None else value
        self._known[id(tensor)] = (tensor, value, len(self._parents))
        return tensor

    def current(self, tensor: Any) -> Any:
        """Return a followed tensor with one row per present cell and anchor; others unchanged."""
        if isinstance(tensor, tuple | list):
            return (
                type(tensor)(map(self.current, tensor)) if type(tensor) in (tuple, list) else tensor
            )
        entry = self._known.get(id(tensor)) if isinstance(tensor, Tensor) else None
        if entry is None:
            return tensor
        _, value, age = entry
        for parents in self._parents[age:]:
            value = self._by_cell(value)[parents].flatten(0, 1)
        return value

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, name = kwargs or {}, getattr(func, "__name__", "").strip("_")
        flat = [one for value in (*args, *given.values()) for one in _each(value)]
        followed = [one for one in flat if isinstance(one, Tensor) and id(one) in self._known]
        if not followed or _ASKED.fullmatch(name):
            return func(*args, **given)
        new = [self.current(value) for value in args]
        named = {key: self.current(value) for key, value in given.items()}
        if rule := _RULES.get(name):
            result = rule(self, *new, **{k: v for k, v in named.items() if k != "inplace"})
        elif self._is_affine(name, len(followed), new, named):
            result = _in_order(func, new, named)
        else:
            raise InputError(
                f"The network must be piecewise linear, got the function {name!r}, which is not or "
                "has no rule. Count the regions of the part before it."
            )
        self._check(name, result)
        changed = getattr(func, "__name__", "").endswith("_") and not name.endswith("item")
        if (changed and not func.__name__.startswith("__")) or given.get("inplace") or _iadd(func):
            self.follow(followed[0], result)  # the tensor itself is what changed
        return result

    def _is_affine(self, name: str, count: int, args: Any, named: Any) -> bool:
        if name == "batch_norm":
            return not (named.get("training") or (len(args) > 5 and args[5]))
        if name == "instance_norm":
            return False
        if _PRODUCT.fullmatch(name):
            return count == 1 and not (name.endswith("div") and not isinstance(args[0], Tensor))
        return bool(_AFFINE.fullmatch(name))

    def _check(self, name: str, result: Any) -> None:
        for one in _each(result):
            if isinstance(one, Tensor):
                if one.ndim < 1 or len(one) != len(self.cells) * self.cells.anchors:
                    raise InputError(
                        "The network must treat every sample by itself, got the function "
                        f"{name!r}, which changes the number of samples. Remove it."
                    )
                self.follow(one)

    def _by_cell(self, value: Tensor) -> Tensor:
        return value.view(-1, self.cells.anchors, *value.shape[1:])

    def bent(self, value: Tensor, at: Any, choose: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Cut where the value is ``at``; choose by whether it is larger inside the cell."""
        shifted = self._by_cell(value - at).flatten(2)
        self.kinks += shifted.shape[2]
        origin = self._cut(self.cells.cut(shifted))
        above = torch.einsum("ka,kaf->kf", self.cells.centers(), shifted[origin]) > 0
        mine = self._by_cell(value)[origin]
        wide = above.view(len(mine), 1, *value.shape[1:]).expand_as(mine)
        return choose(mine, wide).flatten(0, 1)

    def largest(self, values: Tensor, candidates: Tensor) -> Tensor:
        """Take the largest of the last dimension.

        Args:
            values: Of shape (rows, maxima, functions).
            candidates: Which functions take part, of shape (maxima, functions).
        """
        mine = self._by_cell(values)
        self.kinks += mine.shape[2]
        mine = mine[self._cut(self.cells.largest(mine, candidates))]
        heights = torch.einsum("ka,kamf->kmf", self.cells.centers(), mine)
        first = heights.masked_fill(~candidates, -math.inf).argmax(2)
        index = first[:, None, :, None].expand(-1, mine.shape[1], -1, 1)
        return mine.gather(3, index)[..., 0].flatten(0, 1)

    def _cut(self, origin: Tensor) -> Tensor:
        if len(self.cells) > self.most:
            raise InputError(
                f"At most {self.most:,} regions can be counted, got more. Choose a smaller part of "
                "the input space, or raise most=."
            )
        self._parents.append(origin)
        return origin


def _each(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _iadd(func: Any) -> bool:
    return bool(re.fullmatch("__i(add|sub|mul|truediv)__", getattr(func, "__name__", "")))


def _in_order(func: Any, args: Any, named: Any) -> Any:
    first = args[0].clone() if args and isinstance(args[0], Tensor) else None
    return func(*([first, *args[1:]] if first is not None else args), **named)


def _relu(mode: _PiecewiseLinear, value: Tensor, *_: Any) -> Tensor:
    return mode.bent(value, 0, lambda mine, above: mine * above)


def _leaky(
    mode: _PiecewiseLinear, value: Tensor, slope: Any = 0.01, *_: Any, **more: Any
) -> Tensor:
    factor = more.get("negative_slope", slope)
    return mode.bent(value, 0, lambda mine, above: torch.where(above, mine, factor * mine))


def _prelu(mode: _PiecewiseLinear, value: Tensor, weight: Tensor) -> Tensor:
    wide = weight.view(-1, *[1] * (value.ndim - 2)) if weight.numel() > 1 else weight
    return mode.bent(value, 0, lambda mine, above: torch.where(above, mine, wide * mine))


def _absolute(mode: _PiecewiseLinear, value: Tensor) -> Tensor:
    return mode.bent(value, 0, lambda mine, above: torch.where(above, mine, -mine))


def _clamped(mode: _PiecewiseLinear, value: Tensor, *ends: Any, **named: Any) -> Tensor:
    names = ("min", "max"), ("min_val", "max_val")
    low, high = (
        named.get(first, named.get(second, ends[k] if k < len(ends) else None))
        for k, (first, second) in enumerate(zip(*names, strict=True))
    )
    if low is not None:
        value = mode.bent(
            value, low, lambda mine, above: torch.where(above, mine, _like(mine, low))
        )
    if high is not None:
        value = mode.bent(
            value, high, lambda mine, above: torch.where(above, _like(mine, high), mine)
        )
    return value


def _like(mine: Tensor, number: Any) -> Tensor:
    return torch.as_tensor(number, dtype=mine.dtype)


def _pair(mode: _PiecewiseLinear, one: Tensor, other: Tensor, sign: int) -> Tensor:
    one, other = torch.broadcast_tensors(one, other)
    both = sign * torch.stack([one.flatten(1), other.flatten(1)], 2)
    every = torch.ones(both.shape[1:], dtype=torch.bool)
    return (sign * mode.largest(both, every)).view(-1, *one.shape[1:])


def _pooled(
    mode: _PiecewiseLinear,
    value: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Take the largest entry of every window, of images or of sequences."""
    flat = value.ndim == 3
    if ceil_mode or return_indices or value.ndim not in (3, 4):
        raise InputError(
            "Max-pooling must be of sequences or images, with ceil_mode=False and without indices, "
            "got another. Count the regions of the part before it."
        )
    images = value[:, :, None] if flat else value
    sizes = [_two(one, flat, 0 if k == 2 else 1) for k, one in enumerate(
        (kernel_size, kernel_size if stride is None or stride == [] else stride, padding, dilation))]  # fmt: skip
    (kernel, step, pad, gap), (rows, columns) = sizes, images.shape[2:]
    places = torch.arange(1, rows * columns + 1, dtype=torch.double).view(1, 1, rows, columns)
    windows = (
        nn.functional.unfold(places, kernel, gap, pad, step)[0].T.long() - 1
    )  # (maxima, entries)
    entries = images.flatten(2)[:, :, windows.clamp_min(0)]
    candidates = (windows >= 0).repeat(images.shape[1], 1)
    found = mode.largest(entries.flatten(1, 2), candidates)
    spans = zip(images.shape[2:], kernel, step, pad, gap, strict=True)
    left = [(n + 2 * p - g * (k - 1) - 1) // s + 1 for n, k, s, p, g in spans]
    shaped = found.view(len(found), images.shape[1], *left)
    return shaped[:, :, 0] if flat else shaped


def _two(number: Any, flat: bool, neutral: int) -> tuple[int, int]:
    numbers = tuple(number) if isinstance(number, tuple | list) else (number,)
    if flat:
        return neutral, int(numbers[0])
    return int(numbers[0]), int(numbers[-1])


_RULES: dict[str, Callable[..., Tensor]] = {
    "relu": _relu,
    "leaky_relu": _leaky,
    "prelu": _prelu,
    "abs": _absolute,
    "relu6": lambda mode, value, *_: _clamped(mode, value, 0.0, 6.0),
    "hardtanh": lambda mode, value, low=-1.0, high=1.0, *_, **named: _clamped(
        mode, value, named.get("min_val", low), named.get("max_val", high)
    ),
    "clamp": _clamped,
    "clip": _clamped,
    "clamp_min": lambda mode, value, low: _clamped(mode, value, low),
    "clamp_max": lambda mode, value, high: _clamped(mode, value, None, high),
    "maximum": lambda mode, one, other: _pair(mode, one, other, 1),
    "minimum": lambda mode, one, other: _pair(mode, one, other, -1),
    "max_pool1d": _pooled,
    "max_pool2d": _pooled,
    "boolean_dispatch": _pooled,
}


def run(model: nn.Module, anchors: Tensor, cells: Cells, most: int) -> tuple[Tensor, int]:
    """Run a model in double precision on the anchors of one cell, and cut the cells.

    Args:
        model: In evaluation mode and double precision; every function in it must have a rule.
        anchors: The inputs at the anchors.
        cells: One cell, which is cut in place.
        most: The largest number of cells.

    Returns:
        The outputs at the anchors, of shape (cells, anchors, …), and the number of kinks met.
    """
    mode = _PiecewiseLinear(cells, most)
    with torch.no_grad(), mode:
        output = model(mode.follow(anchors))
    if not isinstance(output, Tensor):
        raise InputError(
            f"The network must return a tensor, got {type(output).__name__}. Wrap the model."
        )
    with torch.no_grad():
        return mode._by_cell(mode.current(output)), mode.kinks
