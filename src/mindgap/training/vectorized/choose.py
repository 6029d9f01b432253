"""Choose the fastest engine that takes a problem, and how many members fit into memory at once."""

from __future__ import annotations

import torch
from torch import nn

from mindgap.core.purity import evaluating
from mindgap.core.recipe import Recipe
from mindgap.core.split import Inputs
from mindgap.core.subject import call
from mindgap.training.vectorized.convolutional import Convolutional
from mindgap.training.vectorized.dense import Dense
from mindgap.training.vectorized.engine import Engine
from mindgap.training.vectorized.general import General
from mindgap.training.vectorized.gram import Gram
from mindgap.training.vectorized.support import Problem, Unsupported

ENGINES: tuple[type[Engine], ...] = (Gram, Dense, Convolutional, General)
_BUDGET = 2**29  # bytes


@torch.no_grad()
def engine_for(problem: Problem) -> Engine:
    """The first engine that does not refuse; the last one's reason if all do."""
    reason = Unsupported("no engine")
    for engine in ENGINES:
        try:
            return engine(problem)
        except Unsupported as refusal:
            reason = refusal
    raise reason


def members_at_once(model: nn.Module, recipe: Recipe) -> int:
    """How many members' weights, optimizer state, batches and activations fit into the budget."""
    train, _ = recipe.splits()
    sample = train.take(torch.arange(1)).inputs
    batch = min(recipe.batch_size, len(train))
    tensors = sample.values() if isinstance(sample, dict) else sample
    weights = sum(parameter.numel() for parameter in model.parameters())
    numbers = 8 * weights + 3 * len(train) + batch * (sum(t.numel() for t in tensors) + 4 * _activations(model, sample))
    return max(1, _BUDGET // (4 * numbers))


def _activations(model: nn.Module, inputs: Inputs) -> int:
    """Numbers that the layers give for one sample."""
    sizes: list[int] = []

    def count(_: nn.Module, __: object, output: object) -> None:
        sizes.append(output.numel() if isinstance(output, torch.Tensor) else 0)

    leaves = [module for module in model.modules() if not any(True for _ in module.children())]
    handles = [leaf.register_forward_hook(count) for leaf in leaves]
    try:
        with evaluating(model):
            call(model, inputs, next(model.parameters()))
    except Exception:  # a model that does not take the data is refused later, in words
        return 0
    finally:
        for handle in handles:
            handle.remove()
    return sum(sizes)
