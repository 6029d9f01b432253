"""Does the theorem apply? Checks of a random model on a few samples before any number is believed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mindgap.core.purity import evaluating
from mindgap.core.split import Split
from mindgap.core.subject import call, check_classes
from mindgap.ops.posterior import RandomModel

FEW = 8


def check_outputs(network: nn.Module, split: Split) -> None:
    """Refuse outputs that are no classes, and labels that the network has no output for."""
    like = next(iter(network.parameters()), torch.empty(0))
    with evaluating(network):
        outputs = call(network, split.take(torch.arange(min(FEW, len(split)))).inputs, like)
    check_classes(outputs, split.targets, "train")


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
