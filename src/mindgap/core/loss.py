"""Loss: one number per sample, from a name or any callable, and the task that it implies."""

import copy
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core.errors import InputError, unknown_name

Task = Literal["classification", "multilabel", "regression"]
PerSample = Callable[[Tensor, Tensor], Tensor]


def _named(function: Callable[..., Tensor]) -> PerSample:
    return lambda output, target: _rows(function(output, target, reduction="none"))


def _rows(losses: Tensor) -> Tensor:
    return losses if losses.ndim == 1 else losses.flatten(1).mean(1)


NAMED: dict[str, tuple[Task, PerSample]] = {
    "cross_entropy": ("classification", _named(F.cross_entropy)),
    "bce": ("multilabel", _named(F.binary_cross_entropy_with_logits)),
    "mse": ("regression", _named(F.mse_loss)),
    "l1": ("regression", _named(F.l1_loss)),
    "huber": ("regression", _named(F.huber_loss)),
}
# Named as well, but without a gradient written by hand, which the names above have in ensembles.
_FUNCTIONS: dict[str, Callable[..., Tensor]] = {"nll": F.nll_loss, "smooth_l1": F.smooth_l1_loss}
# The names of torch's functions and classes, and the abbreviations in common use.
_ALIASES = {
    "CrossEntropyLoss": "cross_entropy",
    "BCEWithLogitsLoss": "bce",
    "bce_with_logits": "bce",
    "binary_cross_entropy_with_logits": "bce",
    "NLLLoss": "nll",
    "nll_loss": "nll",
    "MSELoss": "mse",
    "mse_loss": "mse",
    "mean_squared_error": "mse",
    "L1Loss": "l1",
    "l1_loss": "l1",
    "mae": "l1",
    "mean_absolute_error": "l1",
    "HuberLoss": "huber",
    "huber_loss": "huber",
    "SmoothL1Loss": "smooth_l1",
    "smooth_l1_loss": "smooth_l1",
}
_KNOWN: dict[Any, str] = {
    nn.CrossEntropyLoss: "classification",
    nn.NLLLoss: "classification",
    F.cross_entropy: "classification",
    F.nll_loss: "classification",
    nn.BCEWithLogitsLoss: "multilabel",
    F.binary_cross_entropy_with_logits: "multilabel",
    nn.MSELoss: "regression",
    nn.L1Loss: "regression",
    nn.HuberLoss: "regression",
    nn.SmoothL1Loss: "regression",
    F.mse_loss: "regression",
    F.l1_loss: "regression",
    F.huber_loss: "regression",
    F.smooth_l1_loss: "regression",
}


@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss that gives one number per sample: call it as ``loss(output, target)``.

    Args:
        name: The name in reports.
        task: The task that it implies, or None.
        per_sample: Takes outputs and targets and returns one entry per sample.
    """

    name: str
    task: Task | None
    per_sample: PerSample

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return self.per_sample(output, align(output, target))


def align(output: Tensor, target: Tensor) -> Tensor:
    """Give targets of shape (n,) the shape (n, 1) of the outputs.

    Without this, broadcasting would silently compare every output with every target.

    >>> align(torch.zeros(3, 1), torch.zeros(3)).shape
    torch.Size([3, 1])
    """
    if target.is_floating_point() and output.ndim == target.ndim + 1 and output.shape[-1] == 1:
        return target.unsqueeze(-1)
    return target


def as_loss(loss: str | Loss | Callable[..., Tensor]) -> Loss:
    """Make a :class:`Loss` of whatever stands for one.

    Args:
        loss: A name, a torch loss module or function, or any callable ``(output, target)``. The
            names are ``"cross_entropy"`` (logits), ``"nll"`` (log-probabilities), ``"bce"``
            (logits of yes/no labels), ``"mse"``, ``"l1"``, ``"huber"`` and ``"smooth_l1"``.
            Torch's own names mean the same, as ``"binary_cross_entropy_with_logits"`` or
            ``"MSELoss"`` do.

    >>> outputs, targets = torch.tensor([[0.0], [2.0]]), torch.zeros(2, 1)
    >>> as_loss(nn.MSELoss())(outputs, targets).tolist()
    [0.0, 4.0]
    >>> as_loss("binary_cross_entropy_with_logits").name
    'bce'
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        name = _ALIASES.get(loss, loss)
        if name in _FUNCTIONS:
            return dataclasses.replace(as_loss(_FUNCTIONS[name]), name=name)
        if name not in NAMED:
            raise unknown_name("loss", loss, [*NAMED, *_FUNCTIONS, *_ALIASES])
        return Loss(name, *NAMED[name])
    if not callable(loss):
        raise InputError(
            f"loss must be a name or a callable (output, target), got {loss!r}. Try "
            "'cross_entropy'."
        )
    name = getattr(loss, "__name__", type(loss).__name__)
    task: Any = _KNOWN.get(type(loss) if isinstance(loss, nn.Module) else loss)
    return Loss(name, task, _per_sample(loss))


def _per_sample(loss: Callable[..., Tensor]) -> PerSample:
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        single = copy.deepcopy(loss)
        single.reduction = "none"  # type: ignore[assignment]
        return lambda output, target: _rows(single(output, target))
    if not isinstance(loss, nn.Module) and "reduction" in _parameters(loss):
        return _named(loss)
    return lambda output, target: _by_sample(loss, output, target)


def _parameters(function: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _by_sample(loss: Callable[..., Tensor], output: Tensor, target: Tensor) -> Tensor:
    value = loss(output, target)
    if value.ndim >= 1 and len(value) == len(target):
        return _rows(value)
    if value.ndim != 0:
        raise InputError(
            f"The loss must give one number or one per sample ({len(target)}), got the shape "
            f"{tuple(value.shape)}. Return a mean, or a tensor with one entry per sample."
        )
    # Only a mean is known: the loss of a batch of one is the loss of that sample.
    single = lambda one, label: loss(one.unsqueeze(0), label.unsqueeze(0))  # noqa: E731
    return torch.func.vmap(single)(output, target)
