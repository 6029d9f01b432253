"""Calls of a model: with inputs of any kind, checked, and compared with each other."""

import contextlib
import copy
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from mindgap.core.errors import InputError, NotFiniteError
from mindgap.core.purity import preserved
from mindgap.core.split import Inputs, Split

PIECE = 2**19  # numbers that are joined to one piece


def call(model: nn.Module, inputs: Inputs, like: Tensor) -> Tensor:
    """Call a model and take the logits out of whatever it returns.

    Args:
        model: Returns a tensor, a tuple that starts with one, or an object with ``.logits``.
        inputs: Positional inputs as a tuple, or named ones as a dict.
        like: A parameter, for the device and precision of the inputs.

    >>> call(nn.Linear(2, 3), (torch.zeros(4, 2),), like=torch.zeros(1)).shape
    torch.Size([4, 3])
    """
    # Whoever watches the functions of torch, as a recorder of gates does, wants to see the pools.
    watched = torch.is_grad_enabled() or bool(_get_current_function_mode_stack())
    with contextlib.nullcontext() if watched else _Pooling():
        if isinstance(inputs, dict):
            output = model(**{name: _moved(value, like) for name, value in inputs.items()})
        else:
            output = model(*(_moved(value, like) for value in inputs))
    if isinstance(output, Tensor):
        return output
    found = getattr(output, "logits", output[0] if isinstance(output, tuple) else None)
    if not isinstance(found, Tensor):
        raise InputError(
            "The model must return a tensor, a tuple that starts with one, or an object with "
            f".logits, got {type(output).__name__}. Wrap the model so that it does."
        )
    return found


def with_weights(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    given: tuple[Any, ...],
    named: Mapping[str, Any],
) -> Any:
    """Call a model with other weights or buffers than its own, which it keeps.

    ``functional_call`` alone would leave the other weights in a module that is held in two places.

    Args:
        model: Any module.
        weights: Tensors by name. Those that share a tensor in the model share it here.
        given: Its positional inputs.
        named: Its named inputs.

    >>> shared = nn.Linear(1, 1, bias=False)
    >>> net = nn.Sequential(shared, shared)
    >>> with_weights(net, {"0.weight": torch.full((1, 1), 3.0)}, (torch.ones(1, 1),), {}).tolist()
    [[9.0]]
    >>> net[1].weight is shared.weight and isinstance(shared.weight, nn.Parameter)
    True
    """
    # A module that is held twice has one entry here, a tensor that two modules hold has two.
    modules = dict(model.named_modules())
    holders = dict[int, list[str]]()
    for path, module in modules.items():
        for table in (module._parameters, module._buffers):
            for key, own in table.items():
                if own is not None:
                    holders.setdefault(id(own), []).append(f"{path}.{key}" if path else key)
    found = dict[str, Tensor]()
    for name, value in weights.items():
        path, _, key = name.rpartition(".")
        module = modules[path] if path in modules else model.get_submodule(path)
        own = module._parameters.get(key, module._buffers.get(key))
        found |= dict.fromkeys(holders[id(own)], value)
    return functional_call(model, found, given, dict(named), tie_weights=False)


class JoinedRows:
    """Rows that come batch by batch, joined to large pieces at once.

    Thousands of small pieces that wait for the last batch would leave as many holes in memory.

    >>> rows = JoinedRows()
    >>> rows.add(torch.zeros(2, 1)), rows.add(torch.ones(1, 1)), rows.count
    (None, None, 3)
    >>> rows.joined().flatten().tolist()
    [0.0, 0.0, 1.0]
    """

    def __init__(self) -> None:
        self.count, self._waiting = 0, 0
        self._pieces, self._small = list[Tensor](), list[Tensor]()

    def add(self, rows: Tensor) -> None:
        """Add the rows of a batch."""
        self.count += len(rows)
        self._waiting += rows.numel()
        self._small.append(rows)
        if self._waiting >= PIECE:
            self._pieces.append(torch.cat(self._small))
            self._small, self._waiting = [], 0

    def joined(self) -> Tensor:
        """Return all rows in order."""
        return torch.cat([*self._pieces, *self._small])


