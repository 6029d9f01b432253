"""Train a stochastic classifier by gradient descent on a PAC-Bayes bound."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import InputError, Inputs, Progress, Split, choice, generator, kl_inverse
from mindgap.ops.pac_bayes.hessian import bounded_cross_entropy
from mindgap.ops.pac_bayes.posterior import StochasticModel
from mindgap.training.batches import batches_of, epoch_seed

# The loss, the complexity term and their rate of exchange make a value to minimize.
Objective = Callable[[Tensor, Tensor, float], Tensor]
LOSS_WEIGHT = 0.7  # the cross entropy of a good model is above its error, which it stands for
MEMORY = 0.98  # of the running error, per step
WARM_UP = 200  # steps, at most a tenth of all
# A posterior on few samples may never leave its prior: where the error is large no nat is worth its
# price, though many nats together are. If it has not after a tenth of the steps, nats are cheap at
# first: the rate is at least this, which falls to zero halfway.
LEFT, LEAST_RATE = 10.0, 5.0  # nats, and the rate
STEPS, BATCH = 8000, 250  # of a posterior that begins at initial weights


def quadratic(loss: Tensor, complexity: Tensor, _rate: float) -> Tensor:
    r"""Compute :math:`(\sqrt{\hat L + B/2} + \sqrt{B/2})^2` with the complexity term B."""
    return ((loss + complexity / 2).sqrt() + (complexity / 2).sqrt()).square()


def classic(loss: Tensor, complexity: Tensor, _rate: float) -> Tensor:
    r"""Compute McAllester's :math:`\hat L + \sqrt{B/2}`."""
    return loss + (complexity / 2).sqrt()


def tangent(loss: Tensor, complexity: Tensor, rate: float) -> Tensor:
    r"""Compute :math:`c \hat L + B / \lambda`, with λ from :func:`exchange_rate`."""
    return LOSS_WEIGHT * loss + complexity / rate


def exchange_rate(error: float, complexity: float) -> float:
    r"""Compute how many units of the complexity term B cost as much as one of error.

    At the error q and the end p of the kl ball it is :math:`\lambda = \ln \frac{p (1 - q)}{q (1 -
    p)}`, the ratio of the derivatives of p. The error is the 0-1 error, which the bound is about,
    and not the cross entropy.

    Args:
        error: The error q.
        complexity: The complexity term B.

    >>> round(exchange_rate(0.02, 0.04), 4)
    1.541
    """
    seen = min(max(error, 1e-9), 0.85)
    end = min(kl_inverse(seen, complexity), 1 - 1e-9)
    return max(math.log(end * (1 - seen) / (seen * (1 - end))), 1e-9)


def _inverse_kl(loss: Tensor, complexity: Tensor, _rate: float) -> Tensor:
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


OBJECTIVES: dict[str, Objective] = {
    "quadratic": quadratic,
    "kl": _inverse_kl,
    "classic": classic,
    "tangent": tangent,
}


