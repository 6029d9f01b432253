"""A head trained in small batches by Adam, as the papers do: any loss, no optimum promised."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core.arguments import generator


@dataclasses.dataclass(frozen=True)
class Minibatch:
    """How long and how fast."""

    epochs: int = 25
    learning_rate: float = 1e-3
    batch_size: int = 25
    l2: float = 0.0


def train_head(
    features: Tensor,
    target: Tensor,
    weights: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    start: tuple[Tensor, Tensor | None],
    settings: Minibatch,
    seed: int = 0,
) -> tuple[Tensor, Tensor | None]:
    """Weight and bias after some epochs of Adam on the weighted mean loss of each batch plus λ/2 ‖W‖².

    ``loss(outputs, target)`` gives one number a sample. The order of the samples depends on ``seed`` alone.
    """
    weight = start[0].detach().clone().requires_grad_()
    bias = None if start[1] is None else start[1].detach().clone().requires_grad_()
    leaves = [weight] if bias is None else [weight, bias]
    optimizer = torch.optim.Adam(leaves, lr=settings.learning_rate)
    random, scale = generator(seed), weights.to(weight)
    with torch.enable_grad():
        for _ in range(settings.epochs):
            for index in torch.randperm(len(features), generator=random).split(settings.batch_size):
                outputs = torch.nn.functional.linear(features[index], weight, bias)
                value = (loss(outputs, target[index]) * scale[index]).mean()
                if settings.l2:
                    value = value + 0.5 * settings.l2 * weight.square().sum()
                optimizer.zero_grad(set_to_none=True)
                value.backward()
                optimizer.step()
    return weight.detach(), None if bias is None else bias.detach()
