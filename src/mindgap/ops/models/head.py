"""The head of a model: the linear layer that makes its output, found by watching one forward pass."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from mindgap.core import Batch, InputError, Subject, Which, evaluating


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a linear layer: what entered and what came out."""

    name: str
    entered: Tensor
    output: Tensor


def find_head(subject: Subject, name: str = "") -> str:
    """The dotted name of the last linear layer.

    It is the layer whose output is the model's output; where none is (a softmax follows, one token
    is picked), the linear layer that is called last. ``name`` is the user's own choice, which is
    checked only. One sample is passed through the model in evaluation mode; nothing of the model is
    changed.

    >>> from mindgap.nets import LeNet5
    >>> find_head(
    ...     Subject(LeNet5(), "cross_entropy", (torch.zeros(2, 1, 28, 28), torch.tensor([0, 1])))
    ... )
    '11'
    """
    if name:
        layer_of(subject.model, name)
        return name
    batch = subject.train.take(torch.arange(min(2, len(subject.train))))
    output, calls = _watched(subject, batch, _linear_names(subject.model))
    if not calls:
        raise InputError(
            "The model must call a linear layer to have a head, got "
            f"{type(subject.model).__name__} that calls none. "
            "Name the layer with head='…' or end the model with nn.Linear."
        )
    made = [call.name for call in calls if _same(call.output, output)]
    return made[-1] if made else calls[-1].name


def layer_of(model: nn.Module, name: str) -> nn.Linear:
    """The linear layer of this dotted name, whose weights belong to it alone and can be replaced."""
    layer = dict(model.named_modules()).get(name)
    if not isinstance(layer, nn.Linear):
        known = ", ".join(_linear_names(model)[-5:]) or "none"
        raise InputError(
            f"head must name a linear layer of the model, got {name!r}, which is "
            f"{'no layer' if layer is None else type(layer).__name__}. The last linear layers "
            f"are: {known}."
        )
    if is_parametrized(layer) or not isinstance(layer._parameters.get("weight"), nn.Parameter):
        raise InputError(
            f"The head must hold its weight itself, got {name!r} whose weight is computed. Remove "
            "the parametrization."
        )
    owners = [
        key
        for key, value in model.named_parameters(remove_duplicate=False)
        if value is layer.weight
    ]
    if len(owners) > 1:
        raise InputError(
            f"The head must not share its weight, got {' and '.join(owners)} in one tensor. Copy "
            "the weight first."
        )
    return layer


def head_features(subject: Subject, which: Which = "train", name: str = "") -> Tensor:
    """What enters the head, a row a sample, in evaluation mode; computed once as long as the model stays the same.

    Where the head sees several tokens of a sample and the model's output is that of one of them,
    the row is that token's. The head must be called once a forward pass.
    """
    head = find_head(subject, name)
    return subject._cached(("features of", head, which), lambda: _passed(subject, which, head))


def head_outputs(subject: Subject, features: Tensor, name: str) -> Tensor:
    """What the head makes of its features."""
    with torch.no_grad():
        outputs: Tensor = layer_of(subject.model, name)(features)
    return outputs


def _passed(subject: Subject, which: Which, name: str) -> Tensor:
    layer_of(subject.model, name)
    return torch.cat(
        [_rows(*_watched(subject, batch, [name]), name) for batch in subject.batches(which)]
    )


def _watched(subject: Subject, batch: Batch, names: list[str]) -> tuple[Tensor, list[Call]]:
    with evaluating(subject.model), _hooked(subject.model, names) as calls:
        return subject._tried(batch.inputs).detach(), calls


@contextlib.contextmanager
def _hooked(model: nn.Module, names: list[str]) -> Iterator[list[Call]]:
    calls: list[Call] = []
    layers = dict(model.named_modules())

    def watch(name: str) -> Any:
        return lambda _, inputs, output: calls.append(
            Call(name, inputs[0].detach(), output.detach())
        )

    handles = [layers[name].register_forward_hook(watch(name)) for name in names]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _rows(output: Tensor, calls: list[Call], name: str) -> Tensor:
    if len(calls) != 1:
        raise InputError(
            f"The head must be called once a forward pass, got {len(calls)} calls of {name!r}. "
            "Name another layer."
        )
    entered, made = calls[0].entered, calls[0].output
    if entered.ndim == 2:
        return entered
    tokens = made.flatten(1, -2)
    picked = (
        (tokens - output.reshape(len(output), 1, -1)).abs().amax(2)
        if tokens.shape[2:] == output.shape[1:]
        else None
    )
    if picked is None or not torch.equal(picked.amin(1), torch.zeros_like(picked[:, 0])):
        raise InputError(
            f"The head must make one output per sample, got {name!r} that takes inputs of shape "
            f"{tuple(entered.shape)} "
            "and whose output at no place is the model's. Name another layer."
        )
    return entered.flatten(1, -2)[torch.arange(len(output)), picked.argmin(1)]


def _same(made: Tensor, output: Tensor) -> bool:
    return made.numel() == output.numel() and torch.equal(made.flatten(), output.flatten())


def _linear_names(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
