"""Two-layer networks of many seeds, trained together under weight noise, dropout or SAM.

Every seed has its own samples, initial weights, order and noise. The first dimension of every
tensor runs over seeds.
"""

import dataclasses
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from mindgap.core import generator, seeded

BETA = 0.999  # decay of the running mean of squared gradients in Algorithm 1
FLOOR = 1e-5  # ε of Algorithm 1


@dataclasses.dataclass(frozen=True)
class Arm:
    """How a network is trained.

    Args:
        rule: The kind of noise or regularization.
        strength: Its setting, which validation data choose.
    """

    rule: str
    strength: float = 0.0


@dataclasses.dataclass(frozen=True)
class Plan:
    """The settings that all arms share."""

    width: int
    epochs: int
    batch_size: int
    learning_rate: float


def train(inputs: Tensor, labels: Tensor, arm: Arm, plan: Plan, seed: int) -> list[Tensor]:
    """Train one network per seed and return the weights.

    Args:
        inputs: Training inputs, ``(seeds, samples, features)``.
        labels: Their classes, ``(seeds, samples)``.
        arm: What to train with.
        plan: Architecture and optimization.
        seed: For initial weights, order and noise.
    """
    with seeded(seed):
        weights = _initial(len(inputs), inputs.shape[2], plan.width, int(labels.max()) + 1)
        noise = Noise(arm, plan, weights, inputs.shape[1])
        first, second = ([torch.zeros_like(w) for w in weights] for _ in range(2))
        for step, (epoch, index) in enumerate(_batches(inputs, plan, generator(seed)), 1):
            x = inputs.gather(1, index[:, :, None].expand(-1, -1, inputs.shape[2]))
            slopes = noise.gradient(weights, x, labels.gather(1, index), epoch)
            _adam(weights, slopes, first, second, step, plan.learning_rate)
        return weights


def outputs(weights: list[Tensor], inputs: Tensor, dropout: float = 0.0) -> Tensor:
    """Return the logits of every network, ``(seeds, samples, classes)``.

    Args:
        weights: As :func:`train` returns them.
        inputs: The inputs, ``(seeds, samples, features)``.
        dropout: Rate of dropout on the hidden units.
    """
    hidden = F.dropout(
        torch.relu(torch.baddbmm(weights[1], inputs, weights[0])), dropout, dropout > 0
    )
    return torch.baddbmm(weights[3], hidden, weights[2])


def errors(weights: list[Tensor], inputs: Tensor, labels: Tensor) -> list[float]:
    """Return the error rate of every network on its own samples."""
    wrong = outputs(weights, inputs).argmax(2) != labels
    return [float(rate) for rate in wrong.double().mean(1)]


class Noise:
    """Computes the gradient of an arm and keeps the state that the arm needs between steps."""

    def __init__(self, arm: Arm, plan: Plan, weights: list[Tensor], samples: int) -> None:
        self.arm, self.plan, self.samples, self.step = arm, plan, samples, 0
        self.squares = [torch.zeros_like(w) for w in weights]
        self.before: list[Tensor] | None = None
        self.old: list[Tensor] | None = None
        self.slopes: list[Tensor] | None = None
        self.size = sum(w[0].numel() for w in weights)

    def gradient(self, weights: list[Tensor], x: Tensor, y: Tensor, epoch: int) -> list[Tensor]:
        """Return the gradient for the optimizer's next step."""
        rule, strength = self.arm.rule, self.arm.strength
        if rule == "dropout":
            return _slopes(weights, x, y, strength)
        if rule in ("plain", "twice"):
            return _slopes(weights, x, y)
        if rule == "sam":
            slopes = _slopes(weights, x, y)
            length = (
                torch.stack([s.square().flatten(1).sum(1) for s in slopes])
                .sum(0)
                .sqrt()
                .clamp(min=1e-12)
            )
            return _slopes(
                [
                    w + strength * s / length[:, None, None]
                    for w, s in zip(weights, slopes, strict=True)
                ],
                x,
                y,
            )
        radii = self._radii(weights, epoch)
        if rule.startswith("sample"):
            slopes = _sample_slopes(weights, radii, x, y)
        else:
            moved = [
                w + radius * (2 * torch.rand_like(w) - 1)
                for w, radius in zip(weights, radii, strict=True)
            ]
            slopes = _slopes(moved, x, y)
        self._remember(weights, slopes)
        return slopes

    def _remember(self, weights: list[Tensor], slopes: list[Tensor]) -> None:
        self.step += 1
        self.before, self.old, self.slopes = (
            [h.clone() for h in self.squares],
            [w.clone() for w in weights],
            slopes,
        )
        for square, slope in zip(self.squares, slopes, strict=True):
            square.mul_(BETA).add_(slope.square(), alpha=1 - BETA)

    def _radii(self, weights: list[Tensor], epoch: int) -> list[Tensor]:
        """Return the half width of the uniform noise on every weight."""
        rule, strength = self.arm.rule.removeprefix("sample "), self.arm.strength
        if rule == "filter":
            return [strength * _filter_size(w).expand_as(w) for w in weights]
        if rule == "fisher":
            return self._fisher(strength)
        if rule == "size":
            return [strength * w.abs() + FLOOR for w in weights]
        return self._published(weights, epoch, strength)

    def _fisher(self, strength: float) -> list[Tensor]:
        """Return (η H/3)^-½ with η = √(mn)/strength² and H the estimated Fisher information.

        The estimate is the batch size times the running mean of squared gradients.
        """
        if not self.step:
            return [torch.zeros_like(h) for h in self.squares]
        correction, eta = 1 - BETA**self.step, math.sqrt(self.size * self.samples)
        fisher = [self.plan.batch_size * h / correction for h in self.squares]
        mean = torch.stack([f.flatten(1).sum(1) for f in fisher]).sum(0) / self.size
        damped = [f + 0.1 * mean[:, None, None] + 1e-12 for f in fisher]
        return [strength * (eta * f / 3).rsqrt() for f in damped]

    def _published(self, weights: list[Tensor], epoch: int, gamma: float) -> list[Tensor]:
        """Return the radii of Algorithm 1 with η = 0.01 and β₂ = 0.1.

        In the arm "warm-up" the noise grows with the epochs instead of shrinking.
        """
        if self.old is None or self.before is None or self.slopes is None:
            return [torch.zeros_like(w) for w in weights]
        shrink = self.plan.epochs / epoch if self.arm.rule == "warm-up" else math.log1p(epoch)
        pairs = zip(weights, self.old, strict=True)
        length = (
            torch.stack([(w - o).square().flatten(1).sum(1) for w, o in pairs])
            .sum(0)
            .sqrt()[:, None, None]
        )
        found = []
        for o, h, b, g in zip(self.old, self.squares, self.before, self.slopes, strict=True):
            kappa = gamma / shrink * o.abs() + FLOOR
            bend = h + (h - b).abs() / length.clamp(min=1e-30) * kappa
            found.append(
                torch.minimum(1 / (shrink * (0.01 * bend).sqrt()), kappa) * (g.abs() < 0.1)
            )
        return found


