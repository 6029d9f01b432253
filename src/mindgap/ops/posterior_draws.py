"""The expected error of a random model on some data, by many independent draws of its weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mindgap.core.arguments import generator, integer
from mindgap.core.split import Inputs, Split
from mindgap.ops.all_at_once import all_at_once
from mindgap.ops.pac_bayes_curvature import bounded_cross_entropy
from mindgap.ops.posterior import RandomModel
from mindgap.ops.posterior_batched import TRIED, Batched, batched

AT_ONCE = 4_000_000  # weights of all the models that are evaluated together


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Means over ``draws`` independent numbers in [0, 1]: 0-1 error and bounded cross entropy.

    ``own_draws`` tells whether stand-ins gave every sample its own weights; else whole models were drawn.
    """

    error: float
    loss: float
    draws: int
    own_draws: bool


def expected_losses(
    model: RandomModel, split: Split, *, draws: int, floor: float, seed: int = 0, whole: bool = False
) -> Drawn:
    """Estimate the mean error and the mean bounded cross entropy over the data and over the weights.

    At least ``draws`` independent numbers are averaged. Where every sample can have its own draw of the weights the
    data are passed as often as that takes; the numbers are then independent, not alike, which Hoeffding's inequality
    (1963) allows. Otherwise, and if ``whole``, each draw of a whole model judges an equally large group of random
    samples.
    """
    integer("draws", draws)
    first = split.take(torch.arange(min(TRIED, len(split))))
    fast = None if whole or len(split) < 3 else batched(model, first.inputs)
    with torch.no_grad():
        pairs = _whole(model, split, draws, generator(seed)) if fast is None else _own(fast, split, draws, seed)
        errors, losses, count = 0.0, 0.0, 0
        for outputs, targets in pairs:
            wrong, loss = _judged(outputs, targets.to(outputs.device, torch.long), floor)
            errors, losses = errors + float(wrong.double().sum()), losses + float(loss.double().sum())
            count += len(targets)
    group = count // draws if fast is None else 1
    return Drawn(errors / count, losses / count, count // group, fast is not None)


def _own(model: Batched, split: Split, draws: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    source = generator(seed)
    for _ in range(-(-draws // len(split))):
        for batch in split.batches(model.chunk):
            yield model(batch.inputs, source), batch.target


def _whole(model: RandomModel, split: Split, draws: int, source: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Draws of whole models, some at once, each on as many samples, drawn with replacement, as all others."""
    group, left = -(-len(split) // draws), draws
    size = max(1, AT_ONCE // max(model.centre.numel(), 1))
    while left:
        models = min(size, left, 256)
        left -= models
        index = torch.randint(len(split), (models * group,), generator=source)
        batch = split.take(index)
        weights = model.draw(source, models)
        yield _answers(model, weights, batch.inputs, models).flatten(0, 1), batch.target


def _answers(model: RandomModel, weights: dict[str, Tensor], inputs: Inputs, models: int) -> Tensor:
    """Outputs (models, group, …)."""
    return all_at_once(model.answer, weights, _map(inputs, lambda value: value.unflatten(0, (models, -1))))


def _map(inputs: Inputs, function: Callable[[Tensor], Tensor]) -> Inputs:
    if isinstance(inputs, dict):
        return {name: function(value) for name, value in inputs.items()}
    return tuple(function(value) for value in inputs)


def _judged(outputs: Tensor, targets: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """0-1 errors and bounded losses; what is not a number counts as wrong in full."""
    finite = torch.isfinite(outputs).all(1)
    loss = bounded_cross_entropy(outputs, targets, floor)
    return (outputs.argmax(1) != targets) | ~finite, torch.where(finite, loss, 1.0)
