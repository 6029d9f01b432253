"""Gates of a piecewise linear model: which units are open, and which entry each max-pool takes."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mindgap.core import InputError

T = TypeVar("T")
_RECTIFIERS = ("relu", "relu_", "leaky_relu", "leaky_relu_")
_POOLS = {f"max_pool{d}d{end}": d for d in (1, 2, 3) for end in ("", "_with_indices")}
_POOLED: tuple[Callable[..., Any], ...] = (
    F.max_pool1d_with_indices,
    F.max_pool2d_with_indices,
    F.max_pool3d_with_indices,
)
# Their slope depends on the input too, and no pattern of zeros and ones holds it fixed.
_OTHERS = re.compile(
    "abs|a?(max|min)|(max|min)imum|(adaptive|fractional)_max_pool.*|clamp.*|clip|c?elu_?|selu_?|"
    "gelu|glu|hard(sigmoid|swish|tanh)_?|(log)?sigmoid|mish|prelu|relu6|rrelu_?|silu|softplus|"
    "softsign|tanh|threshold_?"
)


def recorded(run: Callable[[], T]) -> tuple[T, list[Tensor]]:
    """Run a forward pass and note its gates, whether they are layers or function calls.

    Args:
        run: Passes a batch through a model.

    Returns:
        What ``run`` returns, and the gates in the order of their calls: for a ReLU or leaky ReLU
        where its input is above zero, for a max-pool the places of the entries that it takes.

    >>> net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.MaxPool1d(2))
    >>> output, gates = recorded(lambda: net(torch.tensor([[[-1.0, 0.0, 2.0, 3.0]]])))
    >>> [gate.flatten().tolist() for gate in gates]
    [[False, False, True, True], [0, 3]]
    """
    mode = _Recorder()
    with mode:
        result = run()
    return result, mode.gates


def replayed(gates: Sequence[Tensor], run: Callable[[], T]) -> T:
    """Run a forward pass in which every gate stays as it was recorded.

    The pass is then linear in each layer's weights. Its own inputs of the gates do not matter.

    Args:
        gates: As :func:`recorded` found them on the same batch.
        run: Passes the batch through a model of the same layers.

    >>> net = torch.nn.Sequential(torch.nn.ReLU())
    >>> replayed([torch.tensor([True, False])], lambda: net(torch.tensor([-5.0, 7.0]))).tolist()
    [-5.0, 0.0]
    """
    mode = _Replayer(iter(gates))
    with mode:
        result = run()
    if next(mode.gates, None) is not None:
        raise InputError(_OTHER_PATH)
    return result


_OTHER_PATH = (
    "A model with frozen gates must take the same path through its layers in training and in "
    "evaluation mode, got another number of gates. Write the model without such a choice."
)


class _Gates(TorchFunctionMode):
    """Sees every function of torch, layers such as ``nn.ReLU`` included."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = getattr(func, "__name__", ""), kwargs or {}
        if name in _RECTIFIERS:
            return self.rectify(func, name, args, given)
        if name in _POOLS:
            result = self.pool(_POOLS[name], args, given)
            return result if name.endswith("_with_indices") else result[0]
        if _OTHERS.fullmatch(name):
            raise InputError(
                f"Gates must belong to a ReLU, a leaky ReLU or a max-pool, got {name}. Use one of "
                "these in the model."
            )
        return func(*args, **given)

    def rectify(self, func: Any, name: str, args: Any, given: Mapping[str, Any]) -> Tensor:
        """Compute a ReLU or a leaky ReLU."""
        raise NotImplementedError

    def pool(self, dimensions: int, args: Any, given: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Compute a max-pool and the places that it takes."""
        raise NotImplementedError


class _Recorder(_Gates):
    def __init__(self) -> None:
        super().__init__()
        self.gates: list[Tensor] = []

    def rectify(self, func: Any, name: str, args: Any, given: Mapping[str, Any]) -> Tensor:  # noqa: ARG002
        self.gates.append(_first(args, given).detach() > 0)
        result: Tensor = func(*args, **given)
        return result

    def pool(self, dimensions: int, args: Any, given: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        values, places = _POOLED[dimensions - 1](*args, **given)
        self.gates.append(places)
        return values, places


class _Replayer(_Gates):
    def __init__(self, gates: Iterator[Tensor]) -> None:
        super().__init__()
        self.gates = gates

    def _next(self) -> Tensor:
        gate = next(self.gates, None)
        if gate is None:
            raise InputError(_OTHER_PATH)
        return gate

    def rectify(self, func: Any, name: str, args: Any, given: Mapping[str, Any]) -> Tensor:  # noqa: ARG002
        values, slope = _first(args, given), _slope(name, args, given)
        result = torch.where(self._next(), values, slope * values if slope else 0.0)
        # A layer that works in place may have its answer read from its input.
        in_place = name.endswith("_") or given.get("inplace", False)
        return values.copy_(result) if in_place else result

    def pool(self, dimensions: int, args: Any, given: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        places = self._next()
        flat = _first(args, given).flatten(-dimensions)
        taken = flat.gather(-1, places.flatten(-dimensions))
        return taken.view(places.shape), places


def _first(args: Any, given: Mapping[str, Any]) -> Tensor:
    found: Tensor = args[0] if args else given["input"]
    return found


def _slope(name: str, args: Any, given: Mapping[str, Any]) -> float:
    """The slope below zero, which may be the second argument."""
    if not name.startswith("leaky"):
        return 0.0
    return float(args[1] if len(args) > 1 else given.get("negative_slope", 0.01))
