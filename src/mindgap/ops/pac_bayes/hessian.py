r"""PAC-Bayes bounds for noise fitted to the Hessian: Lemmas 3 and 5, and Theorem 2.

The training loss must lie in [0, 1] and, within ``radius`` of the weights, be convex with a
Lipschitz Hessian. Numbers alone cannot show that; if it does not hold, the result is not a bound.

The second half computes the Hessian's diagonal of a cross entropy in [0, 1], and what can be proved
about it. For a model that is linear in its weights this loss is convex as long as no probability
falls to the floor. Its third derivative is a third central moment of a variable of range
:math:`\sqrt2`, which gives a Lipschitz constant of the Hessian.
"""

import dataclasses
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import (
    InputError,
    Loss,
    Subject,
    copied,
    evaluating,
    generator,
    implements,
    integer,
    number,
)
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.hessian_diagonal import exact
from mindgap.ops.pac_bayes.bounds import check, uniform_kl
from mindgap.ops.pac_bayes.noisy_errors import noisy_outputs, noisy_weights

PUBLISHED = 1 + 1 / math.e  # holds, but by a finer argument than Appendix D's; see theorem2
PROVED = math.e + 1 / math.e
THIRD = math.sqrt(2) ** 3 / (6 * math.sqrt(3))  # largest third central moment of range √2


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The noise that a lemma chooses, and its bound.

    Attributes:
        scales: Half width or standard deviation of the noise on each weight.
        bound: The bound in closed form.
        tight: The same bound before it was simplified.
    """

    scales: Tensor
    bound: float
    tight: float


@implements("P2", cites=("wang2018identifying",))
def lemma3(
    empirical: float,
    weights: Any,
    curvature: Any,
    radius: Any,
    limit: Any,
    *,
    lipschitz: float,
    eta: float,
    samples: int,
    delta: float,
) -> Fitted:
    r"""Bound the risk under uniform noise that is fitted to the Hessian: Lemma 3.

    Formula: $\sigma_i = \min\left( \frac{1}{\sqrt{\eta (H_{ii}/3 + \rho \sqrt{m} \kappa_i / 9)}},
    \kappa_i \right), \quad \mathbb{E}_u L(w+u) \le \hat L(w) + \frac{1}{\eta} \left( \frac{m}{2} +
    \sum_i \ln \frac{\tau_i}{\sigma_i} + \ln \frac{1}{\delta} \right) + \frac{\eta}{2n}$

    Reading: The noise is wide where the loss is flat, and wide noise has a small divergence from
    the prior. The curvature enters through a logarithm only.

    Assumes: Independent samples; a training loss in [0, 1] that is convex and has a Lipschitz
    Hessian within the radius; η chosen before the data were seen.

    Args:
        empirical: Training loss at the weights.
        weights: Weights w.
        curvature: Diagonal H of the Hessian.
        radius: Radius κ of the neighborhood, per weight.
        limit: Half width τ of the prior, at least |weights| + radius.
        lipschitz: Lipschitz constant ρ of the Hessian.
        eta: η.
        samples: Number n of samples.
        delta: Probability with which the bound may fail.

    Returns:
        The scales σ, the bound (8) and the tighter (7) with the same scales.

    >>> flat, sharp = (
    ...     lemma3(
    ...         0.1, [1.0], [h], [0.5], [2.0], lipschitz=0.0, eta=100.0, samples=1000, delta=0.05
    ...     )
    ...     for h in (0.01, 100.0)
    ... )
    >>> [round(float(found.scales), 4) for found in (flat, sharp)], flat.tight < sharp.tight
    ([0.5, 0.0173], True)
    """
    center, diagonal, reach, outer = vectors(weights, curvature, radius, limit)
    check_local(empirical, diagonal, reach, lipschitz, eta, samples, delta)
    uniform_kl(center, reach, outer)  # raises unless the neighborhood lies inside the prior
    scales = uniform_scales(diagonal, reach, lipschitz=lipschitz, eta=eta)
    ratio = uniform_kl(center, scales, outer)
    fixed = math.log(1 / delta) / eta + eta / (2 * samples)
    third = lipschitz * math.sqrt(len(diagonal)) * reach
    rise = float(((diagonal / 6 + third / 18) * scales.square()).sum())
    simple = (len(diagonal) / 2 + ratio) / eta
    return Fitted(scales, empirical + simple + fixed, empirical + rise + ratio / eta + fixed)


def uniform_scales(curvature: Any, radius: Any, *, lipschitz: float, eta: float) -> Tensor:
    r"""Compute the half widths (9) of Lemma 3; Theorem 2 has η = √(mn).

    Args:
        curvature: Diagonal H of the Hessian.
        radius: Radius κ of the neighborhood, per weight.
        lipschitz: Lipschitz constant ρ of the Hessian.
        eta: η.

    >>> uniform_scales([0.0, 300.0], 1.0, lipschitz=0.0, eta=1.0).tolist()
    [1.0, 0.1]
    """
    diagonal, reach = vectors(curvature, radius)
    precision = eta * (diagonal / 3 + lipschitz * math.sqrt(len(diagonal)) * reach / 9)
    return torch.minimum(precision.rsqrt(), reach)


@implements("P3", cites=("wang2018identifying",))
def theorem2(
    empirical: float,
    log_ratio: float,
    parameters: int,
    samples: int,
    delta: float,
    *,
    by_its_proof: bool = False,
) -> float:
    r"""Bound the risk under uniform noise fitted to the Hessian: Theorem 2 with its constants.

    Formula: $\mathbb{E}_u L(w+u) \le \hat L(w) + \frac{1}{2} \sqrt{\frac{m}{n}} + \left( 1 +
    \frac{1}{e} \right) \sqrt{\frac{S + \ln\frac{1}{\delta} + \frac{\ln 2}{2} \left( 2 + \ln\left(
    \frac{S}{\ln(1/\delta)} + 1 \right) \right)}{2n}}, \quad S = \sum_i \ln \frac{\tau_i}{\sigma_i}$

    Reading: The curvature enters through a logarithm, the number of weights m through a root: below
    one only with many more samples than weights.

    Assumes: As Lemma 3, without a choice of η. The printed factor 1 + 1/e does not follow from the
    printed grid: its η may be e times below the best, which costs e + 1/e. The factor holds
    nevertheless, by the grid η_j = e^j √(8n ln(1/δ_j)) and Hoeffding's lemma with its own constant
    1/8: one of two successive members is within cosh(½) of the best (proved for δ up to 0.46,
    checked numerically beyond).

    Args:
        empirical: Training loss at the weights.
        log_ratio: S, the divergence of the noise from the prior.
        parameters: Number m of weights.
        samples: Number n of samples.
        delta: Probability with which the bound may fail.
        by_its_proof: Use the factor e + 1/e of the printed proof.

    >>> round(theorem2(0.0, 10.0, 2, 10_000, 0.05), 6)
    0.043516
    """
    check(empirical, log_ratio, samples, delta)
    integer("parameters", parameters)
    log_inverse = math.log(1 / delta)
    grid = math.log(2) / 2 * (2 + math.log(log_ratio / log_inverse + 1))
    term = math.sqrt((log_ratio + log_inverse + grid) / (2 * samples))
    factor = PROVED if by_its_proof else PUBLISHED
    return empirical + math.sqrt(parameters / samples) / 2 + factor * term


@implements("P5", cites=("wang2018identifying",))
def lemma5(
    empirical: float,
    largest_eigenvalue: float,
    second_moment: float,
    third_moment: float,
    kl: float,
    *,
    lipschitz: float,
    eta: float,
    samples: int,
    delta: float,
) -> float:
    r"""Bound the risk under any noise, also correlated, at a local optimum: Lemma 5.

    Formula: $\mathbb{E}_u L(w+u) \le \hat L(w) + \frac{\lambda_{max}}{2} \mathbb{E} \|u\|^2 +
    \frac{\rho}{6} \mathbb{E} \|u\|^3 + \frac{\mathrm{KL} + \ln(1/\delta)}{\eta} + \frac{\eta}{2n}$

    Reading: The sharpest direction alone counts, however the noise is distributed.

    Assumes: Independent samples; a training loss in [0, 1] with zero gradient and a Lipschitz
    Hessian wherever the noise reaches; η chosen before the data were seen.

    Args:
        empirical: Training loss at the weights.
        largest_eigenvalue: Largest eigenvalue of the Hessian.
        second_moment: E‖u‖² of the noise.
        third_moment: E‖u‖³ of the noise.
        kl: Divergence of the noise from the prior.
        lipschitz: Lipschitz constant ρ of the Hessian.
        eta: η.
        samples: Number n of samples.
        delta: Probability with which the bound may fail.

    >>> round(
    ...     lemma5(0.1, 2.0, 0.01, 0.001, 5.0, lipschitz=6.0, eta=100.0, samples=1000, delta=0.05),
    ...     6,
    ... )
    0.240957
    """
    check(empirical, kl, samples, delta)
    number("second_moment", second_moment)
    number("third_moment", third_moment)
    rise = (
        largest_eigenvalue * second_moment / 2 + number("lipschitz", lipschitz) * third_moment / 6
    )
    return empirical + rise + (kl + math.log(1 / delta)) / eta + eta / (2 * samples)


def vectors(*values: Any) -> tuple[Tensor, ...]:
    """Flatten and broadcast to one length, in double precision."""
    flat = [torch.as_tensor(value, dtype=torch.float64).flatten() for value in values]
    return tuple(torch.broadcast_tensors(*flat))


def check_local(
    empirical: float,
    curvature: Tensor,
    radius: Tensor,
    lipschitz: float,
    eta: float,
    samples: int,
    delta: float,
) -> None:
    """Raise an error for the first number with which a lemma on the curvature does not apply."""
    check(empirical, 0.0, samples, delta)
    number("lipschitz", lipschitz)
    if not 0 < eta < math.inf:
        raise InputError(
            f"eta must be a finite number above 0, got {eta}. Choose it before the data are seen."
        )
    if bool((curvature < 0).any()) or not bool((radius > 0).all()):
        raise InputError(
            "curvature must be at least 0 (the loss is assumed convex) and radius above 0, got a "
            f"smallest curvature of {float(curvature.min()):.6g} and a smallest radius of "
            f"{float(radius.min()):.6g}. The lemma does not apply."
        )


@dataclasses.dataclass(frozen=True)
class Curvature:
    """Mean training loss and the diagonal of its Hessian, in double precision."""

    loss: float
    diagonal: Tensor


def bounded_cross_entropy(logits: Tensor, target: Tensor, floor: float) -> Tensor:
    """Compute the cross entropy with probabilities cut off at a floor, scaled to [0, 1].

    Args:
        logits: (samples, classes).
        target: Class numbers.
        floor: Smallest probability; the loss is 1 there.

    >>> bounded_cross_entropy(
    ...     torch.tensor([[0.0, 0.0], [99.0, 0.0]]), torch.tensor([0, 1]), 0.25
    ... ).tolist()
    [0.5, 1.0]
    """
    log_probability = torch.log_softmax(logits, 1).gather(1, target[:, None]).squeeze(1)
    return log_probability.clamp(min=math.log(floor)) / math.log(floor)


def flat_weights(model: nn.Module) -> Tensor:
    """Concatenate all weights to one vector, in double precision."""
    return torch.cat([p.detach().double().flatten() for p in model.parameters()])


def curvature(subject: Subject, weights: Tensor, floor: float) -> Curvature:
    """Compute the bounded cross entropy of the training data and its Hessian's diagonal.

    Args:
        subject: Model and data.
        weights: Where to compute, as one vector.
        floor: Probability at which the cross entropy is cut off.
    """
    model = copied(subject.model).double().requires_grad_(requires_grad=True)
    bounded = Loss(
        "bounded cross entropy",
        subject.task,
        lambda out, truth: bounded_cross_entropy(out, truth, floor),
    )
    flat = FlatLoss(Subject(model, bounded, subject.train, check_determinism=False))
    return Curvature(float(flat.total(flat.sum, weights)), exact(flat, weights))


def estimated_lipschitz(subject: Subject, here: Curvature, radius: Tensor, floor: float) -> float:
    """Estimate the Hessian's Lipschitz constant by the change of its diagonal over two steps.

    An estimate, not a bound. The steps go to two corners of the neighborhood, all weights larger or
    all smaller in absolute value. The paper takes a random step, and divides by whichever entry of
    it is nearest to zero.

    Args:
        subject: Model and data.
        here: The curvature at the model's weights.
        radius: Radius of the neighborhood, per weight.
        floor: Probability at which the cross entropy is cut off.
    """
    weights = flat_weights(subject.model)
    steps = [sign * torch.where(weights < 0, -radius, radius) for sign in (1, -1)]
    moved = [curvature(subject, weights + step, floor).diagonal - here.diagonal for step in steps]
    return float((torch.stack(moved).abs() / radius).max())


def linear_layer(subject: Subject) -> nn.Linear | None:
    """Find the layer that holds all weights if the outputs are linear in them, else None.

    Linearity is tested at random weights: no list of module types could say what ``forward`` does.
    """
    model = subject.model
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if len(layers) != 1 or {id(p) for p in layers[0].parameters()} != {
        id(p) for p in model.parameters()
    }:
        return None
    features, batch = subject.features("train"), next(iter(subject.batches("train")))
    weights = noisy_weights(model, 1.0, 1, generator(0))
    by_end = {name.rpartition(".")[2]: value[0] for name, value in weights.items()}
    with evaluating(model):
        found = noisy_outputs(model, weights, batch.inputs)[0]
        wanted = F.linear(features[: len(found)], by_end["weight"], by_end.get("bias"))
    return (
        layers[0]
        if found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-3, atol=1e-5)
        else None
    )


def proved_lipschitz(subject: Subject, layer: nn.Linear, floor: float) -> float:
    """Bound the Lipschitz constant of the Hessian of a linear model, away from the floor.

    Args:
        subject: Model and data.
        layer: The layer that holds all weights.
        floor: Probability at which the cross entropy is cut off.
    """
    features = subject.features("train").double()
    norms = (features.square().sum(1) + (layer.bias is not None)).sqrt()
    return THIRD * float((norms**3).mean()) / math.log(1 / floor)


def meets_floor(subject: Subject, layer: nn.Linear, radius: Tensor, floor: float) -> bool:
    """Check whether a probability may fall to the floor within ``radius`` of the weights.

    Args:
        subject: Model and data.
        layer: The layer that holds all weights.
        radius: Radius of the neighborhood, per weight.
        floor: Probability at which the cross entropy is cut off.
    """
    features, logits = subject.features("train").double().abs(), subject.outputs("train").double()
    reach = dict(
        zip(
            [name for name, _ in layer.named_parameters()], radius.split(_sizes(layer)), strict=True
        )
    )
    swing = F.linear(features, reach["weight"].view_as(layer.weight), reach.get("bias")).amax(1)
    log_probability = torch.log_softmax(logits, 1).gather(1, subject.targets("train")[:, None])
    # Within the radius the logit of the class may fall and all others rise, each by ``swing``.
    return bool((log_probability.squeeze(1) - 2 * swing <= math.log(floor)).any())


def _sizes(model: nn.Module) -> list[int]:
    return [p.numel() for p in model.parameters()]