def rules(prior: str, scale: float | None, samples: int) -> dict[str, Any]:
    """Return how a posterior is trained where the user says nothing.

    A learned prior is left by a small step only. An initial one knows nothing, so the posterior
    needs a whole training: about 8,000 steps, however many samples there are.

    Args:
        prior: ``"learned"`` or ``"initial"``.
        scale: The prior's scale; None if it is learned.
        samples: Number of training samples of the posterior.

    >>> rules("initial", None, 60_000)["epochs"], rules("learned", 0.01, 60_000)["epochs"]
    (34, 1)
    """
    if prior == "learned":
        return {"objective": "quadratic", "epochs": 1, "batch_size": 128, "learning_rate": 1e-3}
    return {
        "objective": "tangent",
        "epochs": -(-STEPS // -(-samples // BATCH)),
        "batch_size": BATCH,
        "learning_rate": 0.01 if scale is None else 0.03,  # in units of the scale if it is fixed
    }


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

    Linear layers of a Gaussian posterior get noise of their own for every sample; other weights are
    drawn once per step. The step size of Adam rises in the first steps and then falls to zero along
    half a cosine.

    Args:
        model: The stochastic classifier, changed in place.
        train: The training data of the posterior.
        samples: How many samples the bound data hold.
        delta: The probability of failure in the bound.
        objective: A name of ``OBJECTIVES``.
        epochs: Passes over the training data.
        batch_size: Samples per step.
        learning_rate: The largest step size of Adam.
        floor: The probability at which the cross entropy is cut off.
        seed: Fixes batches and noise.
        progress: Whether to show a progress bar.
    """
    bound = OBJECTIVES[choice("objective", objective, OBJECTIVES)]
    steps = max(1, epochs * -(-len(train) // batch_size))
    optimizer, schedule = _optimizer(model, learning_rate, steps)
    constant, history = math.log(2 * math.sqrt(samples) / delta), list[float]()
    rates = _Rates(steps)
    with Progress(epochs, unit="epoch", shown=progress) as bar, _noisy(model, train) as outputs_of:
        for epoch in range(1, epochs + 1):
            source, total = generator(epoch_seed(seed, epoch)), 0.0
            for index in batches_of(len(train), batch_size, seed, epoch):
                batch = train.take(index)
                outputs = outputs_of(batch.inputs, source)
                targets = batch.target.to(outputs.device, torch.long)
                wrong = float((outputs.argmax(1) != targets).float().mean())
                loss = _relative_cross_entropy(outputs, targets, floor)
                divergence = model.divergence()
                complexity = ((divergence + constant) / samples).to(loss)
                rate = rates.next(wrong, float(divergence.detach()), float(complexity.detach()))
                value = bound(loss, complexity, rate)
                optimizer.zero_grad(set_to_none=True)
                value.backward()
                optimizer.step()
                schedule.step()
                total += float(value.detach()) * len(index)
            history.append(_finite(total / len(train), epoch))
            bar.advance({"running_loss": history[-1]})
    return history


class _Rates:
    """Follows the error over the steps, and says at which rate nats are exchanged for it."""

    def __init__(self, steps: int) -> None:
        self.steps, self.step = steps, 0
        self.error, self.least = 0.9, 0.0

    def next(self, wrong: float, nats: float, complexity: float) -> float:
        """Return the rate of the next step.

        Args:
            wrong: The error of its batch.
            nats: The divergence of the posterior from the prior.
            complexity: The complexity term.
        """
        self.error += (1 - MEMORY) * (wrong - self.error)
        if self.step == self.steps // 10 and nats < LEFT:
            self.least = LEAST_RATE
        least = self.least * (1 - 2 * self.step / self.steps)
        self.step += 1
        return max(least, exchange_rate(self.error, complexity))


def _optimizer(
    model: StochasticModel, rate: float, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    groups = [
        {"params": [model.shift], "lr": rate},
        {"params": [model.spread], "lr": rate * model.spread_rate},
    ]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99))
    warm = max(1, min(WARM_UP, steps // 10))

    def factor(step: int) -> float:
        return min(1.0, (step + 1) / warm) * (1 + math.cos(math.pi * min(step, steps) / steps)) / 2

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


Noisy = Callable[[Inputs, torch.Generator], Tensor]


@contextlib.contextmanager
def _noisy(model: StochasticModel, train: Split) -> Iterator[Noisy]:
    """Give a function that computes differentiable outputs under random weights.

    The outputs of a linear layer with Gaussian weights are independent Gaussians. Noise on them is
    as good as noise on the weights, costs less, and differs between the samples of a batch: the
    gradient has less variance (local reparametrization). All other weights are drawn.
    """
    local = _local_layers(model, train)
    own = {_in(name, part) for name in local for part in ("weight", "bias")}
    kept = [torch.full((shape.numel(),), name not in own) for name, shape in model.shapes.items()]
    drawn = torch.cat(kept).to(model.center.device)
    present: dict[str, Any] = {}  # what the hooks need of this step

    def add_noise(name: str, _layer: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> Tensor:
        scales, source = present["scales"], present["source"]
        weight, bias = (scales.get(_in(name, part)) for part in ("weight", "bias"))
        variance = F.linear(
            inputs[0].square(), weight.square(), None if bias is None else bias.square()
        )
        # The floor keeps the gradient finite where a sample switches all inputs of the layer off.
        noise = model.noise(tuple(outputs.shape), source)
        return outputs + variance.clamp_min(1e-16).sqrt() * noise

    def outputs_of(inputs: Inputs, source: torch.Generator) -> Tensor:
        means, scales = model.means(), model.scales()
        present.update(scales=model.named(scales), source=source)
        noise = torch.zeros_like(means)
        noise[drawn] = model.noise((int(drawn.sum()),), source)
        return model.outputs(model.named(means + scales * noise), inputs)

    with contextlib.ExitStack() as hooks:
        for name, layer in local.items():
            hook = layer.register_forward_hook(functools.partial(add_noise, name))
            hooks.callback(hook.remove)
        yield outputs_of


def _in(layer: str, part: str) -> str:
    return f"{layer}.{part}" if layer else part


def _local_layers(model: StochasticModel, train: Split) -> dict[str, nn.Linear]:
    """Find the linear layers that are called once, with one vector per sample."""
    calls: dict[str, list[bool]] = {}
    first = train.take(torch.arange(min(2, len(train))))
    linear = {
        name: layer
        for name, layer in model.network.named_modules()
        if isinstance(layer, nn.Linear) and _in(name, "weight") in model.shapes
    }

    def note(name: str, _layer: nn.Module, inputs: tuple[Tensor], _outputs: Tensor) -> None:
        alone = bool(inputs) and inputs[0].shape[:-1] == (len(first.target),)
        calls.setdefault(name, []).append(alone)

    with contextlib.ExitStack() as hooks:
        for name, layer in linear.items():
            hooks.callback(layer.register_forward_hook(functools.partial(note, name)).remove)
        model.mean_outputs(first.inputs)
    gaussian = model.kind == "gaussian"
    return {name: linear[name] for name, seen in calls.items() if gaussian and seen == [True]}


def _finite(value: float, epoch: int) -> float:
    if math.isfinite(value):
        return value
    raise InputError(
        f"Training of the posterior must stay finite, got {value} in epoch {epoch}. Lower "
        "learning_rate."
    )
