"""The layers with weights that a model calls once per pass, and what enters them."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import Split, Subject, Undefined, evaluating

KINDS = (nn.Linear, nn.modules.conv._ConvNd)


@dataclasses.dataclass(frozen=True)
class Layers:
    """Layers in the order of their calls.

    Args:
        names: Dotted names of linear and convolutional layers that are called once per pass.
        skipped: Why other layers with weights are not among them, by name.
        sizes: Numbers that enter each layer, per sample.
    """

    names: tuple[str, ...]
    skipped: dict[str, str]
    sizes: tuple[int, ...]


def layers_of(subject: Subject) -> Layers:
    """Find the layers by passing two samples through the model; raise Undefined if there is none.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> layers_of(Subject(model, "mse", (torch.eye(2), torch.ones(2, 1)))).names
    ('0', '2')
    """
    few = subject.train.take(torch.arange(min(2, len(subject.train))))
    known = [name for name, part in subject.model.named_modules() if isinstance(part, KINDS)]
    calls = list[tuple[str, Tensor]]()
    with evaluating(subject.model), watched(subject.model, known, calls):
        subject.checked_forward(few.inputs)
    order = dict.fromkeys(name for name, _ in calls)
    counts = {name: sum(one == name for one, _ in calls) for name in known}
    first = dict(reversed(calls))
    kept = [n for n in order if counts[n] == 1 and len(first[n]) == len(few.target)]
    skipped = {name: _reason(counts[name]) for name in known if name not in kept}
    skipped |= _others(subject.model)
    if not kept:
        raise Undefined("needs a linear or convolutional layer that is called once per pass")
    return Layers(tuple(kept), skipped, tuple(first[name][0].numel() for name in kept))


@contextlib.contextmanager
def watched(
    model: nn.Module, names: Sequence[str], calls: list[tuple[str, Tensor]]
) -> Iterator[None]:
    """Note, inside, what enters the named layers, in the order of their calls.

    Args:
        model: The model.
        names: Dotted names of its layers.
        calls: Gets one pair of name and input per call.
    """
    parts = dict(model.named_modules())

    def note(name: str) -> Any:
        # A layer behind it may work in place, so that a copy is kept.
        return lambda _, given: calls.append((name, given[0].detach().clone()))

    handles = [parts[name].register_forward_pre_hook(note(name)) for name in names]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def entering(subject: Subject, samples: Split, names: Sequence[str]) -> Iterator[Tensor]:
    """Yield what enters each layer, one row per sample, and at last the outputs.

    Args:
        subject: Model and precision.
        samples: The samples.
        names: Dotted names of layers that are called once per pass.
    """
    rows: list[list[Tensor]] = [[] for _ in (*names, "outputs")]
    for batch in samples.batches(subject.batch_size):
        calls = list[tuple[str, Tensor]]()
        with evaluating(subject.model), watched(subject.model, names, calls):
            outputs = subject.forward(batch.inputs)
        seen = dict(calls)
        for row, value in zip(rows, [*(seen[name] for name in names), outputs], strict=True):
            row.append(value.flatten(1) if value.ndim > 1 else value[:, None])
    yield from map(torch.cat, rows)


def _reason(count: int) -> str:
    if count == 1:
        return "samples are not its first dimension"
    return "is not called" if count == 0 else f"is called {count} times per pass"


def _others(model: nn.Module) -> dict[str, str]:
    """Name modules with matrices of their own that are neither linear nor convolutional."""
    return {
        name: f"is of the type {type(part).__name__}"
        for name, part in model.named_modules()
        if not isinstance(part, KINDS)
        and any(weight.ndim > 1 for weight in part.parameters(recurse=False))
    }
