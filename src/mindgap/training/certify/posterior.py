"""Train a stochastic classifier by gradient descent on a PAC-Bayes bound."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import Batch, InputError, Progress, Split, choice, generator, kl_inverse
from mindgap.ops.pac_bayes.hessian import bounded_cross_entropy
from mindgap.ops.pac_bayes.posterior import StochasticModel
from mindgap.training.batches import batches_of, epoch_seed

Objective = Callable[[Tensor, Tensor], Tensor]


def quadratic(loss: Tensor, complexity: Tensor) -> Tensor:
    r"""Compute :math:`(\sqrt{\hat L + B/2} + \sqrt{B/2})^2` with the complexity term B."""
    return ((loss + complexity / 2).sqrt() + (complexity / 2).sqrt()).square()


def classic(loss: Tensor, complexity: Tensor) -> Tensor:
    r"""Compute McAllester's :math:`\hat L + \sqrt{B/2}`."""
    return loss + (complexity / 2).sqrt()


def _inverse_kl(loss: Tensor, complexity: Tensor) -> Tensor:
    """Compute the upper end of the kl ball, linearized around its present place."""
    # The inverse comes from a bisection, which autograd cannot follow. Its value is known, and the
    # implicit function theorem gives both derivatives: a tangent plane has the right gradient.
    seen = min(max(float(loss.detach()), 1e-9), 0.9)
    end = min(kl_inverse(seen, float(complexity.detach())), 1 - 1e-9)
    by_end = (end - seen) / (end * (1 - end))  # derivative of kl(seen, end) by its second argument
    by_seen = math.log(seen * (1 - end) / (end * (1 - seen)))
    steep = max(by_end, 1e-9)
    return (
        end - by_seen / steep * (loss - loss.detach()) + (complexity - complexity.detach()) / steep
    )


def _relative_cross_entropy(outputs: Tensor, targets: Tensor, floor: float) -> Tensor:
    """Compute the mean bounded cross entropy, as a multiple of that of a uniform answer.

    This gives it about the size of the error that it replaces, and so the KL its right weight in
    the objective. A posterior may be trained on anything: the bound holds for all of them.

    >>> _relative_cross_entropy(torch.zeros(3, 10), torch.arange(3), 1e-5).round(decimals=4)
    tensor(1.)
    """
    stretch = math.log(1 / floor) / math.log(outputs.shape[1])
    return bounded_cross_entropy(outputs, targets, floor).mean() * stretch


OBJECTIVES: dict[str, Objective] = {"quadratic": quadratic, "kl": _inverse_kl, "classic": classic}


def train_posterior(
    model: StochasticModel,
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
    """Train the posterior to minimize a bound, and return the mean objective of every epoch.

    Every step draws all weights once. The step size of Adam falls to zero along half a cosine.

    Args:
        model: The stochastic classifier, changed in place.
        train: The training data of the posterior.
        samples: How many samples the bound data hold.
        delta: The probability of failure in the bound.
        objective: A name of ``OBJECTIVES``.
        epochs: Passes over the training data.
        batch_size: Samples per step.
        learning_rate: The initial step size of Adam.
        floor: The probability at which the cross entropy is cut off.
        seed: Fixes batches and noise.
        progress: Whether to show a progress bar.
    """
    bound = OBJECTIVES[choice("objective", objective, OBJECTIVES)]
    optimizer = torch.optim.Adam([model.shift, model.spread], lr=learning_rate)
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


def _loss(model: StochasticModel, batch: Batch, source: torch.Generator, floor: float) -> Tensor:
    outputs = model.outputs(model.draw(source), batch.inputs)
    return _relative_cross_entropy(outputs, batch.target.to(outputs.device, torch.long), floor)


def _finite(value: float, epoch: int) -> float:
    if math.isfinite(value):
        return value
    raise InputError(
        f"Training of the posterior must stay finite, got {value} in epoch {epoch}. Lower "
        "learning_rate."
    )
