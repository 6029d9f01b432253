"""What a model does to its input, function by function, ready to be called on other inputs."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mindgap.core import copied, evaluating
from mindgap.ops.lipschitz.slopes import KNOWN, slope_range

# Linear in what depends on the input, as long as that is one argument.
_LINEAR = re.compile(
    "get|view(_as)?|reshape(_as)?|flatten|unflatten|permute|transpose|t|squeeze|unsqueeze|contiguous|"
    "getitem|chunk|split|clone|detach|narrow|select|movedim|moveaxis|swapaxes|unbind|flip|roll|to|float|"
    "double|type|(feature_)?dropout[123]?d?|linear|conv(_transpose)?[123]d|(adaptive_)?avg_pool[123]d|"
    "pad|mean|sum|cumsum|neg|expand|expand_as|repeat|interpolate|pixel_shuffle|index_select|diff"
)
# Affine in one argument if the others do not depend on the input.
_SCALED = re.compile("[ir]?mul|multiply|i?(true)?div|divide|r?matmul|mm|bmm|mv|addmm")
_SUMS = re.compile("[ir]?(add|sub)|subtract|rsub|cat|concat|concatenate|stack|hstack|vstack")
_POOLS = re.compile("max_pool[123]d")
_NAMES = {"sigmoid_": "sigmoid", "log_sigmoid": "logsigmoid", "relu_": "relu"}


class NotCovered(Exception):  # noqa: N818  (a verdict, not a fault)
    """Something for which there is no tight bound; the text says what."""


@dataclasses.dataclass(frozen=True)
class _Ref:
    """A result, by its place in the list of nodes."""

    place: int


@dataclasses.dataclass(frozen=True)
class Node:
    """A function whose result depends on the input.

    Args:
        name: The function's name.
        function: The function.
        args: Its arguments, with a reference for what depends on the input.
        given: Its arguments by name.
        shape: The shape of the result.
        item: The place of the result, if the function returns several.
        gain: The largest slope of an activation that a max-pooling took up.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    given: dict[str, Any]
    shape: torch.Size
    item: int | None = None
    gain: float = 1.0

    @property
    def pools(self) -> bool:
        """Whether it is a max-pooling."""
        return _POOLS.fullmatch(self.name) is not None

    @property
    def bends(self) -> bool:
        """Whether it is an activation or a max-pooling."""
        return self.name in KNOWN or self.pools

    @property
    def refs(self) -> list[int]:
        """The places of the results that it takes."""
        return [each.place for each in _flat((self.args, self.given)) if isinstance(each, _Ref)]

    @property
    def slopes(self) -> tuple[float, float]:
        """The smallest and the largest slope of an activation."""
        return slope_range(self.name, self.args[1:], self.given)

    def value(self, known: dict[int, Tensor]) -> Tensor:
        """Call the function on other results."""
        args, given = (
            _replaced(each, lambda one: known[one.place] if isinstance(one, _Ref) else one)
            for each in (self.args, self.given)
        )
        found = self.function(*args, **given)
        return found if self.item is None else found[self.item]  # type: ignore[no-any-return]

    def alone(self, value: Tensor) -> Tensor:
        """Call a function of one result."""
        return self.value(dict.fromkeys(self.refs, value))


@dataclasses.dataclass(frozen=True)
class Trace:
    """All functions on the way from the input, which is the first node, to the output.

    Args:
        nodes: In the order of their calls; what the output does not need is None.
        out: The place of the output.
    """

    nodes: tuple[Node | None, ...]
    out: int


