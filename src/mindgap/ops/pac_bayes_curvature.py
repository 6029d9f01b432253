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
from torch.func import functional_call

from mindgap.core.arguments import generator
from mindgap.core.purity import evaluating
from mindgap.core.subject import Subject, call, typed
from mindgap.ops.perturbation import noisy_outputs, noisy_weights

THIRD = math.sqrt(2) ** 3 / (6 * math.sqrt(3))  # largest third central moment of softmax scores of norm one
AT_ONCE = 64  # rows of the Hessian computed together


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
    model = copy.deepcopy(subject.model).double()
    total, diagonal = 0.0, torch.zeros_like(weights)
    with evaluating(model), torch.enable_grad():
        for batch in subject.batches("train"):
            place = weights.clone().requires_grad_()
            answer = lambda *given, at=place, **named: functional_call(model, _named(model, at), given, named)  # noqa: E731
            logits = call(answer, batch.inputs, weights)  # type: ignore[arg-type]
            target = typed(batch.target, subject.task, weights)
            loss = bounded_cross_entropy(logits, target, floor).sum()
            total += float(loss.detach())
            diagonal += second_derivatives(loss, place)
    return Curvature(total / len(subject.train), diagonal / len(subject.train))


def second_derivatives(value: Tensor, place: Tensor) -> Tensor:
    """The diagonal of the Hessian of a scalar, exactly: some rows of the Hessian at a time.

    >>> place = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> second_derivatives((place**3).sum() + place.prod(), place).tolist()
    [6.0, 12.0]
    """
    (slope,) = torch.autograd.grad(value, place, create_graph=True)
    parts = []
    for index in torch.arange(len(place)).split(AT_ONCE):
        rows = F.one_hot(index, len(place)).to(slope)
        (product,) = torch.autograd.grad(slope, place, rows, retain_graph=True, is_grads_batched=True)
        parts.append(product.gather(1, index[:, None]).squeeze(1))
    return torch.cat(parts).detach()


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


def _named(model: nn.Module, flat: Tensor) -> dict[str, Tensor]:
    parts = flat.split(_sizes(model))
    return {name: part.view_as(p) for (name, p), part in zip(model.named_parameters(), parts, strict=True)}


def _sizes(model: nn.Module) -> list[int]:
    return [p.numel() for p in model.parameters()]
