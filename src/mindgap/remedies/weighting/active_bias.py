"""Active bias: weights by how much the predictions of a sample vary during training."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mindgap.core import Losses, Remedy, TrainingState, option


class ActiveBias(Remedy):
    r"""Weights samples by how much their predictions varied over the epochs so far.

    Formula: $w_i \propto s_i + \bar s, \qquad s_i = \sqrt{v_i + \frac{v_i^2}{t - 1}}, \qquad
    v_i = \mathrm{Var}_{e \le t}\, p_e(y_i \mid x_i), \qquad \frac{1}{n} \sum_i w_i = 1$

    Reading: Samples that are always right or always wrong teach little; those that the network
    cannot decide on get up to a few times their weight. p is the probability of the right answer,
    exp(-loss), as each step saw it. The weights begin after some epochs and are computed after
    every epoch. A share below one mixes them with equal weights; zero turns it off.

    Assumes: A loss that is a negative log-likelihood, as cross entropy is.

    >>> from mindgap import Recipe, fit, nets
    >>> data = torch.randn(20, 2, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    >>> recipe = Recipe(model=lambda: nets.MLP((2, 8, 2)), train=data, batch_size=5)
    >>> fit(recipe, [ActiveBias()]).epochs
    20
    """

    method = ("E5",)
    cites = ("chang2017active",)
    strength = "share"
    treats = frozenset({"hard samples"})
    cost = 1.1

    share: float = option(
        1.0, help="how far the weights move from equal ones to those of the formula", low=0, high=1
    )
    burn_in: int = option(3, help="epochs with equal weights, before the first are computed", low=2)

    def losses(self, state: TrainingState, loss: Losses, output: Tensor, target: Tensor) -> Tensor:
        """Note the probabilities of the right answers."""
        losses = loss(output, target)
        state.memory["seen"] = losses.detach().neg().exp().double().cpu()
        return losses

    def weights(self, state: TrainingState, index: Tensor) -> Tensor | None:
        """Add what was noted to the history of these samples, and return their weights."""
        memory, seen = state.memory, state.memory.pop("seen")
        if memory.get("step", 0) < state.step:  # a step may pass over its batch twice
            memory["step"] = state.step
            _note(memory, index, seen)
        return memory["weights"][index] if "weights" in memory else None

    def after_epoch(self, state: TrainingState) -> bool:
        """Compute the weights of the next epoch."""
        if state.epoch >= self.burn_in:
            history = (state.memory[name] for name in ("count", "sum", "squares"))
            state.memory["weights"] = 1 + self.share * (variance_weights(*history) - 1)
        return False


def variance_weights(count: Tensor, total: Tensor, squares: Tensor) -> Tensor:
    """Return weights with mean one from the moments of every sample's probabilities.

    Args:
        count: How many probabilities are known of each sample.
        total: Their sum.
        squares: The sum of their squares.

    >>> history = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    >>> ones = torch.full((2,), 2.0, dtype=torch.float64)
    >>> variance_weights(ones, history.sum(1), history.square().sum(1)).float()
    tensor([0.5000, 1.5000])
    """
    spare = (count - 1).clamp(min=1)
    variance = ((squares - total.square() / count.clamp(min=1)) / spare).clamp(min=0)
    deviation = (variance + variance.square() / spare).sqrt()
    floored = deviation + deviation.mean()
    return floored / floored.mean() if bool(floored.mean() > 0) else torch.ones_like(floored)


def _note(memory: dict[str, Any], index: Tensor, seen: Tensor) -> None:
    """Add probabilities to the moments, which grow with the largest place that was seen."""
    added = {"count": torch.ones_like(seen), "sum": seen, "squares": seen.square()}
    more = max(0, int(index.max()) + 1 - len(memory.get("count", ())))
    for name, values in added.items():
        known = memory.get(name, values[:0])
        memory[name] = F.pad(known, (0, more)).index_add_(0, index.cpu(), values)
    if "weights" in memory:  # samples that no epoch before showed have no history yet
        memory["weights"] = F.pad(memory["weights"], (0, more), value=1.0)