def _initial(seeds: int, features: int, width: int, classes: int) -> list[Tensor]:
    """Draw initial weights from the distribution that torch.nn.Linear uses."""
    shapes = [
        (features, width, features),
        (1, width, features),
        (width, classes, width),
        (1, classes, width),
    ]
    return [
        (2 * torch.rand(seeds, rows, columns) - 1) / math.sqrt(fan) for rows, columns, fan in shapes
    ]


def _batches(inputs: Tensor, plan: Plan, source: torch.Generator) -> Iterator[tuple[int, Tensor]]:
    """Yield the epoch and the sample indices of every batch.

    The order has its own generator, so it does not depend on the noise that an arm draws.
    """
    for epoch in range(1, plan.epochs + 1):
        order = torch.rand(inputs.shape[:2], generator=source).argsort(1)
        for index in order.split(plan.batch_size, dim=1):
            yield epoch, index


def _slopes(weights: list[Tensor], x: Tensor, y: Tensor, dropout: float = 0.0) -> list[Tensor]:
    places = [w.detach().requires_grad_() for w in weights]
    return list(torch.autograd.grad(_loss(outputs(places, x, dropout), y), places))


def _sample_slopes(
    weights: list[Tensor], radii: list[Tensor], x: Tensor, y: Tensor
) -> list[Tensor]:
    """Return the gradient under weights that are drawn separately for every sample.

    The noise is drawn on the pre-activations that it causes. There it is a sum of many independent
    uniform terms, which is approximated by a Gaussian.
    """
    places = [w.detach().requires_grad_() for w in weights]
    hidden = torch.relu(_noisy(x, places[0], places[1], radii[0], radii[1]))
    logits = _noisy(hidden, places[2], places[3], radii[2], radii[3])
    return list(torch.autograd.grad(_loss(logits, y), places))


def _noisy(x: Tensor, weight: Tensor, bias: Tensor, radius: Tensor, bias_radius: Tensor) -> Tensor:
    mean = torch.baddbmm(bias, x, weight)
    variance = (torch.bmm(x.square(), radius.square()) + bias_radius.square()) / 3
    return mean + torch.randn_like(mean) * (variance + 1e-20).sqrt()


def _loss(logits: Tensor, y: Tensor) -> Tensor:
    # The sum over networks of each network's mean, so that their gradients stay independent.
    return F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum") / y.shape[1]


def _adam(
    weights: list[Tensor],
    slopes: list[Tensor],
    first: list[Tensor],
    second: list[Tensor],
    step: int,
    rate: float,
) -> None:
    """Take one step of Adam, with the defaults of torch."""
    for w, g, m, v in zip(weights, slopes, first, second, strict=True):
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        w.addcdiv_(m, (v / (1 - 0.999**step)).sqrt_().add_(1e-8), value=-rate / (1 - 0.9**step))


def _filter_size(weights: Tensor) -> Tensor:
    """Return the root mean square of the weights that enter each unit."""
    return weights.square().mean(1, keepdim=True).sqrt()
