"""Path norms of any network of linear maps, ReLU and pooling, residual sums included.

The network runs once, on ones, with every weight replaced by its p-th power without sign. What
arrives at an output then is the sum over all paths to it of the products of these powers. Sums that
would overflow are divided by their largest, whose logarithm is kept beside them.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mindgap.core import InputError, Inputs, call, copied, evaluating, implements, mapped
from mindgap.ops.norms.watch import as_inputs

# They pass values on, sort them or ask for their shape; gates of ReLU are open for what is positive.
_SAME = re.compile(
    "get|view|reshape|flatten|unflatten|permute|transpose|t|squeeze|unsqueeze|contiguous|getitem|chunk|"
    "split|clone|detach|narrow|select|movedim|expand|repeat|size|dim|numel|ndimension|len|is_complex|"
    "is_floating_point|type|cat|concat|stack|relu|sum|(feature_)?dropout[12]?d?"
)
_CAST = re.compile("to|float|double|half|bfloat16|type_as|requires_grad")
_ALIASES = {
    **{f"{way}{name}": name for way in ("i", "r") for name in ("add", "sub", "mul")},
    **dict.fromkeys(("idiv", "truediv", "itruediv"), "div"),
}
LARGEST = 1e100  # sums beyond are divided by their largest
_LINEAR = frozenset(
    ["linear", *(f"conv{end}{d}d" for d in (1, 2, 3) for end in ("", "_transpose"))]
)


@implements("E10", cites=("neyshabur2015path", "gonon2024path"))
def log_path_norm(model: nn.Module, inputs: Tensor | Inputs, power: float = 2.0) -> Tensor:
    r"""Compute, for each output, the logarithm of the sum of |w|^p over all paths to it.

    Formula: $\ln \sum_{path \to k} \prod_{e \in path} |w_e|^p$

    Reading: ReLU rescaling leaves it alone. Each place of a max-pool's window is a path, and
    BatchNorm counts as folded into the layer before it.

    Assumes: Layers that are linear, ReLU, leaky ReLU with a slope up to one, pooling, sums.
    Anything else is refused.

    Args:
        model: Any module.
        inputs: A batch; its shape counts.
        power: p.

    >>> net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1, bias=False))
    >>> with torch.no_grad():
    ...     _ = [weight.fill_(-2.0) for weight in net.parameters()]
    >>> log_path_norm(net, torch.zeros(1, 2), 1.0).exp().round()  # 6 paths of weight 4
    tensor([24.], dtype=torch.float64)
    """
    own = copied(model).cpu().double()
    ones = mapped(as_inputs(inputs), _ones)
    mode = _Paths(power)
    with evaluating(own), mode:
        for value in ones.values() if isinstance(ones, dict) else ones:
            mode.known(value)
        output = call(own, ones, torch.empty(0, dtype=torch.double))
    if not bool(torch.isfinite(output).all()):
        raise InputError(
            "The weights must be finite numbers, got NaN or infinity on a path. Train the model again."
        )
    return output[0].flatten().log() + mode.scale(output)


def _ones(value: Tensor) -> Tensor:
    if not value.is_floating_point():
        raise InputError(
            f"Paths must begin at real inputs, got {value.dtype}. Choose another measure."
        )
    return torch.ones(1, *value.shape[1:], dtype=torch.double)


class _Paths(TorchFunctionMode):
    """Runs every function on sums over paths in place of activations."""

    def __init__(self, power: float) -> None:
        super().__init__()
        self.power = power
        self.kept: dict[int, Tensor] = {}  # sums; kept, so that no other tensor gets their id
        self.biased: dict[int, tuple[Tensor, Tensor]] = {}  # without bias, and the signed bias
        self.scales: dict[int, float] = {}  # logarithms of what sums were divided by
        self.shrink = 1.0  # what is added to the sums of the present call is divided as they are

    def known(self, value: Any, scale: float = 0.0) -> Any:
        """Note that a tensor holds sums over paths, divided by the exponential of a scale."""
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, Tensor):
                self.kept[id(each)], self.scales[id(each)] = each, scale
        return value

    def scale(self, value: Any) -> float:
        """Return the logarithm of what sums were divided by."""
        return self.scales.get(id(value), 0.0)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, name = kwargs or {}, getattr(func, "__name__", "")
        sums = [value for value in _flat((*args, *given.values())) if self._is_sum(value)]
        if not sums:
            return func(*args, **given)
        scale = max(self.scale(value) for value in sums)
        self.shrink = math.exp(-scale)
        like = tuple(self._aligned(value, scale) for value in args)
        named = {key: self._aligned(value, scale) for key, value in given.items()}
        found = self._through(func, name.strip("_"), like, named)
        # Whoever works in place may read the answer from the input.
        if name.endswith("_") and not name.endswith("__"):
            return self.known(args[0].copy_(found), scale)
        largest = float(found.max()) if isinstance(found, Tensor) and found.numel() else 1.0
        if not LARGEST < largest < math.inf:
            return self.known(found, scale)
        if id(found) in self.biased:
            plain, bias = self.biased.pop(id(found))
            found = found / largest
            self.biased[id(found)] = plain / largest, bias
        else:
            found = found / largest
        return self.known(found, scale + math.log(largest))

    def _aligned(self, value: Any, scale: float) -> Any:
        """Bring the sums among some values, also in lists, to one scale."""
        if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
            return type(value)(self._aligned(each, scale) for each in value)
        own = self.scale(value)
        if not self._is_sum(value) or own == scale:
            return value
        return self.known(value * math.exp(own - scale), scale)

    def _through(self, func: Any, name: str, args: Any, given: Mapping[str, Any]) -> Any:
        if _CAST.fullmatch(name):
            return args[0]
        if _SAME.fullmatch(name):
            return func(*args, **given)
        if name in _LINEAR:
            return self._linear(func, *args, **given)
        rule = getattr(self, f"_{_ALIASES.get(name, name)}", None)
        if rule is None:
            raise InputError(
                f"Paths must run through linear maps, ReLU, pooling and sums, got {name}. Choose "
                "another measure, or such a network."
            )
        return rule(*args, **given)

    def _is_sum(self, value: Any) -> bool:
        return isinstance(value, Tensor) and id(value) in self.kept

    def _edge(self, value: Any) -> Any:
        return abs(value) ** self.power

    def _linear(
        self, func: Any, sums: Tensor, weight: Tensor, bias: Any = None, *rest: Any, **named: Any
    ) -> Tensor:
        found: Tensor = func(sums, self._edge(weight), None, *rest, **named)
        if bias is None:
            return found
        shape = (-1, *[1] * (found.ndim - 2)) if func is not nn.functional.linear else (-1,)
        total: Tensor = found + self.shrink * self._edge(bias).view(shape)
        self.known(total)
        self.biased[id(total)] = found, bias
        return total

    def _batch_norm(
        self,
        sums: Tensor,
        mean: Any,
        var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float = 0.1,  # noqa: ARG002
        eps: float = 1e-5,
    ) -> Tensor:
        if training or mean is None or var is None:
            raise InputError(
                "BatchNorm must have running statistics for path norms, got one without. Choose "
                "another measure."
            )
        scale = (1.0 if weight is None else weight) / (var + eps).sqrt()
        # The bias of the layer before becomes part of the shift, with its sign.
        plain, before = self.biased.get(id(sums), (sums, torch.zeros_like(mean)))
        shift = scale * (before - mean) + (0.0 if bias is None else bias)
        shape = (-1, *[1] * (sums.ndim - 2))
        added = self.shrink * self._edge(shift).view(shape)
        found: Tensor = plain * self._edge(scale).view(shape) + added
        return found

    def _add(self, one: Any, other: Any, *, alpha: float = 1) -> Tensor:
        left, right = (v if self._is_sum(v) else self.shrink * self._edge(v) for v in (one, other))
        found: Tensor = left + right * abs(alpha) ** self.power
        return found

    _sub = _add

    def _mul(self, one: Any, other: Any) -> Tensor:
        if self._is_sum(one) and self._is_sum(other):
            raise InputError(
                "Paths must not be multiplied with each other, got a product of two activations. "
                "Choose another measure."
            )
        sums, factor = (one, other) if self._is_sum(one) else (other, one)
        found: Tensor = sums * self._edge(factor)
        return found

    def _div(self, one: Any, other: Any) -> Tensor:
        if self._is_sum(other):
            raise InputError(
                "Paths must not divide, got a division by an activation. Choose another measure."
            )
        found: Tensor = one / self._edge(other)
        return found

    def _leaky_relu(
        self,
        sums: Tensor,
        negative_slope: float = 0.01,
        inplace: bool = False,  # noqa: ARG002
    ) -> Tensor:
        if abs(negative_slope) > 1:
            raise InputError(
                f"The slope of a leaky ReLU must be at most 1, got {negative_slope}. Choose another "
                "measure."
            )
        return sums

    def _mean(self, sums: Tensor, *args: Any, **named: Any) -> Tensor:
        total: Tensor = sums.sum(*args, **named)
        found: Tensor = total * (total.numel() / sums.numel()) ** self.power
        return found

    def _amax(self, sums: Tensor, *args: Any, **named: Any) -> Tensor:
        return sums.sum(*args, **named)

    def _pad(self, sums: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
        if mode == "constant":
            return nn.functional.pad(sums, pad, mode, self.shrink * self._edge(value or 0.0))
        return nn.functional.pad(sums, pad, mode)

    def _max_pool1d(self, sums: Tensor, *args: Any, **named: Any) -> Tensor:
        return _window_sums(sums, 1, *args, **named)

    def _max_pool2d(self, sums: Tensor, *args: Any, **named: Any) -> Tensor:
        return _window_sums(sums, 2, *args, **named)

    def _max_pool3d(self, sums: Tensor, *args: Any, **named: Any) -> Tensor:
        return _window_sums(sums, 3, *args, **named)

    def _avg_pool2d(self, sums: Tensor, *args: Any, **named: Any) -> Tensor:
        # An output that averages c places has weights 1/c: what all weights make of ones is 1/c^p.
        names = (
            "kernel_size",
            "stride",
            "padding",
            "ceil_mode",
            "count_include_pad",
            "divisor_override",
        )
        settings = {**dict(zip(names, args, strict=False)), **named}
        whole = {**settings, "divisor_override": 1}
        ones = torch.ones_like(sums[:1, :1])
        weight = nn.functional.avg_pool2d(ones, **settings) / nn.functional.avg_pool2d(
            ones, **whole
        )
        found: Tensor = nn.functional.avg_pool2d(sums, **whole) * self._edge(weight)
        return found

    def _adaptive_avg_pool2d(self, sums: Tensor, output_size: Any) -> Tensor:
        found = nn.functional.adaptive_avg_pool2d(sums, output_size)
        counts = [
            torch.tensor([-(-(i + 1) * size // out) - i * size // out for i in range(out)])
            for size, out in zip(sums.shape[-2:], found.shape[-2:], strict=True)
        ]
        places = counts[0][:, None] * counts[1]
        return found * places ** (1 - self.power)


def _window_sums(
    sums: Tensor,
    dimensions: int,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Add up each window of a max-pool."""
    if ceil_mode or return_indices:
        raise InputError(
            "A max-pool on paths must have no ceil_mode and return no indices, got one with. Choose "
            "another measure."
        )
    size = (kernel_size,) * dimensions if isinstance(kernel_size, int) else tuple(kernel_size)
    ones = torch.ones(sums.shape[1], 1, *size, dtype=sums.dtype)
    convolve: Callable[..., Tensor] = getattr(nn.functional, f"conv{dimensions}d")
    step = size if stride is None or stride == [] else stride
    return convolve(sums, ones, None, step, padding, dilation, groups=sums.shape[1])


def _flat(values: Any) -> list[Any]:
    """List the values, also those inside lists, such as the tensors of a concatenation."""
    nested = (value if isinstance(value, tuple | list) else (value,) for value in values)
    return [each for group in nested for each in group]