class _Pooling(TorchFunctionMode):
    """Takes the maxima of windows by comparing slices: the same numbers, in a fifth of the time.

    The kernel of torch goes through the windows one by one on a CPU, which takes more time than the
    convolutions of a LeNet-5. A derivative would divide ties otherwise, so none may be wanted.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in _POOLS:
            found = largest_in_windows(*args, **given)
            if found is not None:
                return found
        return func(*args, **given)


_POOLS = (nn.functional.max_pool2d, torch.max_pool2d)
LARGEST_WINDOW = 4  # places along an axis; the time of slices grows with them


def largest_in_windows(
    input: Tensor,  # noqa: A002  (the name that torch gives it)
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    """Compute ``max_pool2d`` by slices, without a derivative; None where torch should do it.

    >>> values = torch.arange(16.0).view(1, 1, 4, 4)
    >>> largest_in_windows(values, 2).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    size, step = _pair(kernel_size), _pair(stride or kernel_size)
    plain = _pair(padding) == (0, 0) and _pair(dilation) == (1, 1)
    usual = plain and not ceil_mode and not return_indices and max(size) <= LARGEST_WINDOW
    if (
        not usual
        or not _is_plain(input)
        or min(input.shape[2] - size[0], input.shape[3] - size[1]) < 0
    ):
        return None
    rows = _largest_along(input, 2, size[0], step[0])
    return _largest_along(rows, 3, size[1], step[1])


def _largest_along(values: Tensor, axis: int, size: int, step: int) -> Tensor:
    reach = (values.shape[axis] - size) // step * step + 1
    before = (slice(None),) * axis
    first, *others = [values[*before, slice(k, k + reach, step)] for k in range(size)]
    for other in others:
        first = torch.maximum(first, other)
    return first.contiguous() if size == 1 else first


def _is_plain(values: Tensor) -> bool:
    """Tell whether these are images on a CPU of which no derivative is wanted."""
    images = values.ndim == 4 and values.device.type == "cpu" and values.is_floating_point()
    derived = torch.is_grad_enabled() and values.requires_grad
    return images and not derived and forward_ad.unpack_dual(values).tangent is None


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def checked_call(model: nn.Module, inputs: Inputs, like: Tensor) -> Tensor:
    """Call a model as :func:`call` does; inputs that it cannot take become one sentence.

    >>> checked_call(nn.Linear(2, 3), (torch.zeros(4, 2),), like=torch.zeros(1)).shape
    torch.Size([4, 3])
    """
    try:
        return call(model, inputs, like)
    except (torch.OutOfMemoryError, InputError):
        raise
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        told = " ".join(str(error).split())[:160]
        given = ", ".join(f"{tuple(value.shape)} ({_kind(value)})" for value in values(inputs))
        raise InputError(
            f"The model must accept a batch of the data, got inputs of shape {given}, on which it "
            f"failed ({told}). {_cure(model, inputs, like)}"
        ) from error