def traced(model: nn.Module, sample: Tensor) -> Trace:
    """Note what a model does to one input, in double precision and evaluation mode.

    Args:
        model: It is not changed. It must take the same way for all inputs.
        sample: One input, without the batch.

    >>> trace = traced(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.ones(2))
    >>> [node.name for node in trace.nodes]
    ['input', 'linear', 'relu']
    """
    private = copied(model).cpu().double().requires_grad_(False)
    given = sample.detach().cpu().double()[None].clone()
    mode = _Notes(given)
    with evaluating(private), mode:
        output = private(given)
    place = mode.place(output)
    if place is None:
        raise NotCovered("the output is not one tensor that depends on the input")
    nodes = _pools_first(mode.nodes, place)
    needed = _needed(nodes, place)
    for k in needed:
        _check(nodes[k])
    return Trace(tuple(node if k in needed else None for k, node in enumerate(nodes)), place)


class _Notes(TorchFunctionMode):
    """Notes every function of what depends on the input."""

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.nodes = [Node("input", torch.clone, (), {}, given.shape)]
        # The tensors are kept, so that no other gets their id.
        self.known: dict[int, tuple[Any, int]] = {id(given): (given, 0)}

    def place(self, value: Any) -> int | None:
        entry = self.known.get(id(value))
        return None if entry is None else entry[1]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, full = kwargs or {}, getattr(func, "__name__", "")
        held, named = _replaced(tuple(args), self._ref), _replaced(given, self._ref)
        result = func(*args, **given)
        several = isinstance(result, tuple | list)
        results = [each for each in (result if several else (result,)) if isinstance(each, Tensor)]
        if not results or not any(isinstance(each, _Ref) for each in _flat((held, named))):
            return result
        name = full.strip("_")
        node = Node(_NAMES.get(name, name), _out_of_place(func), held, named, torch.Size())
        for item, each in enumerate(results):
            self.known[id(each)] = (each, len(self.nodes))
            place = item if several else None
            self.nodes.append(dataclasses.replace(node, shape=each.shape, item=place))
        return result

    def _ref(self, value: Any) -> Any:
        place = self.place(value) if isinstance(value, Tensor) else None
        return value if place is None else _Ref(place)


def _out_of_place(func: Callable[..., Any]) -> Callable[..., Any]:
    """Protect what a function that works in place would change."""

    def safe(first: Any, *args: Any, **given: Any) -> Any:
        return func(first.clone() if isinstance(first, Tensor) else first, *args, **given)

    return safe


def _pools_first(nodes: list[Node], out: int) -> list[Node]:
    """Let a max-pooling take up the activation before it: together they bend once."""
    counts = [sum(node.refs.count(k) for node in nodes) for k in range(len(nodes))]
    changed = list(nodes)
    for k, node in enumerate(nodes):
        before = node.refs[0] if node.pools else 0
        inner = nodes[before]
        if inner.name in KNOWN - {"prelu"} and counts[before] == 1 and before != out:
            changed[k] = dataclasses.replace(
                node,
                function=_both(inner, node),
                args=(_Ref(inner.refs[0]),),
                given={},
                gain=max(map(abs, inner.slopes)),
            )
    return changed


def _both(inner: Node, pool: Node) -> Callable[[Tensor], Tensor]:
    return lambda value: pool.alone(inner.alone(value))


def _needed(nodes: list[Node], out: int) -> set[int]:
    found, left = {0, out}, [out]
    while left:
        new = set(nodes[left.pop()].refs) - found
        found |= new
        left += new
    return found


def _check(node: Node) -> None:
    """Refuse what is not affine, no activation and no max-pooling."""
    name, count = node.name, len(node.refs)
    fine = name == "input" or node.bends or _SUMS.fullmatch(name) is not None
    if count == 1:
        first = bool(node.args) and isinstance(node.args[0], _Ref)
        fine = fine or _LINEAR.fullmatch(name) is not None
        fine = fine or (_SCALED.fullmatch(name) is not None and (first or "div" not in name))
        if name == "batch_norm":
            fine = not node.given.get("training", (*node.args, *[False] * 6)[5])
    if not fine:
        raise NotCovered(f"the function {name} is neither affine nor a known activation")


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        return [each for one in value for each in _flat(one)]
    return [value]


def _replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(each, change) for key, each in value.items()}
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return type(value)(_replaced(each, change) for each in value)
    return change(value)
