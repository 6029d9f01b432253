"""The scene of an attack: samples of a subject, and a threat that follows from the data's range."""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import EstimatorModule, InputError, Subject, Undefined, Which, generator
from mindgap.ops.attacks.threat import Norm, Threat
from mindgap.ops.attacks.victim import Victim

EPSILON = 8 / 255  # of the range of the data: what the literature allows for natural images
GRID = (0.5, 1, 2, 4, 8, 16, 32)  # eighths of the default radius that a curve visits
TOLERANCE = 0.5  # standard deviations of the targets that a number may miss its target by
# The same L∞ radius in other norms, for d features: √d / 4 and d / 8 of it. On CIFAR-10 they give
# 0.43 and 12, close to the 0.5 and 12 that are customary there.
L2_SHARE, L1_SHARE = 1 / 4, 1 / 8
_TABLE, _SEQUENCE = 2, 3  # dimensions


@dataclasses.dataclass(frozen=True)
class Scene:
    """Samples under attack.

    Args:
        victim: The model under attack.
        inputs: The samples.
        targets: Their targets.
        places: Where the samples are in their split.
        threat: What the attacker may do, at the default radius.
    """

    victim: Victim
    inputs: Tensor
    targets: Tensor
    places: Tensor
    threat: Threat


def scene_of(
    subject: Subject,
    which: Which = "test",
    *,
    norm: Norm = "linf",
    samples: int = 500,
    threat: Threat | None = None,
    seed: int = 0,
) -> Scene:
    """Draw samples of a subject and set up the attack on them.

    Args:
        subject: The model with its data.
        which: The split to attack.
        norm: The norm of the perturbations.
        samples: How many samples to draw at most; all where there are fewer.
        threat: What the attacker may do; it follows from the training data's range if None.
        seed: Seed of the draw.

    >>> data = torch.rand(9, 4), torch.arange(9) % 2
    >>> scene = scene_of(Subject(torch.nn.Linear(4, 2), "cross_entropy", data), "train")
    >>> scene.inputs.shape, round(scene.threat.epsilon, 4)
    (torch.Size([9, 4]), 0.0314)
    """
    split = subject.split(which)
    places = torch.arange(len(split))
    if len(split) > samples:
        places = torch.randperm(len(split), generator=generator(seed))[:samples].sort().values
    targets = subject.targets(which)[places]
    spread = float(subject.targets("train").double().std()) if subject.task == "regression" else 0.0
    victim = Victim.of(
        subject.model, subject.loss, subject.task,
        tolerance=TOLERANCE * spread if spread > 0 else math.inf,
    )  # fmt: skip
    inputs = attackable(subject, which, places).to(victim.like)
    return Scene(victim, inputs, targets, places, threat or _default_threat(subject, norm, inputs))


def attackable(subject: Subject, which: Which, places: Tensor) -> Tensor:
    """Return inputs as one tensor of real numbers; refuse others in one sentence."""
    inputs = subject.split(which).take(places).inputs
    parts = list(inputs.values()) if isinstance(inputs, dict) else list(inputs)
    if isinstance(inputs, dict) or len(parts) != 1 or not parts[0].is_floating_point():
        told = ", ".join(f"{tuple(part.shape)} {part.dtype}" for part in parts)
        raise InputError(
            f"The model must take one input of real numbers per sample, got {told}. Convert images "
            "as in images.float() / 255; for tokens choose a model that takes their embeddings."
        )
    return parts[0]


def _default_threat(subject: Subject, norm: Norm, test: Tensor | None = None) -> Threat:
    """Allow changes of 8/255 of the range of the training inputs, within that range.

    The range is that of every column where samples are rows, of every channel where they are
    images, and of all numbers otherwise. Samples beyond it widen the box, not the unit.

    Args:
        subject: The model with its data.
        norm: The norm of the perturbations.
        test: Samples that must lie in the box.
    """
    low, high = subject.cached("attacks: range", lambda: _range(subject))
    unit = (high - low).to(torch.float64)
    if test is not None and len(test):
        own_low, own_high = _ends(test.cpu())
        low, high = torch.minimum(low, own_low), torch.maximum(high, own_high)
    radius = EPSILON * {"linf": 1.0, **_shares(subject)}[norm]
    return Threat(norm=norm, epsilon=radius, low=low, high=high, unit=unit)


def _shares(subject: Subject) -> dict[str, float]:
    count = attackable(subject, "train", torch.arange(1))[0].numel()
    return {"l2": L2_SHARE * math.sqrt(count), "l1": L1_SHARE * count}


def _range(subject: Subject) -> tuple[Tensor, Tensor]:
    ends = [
        _ends(attackable(subject, "train", batch.index).cpu()) for batch in subject.batches("train")
    ]
    low, high = (torch.stack(side) for side in zip(*ends, strict=True))
    return low.amin(0), high.amax(0)


def _ends(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest value per column, per channel, or of all."""
    if inputs.ndim <= _TABLE:
        return inputs.amin(0), inputs.amax(0)
    if inputs.ndim == _SEQUENCE:
        return inputs.amin(), inputs.amax()
    others = [place for place in range(inputs.ndim) if place != 1]
    return inputs.amin(others, keepdim=True)[0], inputs.amax(others, keepdim=True)[0]


def has_gradient(subject: Subject) -> bool:
    """Tell whether gradients can lead an attack, also where a model hides them.

    >>> data = torch.rand(4, 2), torch.arange(4) % 2
    >>> has_gradient(Subject(torch.nn.Linear(2, 2), "cross_entropy", data))
    True
    """
    return not isinstance(subject.model, EstimatorModule)


def undefined_without(subject: Subject) -> None:
    """Raise Undefined, with the reason, where a subject cannot be attacked by gradient."""
    if not has_gradient(subject):
        raise Undefined("needs a gradient, and an estimator has none")
    try:
        attackable(subject, "train", torch.arange(1))
    except InputError as error:
        raise Undefined("needs a single input of real numbers per sample") from error