def _kind(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _cure(model: nn.Module, inputs: Inputs, like: Tensor) -> str:
    """Advise a conversion if the model takes the same numbers as floats, else another shape."""
    whole = [value for value in values(inputs) if not value.is_floating_point()]
    if whole and like.is_floating_point() and _takes(model, _as_floats(inputs, like), like):
        return (
            f"Convert the {_kind(whole[0])} inputs to what the model saw in training, as in "
            "images.float() / 255."
        )
    return "Reshape the inputs or change the first layer."


def _as_floats(inputs: Inputs, like: Tensor) -> Inputs:
    return mapped(inputs, lambda value: value.to(like))


def _takes(model: nn.Module, inputs: Inputs, like: Tensor) -> bool:
    try:
        with preserved(model, weights=False), torch.no_grad():
            call(model, inputs, like)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return False
    return True


def copied(model: nn.Module) -> nn.Module:
    """Return a copy of a model; refuse one that torch cannot copy.

    >>> copied(nn.Linear(1, 1)).bias.shape
    torch.Size([1])
    """
    try:
        return copy.deepcopy(model)
    except (RuntimeError, NotImplementedError) as error:
        raise InputError(
            f"The model must be one that can be copied, got {type(model).__name__}, which cannot "
            f"({' '.join(str(error).split())[:120]}). Replace hooks such as "
            "torch.nn.utils.weight_norm by torch.nn.utils.parametrizations."
        ) from error


def check_weights(model: nn.Module) -> None:
    """Refuse weights that are NaN or infinite, and name their layer.

    >>> model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    >>> model[1].weight.data.fill_(float("nan"))
    tensor([[nan]])
    >>> check_weights(model)
    Traceback (most recent call last):
    mindgap.core.errors.NotFiniteError: The model's weights must be finite numbers, got 1 of 1 values of \
'1.weight' (Linear) that are NaN or infinite. Train with a smaller step, or load other weights.
    """
    for layer, module in model.named_modules():
        for own, weight in module.named_parameters(recurse=False):
            bad = int((~torch.isfinite(weight)).sum())
            if bad:
                name = f"{layer}.{own}" if layer else own
                raise NotFiniteError(
                    f"The model's weights must be finite numbers, got {bad} of {weight.numel()} "
                    f"values of {name!r} ({type(module).__name__}) that are NaN or infinite. Train "
                    "with a smaller step, or load other weights."
                )


FEW = 8  # samples show it if outputs depend on the batch


def instability(answer: Callable[[Inputs], Tensor], split: Split) -> str:
    """Say why answers are not a function of the sample alone; empty if they are.

    Args:
        answer: Gives the outputs of a batch, without gradient.
        split: Its first samples are tried.
    """
    places = torch.arange(min(FEW, len(split)))
    together, again = (answer(split.take(places).inputs) for _ in range(2))
    if not _is_finite(together):
        return ""  # overflows differ with the batch; what is no number is named elsewhere
    if not _close(together, again):
        return "the same samples give other outputs when asked again"
    try:
        alone = torch.cat([answer(split.take(one).inputs) for one in places.split(1)])
    except ValueError:  # statistics of a batch of one
        return "the model does not answer single samples"
    fine = not _is_finite(alone) or _close(together, alone)
    return "" if fine else "an output depends on the other samples of its batch"


def _is_finite(outputs: Tensor) -> bool:
    return bool(torch.isfinite(outputs).all())


def _close(left: Tensor, right: Tensor) -> bool:
    # Batches of other sizes round otherwise, so equality would accuse most models.
    return torch.allclose(left, right, rtol=1e-3, atol=1e-4, equal_nan=True)


def fingerprint(model: nn.Module) -> Hashable:
    """Make a key that changes whenever a weight or buffer does, also through ``.data``.

    It is made thousands of times, so it must be fast for millions of weights: sums of doubles would
    take thirty times as long.

    >>> model = nn.Linear(2, 1)
    >>> before = fingerprint(model)
    >>> _ = model.weight.data.neg_()
    >>> fingerprint(model) == before
    False
    """
    tensors = [*model.parameters(), *model.buffers()]
    with torch.no_grad():
        sums = [_sums(t) for t in tensors if t.numel()]
    return tuple((id(t), t._version, t.shape) for t in tensors), tuple(sums)


_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _sums(values: Tensor) -> Hashable:
    """Add up the bits, which no single change escapes, and the numbers, which signs change."""
    bits = values.dtype if values.is_complex() else _WHOLE[values.element_size()]
    whole = values.detach().view(bits)
    exact = whole.sum(dtype=bits if bits in (torch.int32, torch.int64) else None)
    # As text, because a NaN equals itself as text only.
    return str((exact.item(), values.sum().item()))


def _moved(value: Tensor, like: Tensor) -> Tensor:
    if value.is_floating_point():
        return (
            value.to(like.device, like.dtype) if like.is_floating_point() else value.to(like.device)
        )
    return value.to(like.device)


def mapped(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """Change every tensor of positional or named inputs.

    >>> mapped({"pixels": torch.zeros(2)}, lambda value: value + 1)
    {'pixels': tensor([1., 1.])}
    """
    if isinstance(inputs, dict):
        return {name: change(value) for name, value in inputs.items()}
    return tuple(change(value) for value in inputs)


def values(inputs: Inputs) -> list[Tensor]:
    """Return the tensors of positional or named inputs."""
    return list(inputs.values() if isinstance(inputs, dict) else inputs)
