"""Train a random model by descent on a PAC-Bayes bound."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import Batch, InputError, Progress, Split, choice, generator, kl_inverse
from mindgap.ops.pac_bayes.hessian import bounded_cross_entropy
from mindgap.ops.pac_bayes.posterior import RandomModel
from mindgap.training.batches import batches_of, epoch_seed

Objective = Callable[[Tensor, Tensor], Tensor]


def quadratic(loss: Tensor, price: Tensor) -> Tensor:
    r""":math:`(\sqrt{\hat L + B/2} + \sqrt{B/2})^2` with the price B of one sample."""
    return ((loss + price / 2).sqrt() + (price / 2).sqrt()).square()


def classic(loss: Tensor, price: Tensor) -> Tensor:
    r"""McAllester's :math:`\hat L + \sqrt{B/2}`."""
    return loss + (price / 2).sqrt()


def inverse_kl(loss: Tensor, price: Tensor) -> Tensor:
    """The upper end of the kl ball, to first order around where it is: all that a gradient needs."""
    seen = min(max(float(loss.detach()), 1e-9), 0.9)
    end = min(kl_inverse(seen, float(price.detach())), 1 - 1e-9)
    by_end = (end - seen) / (end * (1 - end))  # derivative of kl(seen, end) by its second argument
    by_seen = math.log(seen * (1 - end) / (end * (1 - seen)))
    steep = max(by_end, 1e-9)
    return end - by_seen / steep * (loss - loss.detach()) + (price - price.detach()) / steep


def relative_cross_entropy(outputs: Tensor, targets: Tensor, floor: float) -> Tensor:
    """Mean cross entropy, cut off at the floor, in units of what guessing costs.

    So it has about the size of the error that it stands for, and the KL its right price. A
    posterior may be trained on anything: the bound holds for all of them.

    >>> relative_cross_entropy(torch.zeros(3, 10), torch.arange(3), 1e-5).round(decimals=4)
    tensor(1.)
    """
    stretch = math.log(1 / floor) / math.log(outputs.shape[1])
    return bounded_cross_entropy(outputs, targets, floor).mean() * stretch


OBJECTIVES: dict[str, Objective] = {"quadratic": quadratic, "kl": inverse_kl, "classic": classic}


def train_posterior(
    model: RandomModel,
    train: Split,
    *,
    samples: int,
    delta: float,
    objective: str,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    floor: float,
    seed: int,
    progress: bool = False,
) -> list[float]:
    """Move the posterior down the bound on ``samples`` samples; gives the mean objective of every epoch.

    Every step draws all weights once. The step size of Adam falls to zero along half a cosine.
    """
    bound = OBJECTIVES[choice("objective", objective, OBJECTIVES)]
    optimizer = torch.optim.Adam([model.place, model.spread], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, max(1, epochs * -(-len(train) // batch_size))
    )
    constant, history = math.log(2 * math.sqrt(samples) / delta), list[float]()
    with Progress(epochs, unit="epoch", shown=progress) as bar:
        for epoch in range(1, epochs + 1):
            source, total = generator(epoch_seed(seed, epoch)), 0.0
            for index in batches_of(len(train), batch_size, seed, epoch):
                loss = _loss(model, train.take(index), source, floor)
                value = bound(loss, ((model.divergence() + constant) / samples).to(loss))
                optimizer.zero_grad(set_to_none=True)
                value.backward()
                optimizer.step()
                schedule.step()
                total += float(value.detach()) * len(index)
            history.append(_finite(total / len(train), epoch))
            bar.advance({"running_loss": history[-1]})
    return history


def _loss(model: RandomModel, batch: Batch, source: torch.Generator, floor: float) -> Tensor:
    outputs = model.answer(model.draw(source), batch.inputs)
    return relative_cross_entropy(outputs, batch.target.to(outputs.device, torch.long), floor)


def _finite(value: float, epoch: int) -> float:
    if math.isfinite(value):
        return value
    raise InputError(
        f"Training of the posterior must stay finite, got {value} in epoch {epoch}. Lower "
        "learning_rate."
    )
