"""The error rate of a model whose weights carry random noise, draw by draw; the model itself is not touched."""

import functools
import math
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mindgap.core import (
    InputError,
    Inputs,
    Subject,
    Which,
    align,
    call,
    choice,
    evaluating,
    generator,
    integer,
    typed,
)
from mindgap.ops.models.parameters import all_at_once

Kind = Literal["gaussian", "uniform"]
AT_ONCE = 4_000_000  # weights, or four times the inputs, of all the noisy models that are evaluated together


def perturbed_errors(
    subject: Subject,
    scale: float,
    *,
    draws: int,
    seed: int = 0,
    kind: Kind = "gaussian",
    which: Which = "train",
) -> Tensor:
    """The mean 0-1 error of the model with independent noise on all its weights, for each of ``draws``.

    ``scale`` is the standard deviation of Gaussian noise or the half width of uniform noise. Noise
    is drawn in double precision on the CPU, so every device and precision sees the same. Computed
    once for a subject and its settings.

    >>> subject = Subject(nn.Linear(2, 2), "cross_entropy", (torch.eye(2), torch.tensor([0, 1])))
    >>> perturbed_errors(subject, 0.1, draws=3).shape
    torch.Size([3])
    """
    if subject.task == "regression":
        raise InputError(
            "Error rates need a classification, got a regression. Choose another quantity."
        )
    if not 0 <= scale < math.inf:
        raise InputError(
            f"scale must be a finite number of at least 0, got {scale}. Pass the size of the noise."
        )
    integer("draws", draws)
    choice("kind", kind, ("gaussian", "uniform"))
    key = ("perturbed errors", which, scale, draws, seed, kind)
    return subject._cached(key, lambda: _rates(subject, scale, draws, generator(seed), kind, which))


def _rates(
    subject: Subject, scale: float, draws: int, source: torch.Generator, kind: Kind, which: Which
) -> Tensor:
    model, wrong = subject.model, torch.zeros(draws, dtype=torch.float64)
    like = next(iter(model.parameters()), torch.empty(0))
    with evaluating(model):
        for block in torch.arange(draws).split(_together(subject, which)):
            weights = noisy_weights(model, scale, len(block), source, kind)
            for batch in subject.batches(which):
                outputs = noisy_outputs(model, weights, batch.inputs)
                wrong[block] += _wrong(outputs, typed(batch.target, subject.task, like)).cpu()
    return wrong / len(subject.split(which))


def _together(subject: Subject, which: Which) -> int:
    inputs = next(iter(subject.batches(which))).inputs
    read = sum(value.numel() for value in (inputs.values() if isinstance(inputs, dict) else inputs))
    return max(1, AT_ONCE // max(1, _size(subject.model), 4 * read))


def noisy_weights(
    model: nn.Module, scale: float, draws: int, source: torch.Generator, kind: Kind = "gaussian"
) -> dict[str, Tensor]:
    """The weights with fresh noise, by name; the first dimension counts the draws."""
    fresh = torch.randn if kind == "gaussian" else torch.rand
    rows = torch.stack(
        [fresh(_size(model), generator=source, dtype=torch.float64) for _ in range(draws)]
    )
    noise = scale * (rows if kind == "gaussian" else 2 * rows - 1)
    parts = noise.split([p.numel() for p in model.parameters()], dim=1)
    named = zip(model.named_parameters(), parts, strict=True)
    return {name: p.detach() + part.view(draws, *p.shape).to(p) for (name, p), part in named}


def noisy_outputs(model: nn.Module, weights: dict[str, Tensor], inputs: Inputs) -> Tensor:
    """The outputs for each set of weights: all at once where the model allows it, one by one where not."""
    return all_at_once(functools.partial(_answer, model, inputs), weights)


def _answer(model: nn.Module, inputs: Inputs, weights: dict[str, Tensor]) -> Tensor:
    noisy = lambda *given, **named: functional_call(model, weights, given, named)  # noqa: E731
    return call(cast("nn.Module", noisy), inputs, next(iter(model.parameters())))


def _wrong(outputs: Tensor, truth: Tensor) -> Tensor:
    """How many errors each draw makes; outputs (draws, samples, …), several labels count by their mean."""
    if not truth.is_floating_point():
        return (outputs.argmax(2) != truth).sum(1).double()
    misses = (outputs > 0) != align(outputs[0], truth).bool()
    return misses.double().flatten(2).mean(2).sum(1) if misses.ndim > 2 else misses.double().sum(1)


def _size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
