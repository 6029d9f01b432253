"""Error rates of a model with random noise on its weights; the model stays untouched."""

import functools
import math
from typing import Literal, cast

import torch
from torch import Tensor, nn

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
    with_weights,
)
from mindgap.ops.models.parameters import vmap_or_loop

Kind = Literal["gaussian", "uniform"]
AT_ONCE = 4_000_000  # weights, or a quarter so many inputs, of all models evaluated together


def perturbed_errors(
    subject: Subject,
    scale: float,
    *,
    draws: int,
    seed: int = 0,
    kind: Kind = "gaussian",
    which: Which = "train",
) -> Tensor:
    """Compute the 0-1 error of a model with independent noise on all its weights, draw by draw.

    Noise is drawn in double precision on the CPU, so that every device and precision sees the same.
    The result is cached with the subject.

    Args:
        subject: Model and data.
        scale: Standard deviation of Gaussian noise, or half width of uniform noise.
        draws: Number of draws of all weights.
        seed: Seed of the noise.
        kind: ``"gaussian"`` or ``"uniform"``.
        which: The split whose error is computed.

    Returns:
        One error rate per draw.

    >>> subject = Subject(nn.Linear(2, 2), "cross_entropy", (torch.eye(2), torch.tensor([0, 1])))
    >>> perturbed_errors(subject, 0.1, draws=3).shape
    torch.Size([3])
    """
    if subject.task == "regression":
        raise InputError(
            "Error rates need a classification, got a regression. Choose a measure of the loss."
        )
    if not 0 <= scale < math.inf:
        raise InputError(
            f"scale must be a finite number of at least 0, got {scale}. Pass the size of the noise."
        )
    integer("draws", draws)
    choice("kind", kind, ("gaussian", "uniform"))
    key = ("perturbed errors", which, scale, draws, seed, kind)
    return subject.cached(key, lambda: _rates(subject, scale, draws, generator(seed), kind, which))


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
    """Draw noisy weights by name; the first dimension counts the draws.

    Args:
        model: The model whose weights get noise.
        scale: Standard deviation, or half width.
        draws: Number of draws.
        source: Source of the noise.
        kind: ``"gaussian"`` or ``"uniform"``.

    >>> noise = noisy_weights(nn.Linear(2, 1), 0.1, 3, torch.Generator().manual_seed(0))
    >>> {name: tuple(value.shape) for name, value in noise.items()}
    {'weight': (3, 1, 2), 'bias': (3, 1)}
    """
    fresh = torch.randn if kind == "gaussian" else torch.rand
    rows = torch.stack(
        [fresh(_size(model), generator=source, dtype=torch.float64) for _ in range(draws)]
    )
    noise = scale * (rows if kind == "gaussian" else 2 * rows - 1)
    parts = noise.split([p.numel() for p in model.parameters()], dim=1)
    named = zip(model.named_parameters(), parts, strict=True)
    return {name: p.detach() + part.view(draws, *p.shape).to(p) for (name, p), part in named}


def noisy_outputs(model: nn.Module, weights: dict[str, Tensor], inputs: Inputs) -> Tensor:
    """Compute the outputs for each set of weights, in one pass if the model can be vmapped."""
    return vmap_or_loop(functools.partial(_outputs, model, inputs), weights)


def _outputs(model: nn.Module, inputs: Inputs, weights: dict[str, Tensor]) -> Tensor:
    noisy = lambda *given, **named: with_weights(model, weights, given, named)  # noqa: E731
    return call(cast("nn.Module", noisy), inputs, next(iter(model.parameters())))


def _wrong(outputs: Tensor, truth: Tensor) -> Tensor:
    """Count the errors of each draw; of several labels per sample the mean counts."""
    if not truth.is_floating_point():
        return (outputs.argmax(2) != truth).sum(1).double()
    misses = (outputs > 0) != align(outputs[0], truth).bool()
    return misses.double().flatten(2).mean(2).sum(1) if misses.ndim > 2 else misses.double().sum(1)


def _size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
