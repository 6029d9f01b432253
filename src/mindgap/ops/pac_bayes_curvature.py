r"""The curvature that Theorem 2 asks for: of a cross entropy in [0, 1], exactly, with what can be proved about it.

For a model that is linear in its weights the loss is convex where no sample meets the floor, and the third derivative
of the softmax, a third central moment of a variable of range :math:`\sqrt2`, gives a Lipschitz constant of the Hessian.
"""

from __future__ import annotations

import copy
import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core.arguments import generator
from mindgap.core.loss import Loss
from mindgap.core.purity import evaluating
from mindgap.core.subject import Subject
from mindgap.ops.flat import FlatLoss
from mindgap.ops.hessian_diagonal import exact
from mindgap.ops.perturbation import noisy_outputs, noisy_weights

THIRD = math.sqrt(2) ** 3 / (6 * math.sqrt(3))  # largest third central moment of softmax scores of norm one


@dataclasses.dataclass(frozen=True)
class Curvature:
    """Mean train loss and diagonal of its Hessian at some weights, in double precision."""

    loss: float
    diagonal: Tensor


def bounded_cross_entropy(logits: Tensor, target: Tensor, floor: float) -> Tensor:
    """Cross entropy with probabilities cut off at ``floor``, scaled to [0, 1]; one entry a sample.

    >>> bounded_cross_entropy(torch.tensor([[0.0, 0.0], [99.0, 0.0]]), torch.tensor([0, 1]), 0.25).tolist()
    [0.5, 1.0]
    """
    chance = torch.log_softmax(logits, 1).gather(1, target[:, None]).squeeze(1)
    return chance.clamp(min=math.log(floor)) / math.log(floor)


def flat_weights(model: nn.Module) -> Tensor:
    """All weights in one row, in double precision."""
    return torch.cat([p.detach().double().flatten() for p in model.parameters()])


def curvature(subject: Subject, weights: Tensor, floor: float) -> Curvature:
    """The bounded cross entropy of the train data at these weights, and every second derivative by one weight."""
    model = copy.deepcopy(subject.model).double().requires_grad_(requires_grad=True)
    bounded = Loss("bounded cross entropy", subject.task, lambda out, truth: bounded_cross_entropy(out, truth, floor))
    flat = FlatLoss(Subject(model, bounded, subject.train, check_determinism=False))
    return Curvature(float(flat.total(flat.sum, weights)), exact(flat, weights))


def estimated_lipschitz(subject: Subject, here: Curvature, radius: Tensor, floor: float) -> float:
    """Largest change of the diagonal over the step that caused it, as the paper has it: an estimate, no bound.

    The steps are two corners of the neighbourhood, all weights larger or all smaller in size. A random step, which the
    paper takes, divides by whatever entry of it is nearest to zero.
    """
    place = flat_weights(subject.model)
    steps = [sign * torch.where(place < 0, -radius, radius) for sign in (1, -1)]
    moved = [curvature(subject, place + step, floor).diagonal - here.diagonal for step in steps]
    return float((torch.stack(moved).abs() / radius).max())


def linear_layer(subject: Subject) -> nn.Linear | None:
    """The layer that holds all weights, if the outputs are linear in them: tried at random weights."""
    model = subject.model
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if len(layers) != 1 or {id(p) for p in layers[0].parameters()} != {id(p) for p in model.parameters()}:
        return None
    features, batch = subject.features("train"), next(iter(subject.batches("train")))
    weights = noisy_weights(model, 1.0, 1, generator(0))
    by_end = {name.rpartition(".")[2]: value[0] for name, value in weights.items()}
    with evaluating(model):
        found = noisy_outputs(model, weights, batch.inputs)[0]
        wanted = F.linear(features[: len(found)], by_end["weight"], by_end.get("bias"))
    return layers[0] if found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-3, atol=1e-5) else None


def proved_lipschitz(subject: Subject, layer: nn.Linear, floor: float) -> float:
    """A Lipschitz constant of the Hessian of a linear model's bounded cross entropy, away from the floor."""
    features = subject.features("train").double()
    norms = (features.square().sum(1) + (layer.bias is not None)).sqrt()
    return THIRD * float((norms**3).mean()) / math.log(1 / floor)


def meets_floor(subject: Subject, layer: nn.Linear, radius: Tensor, floor: float) -> bool:
    """Whether some train sample's probability may fall to the floor within ``radius`` of a linear model's weights."""
    features, logits = subject.features("train").double().abs(), subject.outputs("train").double()
    reach = dict(zip([name for name, _ in layer.named_parameters()], radius.split(_sizes(layer)), strict=True))
    swing = F.linear(features, reach["weight"].view_as(layer.weight), reach.get("bias")).amax(1)
    chance = torch.log_softmax(logits, 1).gather(1, subject.targets("train")[:, None]).squeeze(1)
    return bool((chance - 2 * swing <= math.log(floor)).any())


def _sizes(model: nn.Module) -> list[int]:
    return [p.numel() for p in model.parameters()]
