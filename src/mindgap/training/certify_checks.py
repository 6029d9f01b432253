"""Does the theorem apply? Checks of a random model on a few samples before any number is believed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.purity import evaluating
from mindgap.core.split import Split
from mindgap.core.subject import call
from mindgap.ops.posterior import RandomModel

FEW = 8


def check_outputs(network: nn.Module, split: Split) -> None:
    """Refuse outputs that are no classes, and labels that the network has no output for."""
    like = next(iter(network.parameters()), torch.empty(0))
    with evaluating(network):
        outputs = call(network, split.take(torch.arange(min(FEW, len(split)))).inputs, like)
    if outputs.ndim != 2 or outputs.shape[1] < 2:
        raise InputError(
            f"A classifier must give outputs of shape (samples, classes) with at least two classes, got "
            f"{tuple(outputs.shape)}. Change the last layer."
        )
    low, high = int(split.targets.min()), int(split.targets.max())
    if low < 0 or high >= outputs.shape[1]:
        raise InputError(
            f"The labels must be from 0 to {outputs.shape[1] - 1} (the model has {outputs.shape[1]} outputs), got "
            f"{low if low < 0 else high}. Renumber the labels or widen the last layer."
        )


def broken(model: RandomModel, split: Split) -> str:
    """What breaks the theorem: answers that depend on more than the weights and the sample. Empty if nothing does."""
    places = torch.arange(min(FEW, len(split)))
    together, again = (model.mean_answer(split.take(places).inputs) for _ in range(2))
    if not _same(together, again):
        return "the same weights and samples give other answers when asked again"
    try:
        alone = torch.cat([model.mean_answer(split.take(one).inputs) for one in places.split(1)])
    except ValueError:  # statistics of a batch of one
        return "the model does not answer single samples"
    return "" if _same(together, alone) else "an answer depends on the other samples of its batch"


def _same(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, rtol=1e-3, atol=1e-4, equal_nan=True)
