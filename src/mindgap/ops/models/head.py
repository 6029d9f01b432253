"""The head of a model: the linear layer that makes its output, found by a forward pass."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from mindgap.core import Batch, InputError, Subject, Which, evaluating, kind_of


@dataclasses.dataclass(frozen=True)
class _Call:
    """One call of a linear layer."""

    name: str
    input: Tensor
    output: Tensor


def find_head(subject: Subject, name: str = "") -> str:
    """Find the dotted name of the last linear layer.

    It is the layer whose output is the model's output. If there is none (a softmax follows, or one
    token is selected), it is the linear layer that is called last. Two samples pass through the
    model in evaluation mode; the model is not changed.

    Args:
        subject: Model and data.
        name: The user's own choice, which is only checked.

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
            f"{kind_of(subject.model)} that calls none. Name the layer with head='…' or end "
            "the model with nn.Linear."
        )
    made = [call.name for call in calls if _same(call.output, output)]
    return made[-1] if made else calls[-1].name


def layer_of(model: nn.Module, name: str) -> nn.Linear:
    """Return the linear layer of this name; its weights must not be shared or computed.

    Args:
        model: The model.
        name: Dotted name of the layer.

    >>> layer_of(nn.Sequential(nn.ReLU(), nn.Linear(3, 2)), "1")
    Linear(in_features=3, out_features=2, bias=True)
    """
    layer = dict(model.named_modules()).get(name)
    if not isinstance(layer, nn.Linear):
        known = ", ".join(_linear_names(model)[-5:]) or "none"
        raise InputError(
            f"head must name a linear layer of the model, got {name!r}, which is "
            f"{'no layer' if layer is None else type(layer).__name__}. The last linear layers are: "
            f"{known}."
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
    """Compute the inputs of the head in evaluation mode, one row per sample.

    If the head sees several tokens of a sample and the model's output is that of one of them, the
    row is that token's. The head must be called once per forward pass. The result is cached as long
    as the model stays the same.

    Args:
        subject: Model and data.
        which: The split.
        name: Dotted name of the head; found by :func:`find_head` if empty.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> data = (torch.zeros(5, 4), torch.tensor([0, 1, 0, 1, 0]))
    >>> head_features(Subject(model, "cross_entropy", data)).shape
    torch.Size([5, 3])
    """
    head = find_head(subject, name)
    return subject.cached(
        ("features of", head, which),
        # The pass that computes the outputs has most likely kept them.
        lambda: (
            subject.features(which)
            if _is_called_last(subject, head)
            else _passed(subject, which, head)
        ),
    )


def head_outputs(subject: Subject, features: Tensor, name: str) -> Tensor:
    """Compute the head's outputs from its features.

    Args:
        subject: The subject of the model.
        features: Inputs of the head.
        name: Dotted name of the head.
    """
    with torch.no_grad():
        outputs: Tensor = layer_of(subject.model, name)(features)
    return outputs


def _is_called_last(subject: Subject, name: str) -> bool:
    """Tell whether what enters the layer that is called last is one row of the head per sample."""
    layer_of(subject.model, name)
    batch = subject.train.take(torch.arange(min(2, len(subject.train))))
    _, calls = _watched(subject, batch, _linear_names(subject.model))
    return [call.name for call in calls].count(name) == 1 and (
        calls[-1].name == name and calls[-1].input.ndim == 2
    )


def _passed(subject: Subject, which: Which, name: str) -> Tensor:
    layer_of(subject.model, name)
    return torch.cat(
        [_rows(*_watched(subject, batch, [name]), name) for batch in subject.batches(which)]
    )


def _watched(subject: Subject, batch: Batch, names: list[str]) -> tuple[Tensor, list[_Call]]:
    with evaluating(subject.model), _hooked(subject.model, names) as calls:
        return subject.checked_forward(batch.inputs).detach(), calls


@contextlib.contextmanager
def _hooked(model: nn.Module, names: list[str]) -> Iterator[list[_Call]]:
    calls: list[_Call] = []
    layers = dict(model.named_modules())

    def watch(name: str) -> Any:
        return lambda _, inputs, output: calls.append(
            _Call(name, inputs[0].detach(), output.detach())
        )

    handles = [layers[name].register_forward_hook(watch(name)) for name in names]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _rows(output: Tensor, calls: list[_Call], name: str) -> Tensor:
    """Select each sample's input of the head: of several tokens, the one the model outputs."""
    if len(calls) != 1:
        raise InputError(
            f"The head must be called once per forward pass, got {len(calls)} calls of {name!r}. "
            "Name another layer."
        )
    entered, made = calls[0].input, calls[0].output
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
            f"The head must make one output per sample, got {name!r} with inputs of shape "
            f"{tuple(entered.shape)}, none of whose outputs is the model's. Name another layer."
        )
    return entered.flatten(1, -2)[torch.arange(len(output)), picked.argmin(1)]


def _same(made: Tensor, output: Tensor) -> bool:
    return made.numel() == output.numel() and torch.equal(made.flatten(), output.flatten())


def _linear_names(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
