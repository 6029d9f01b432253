"""attack: robust accuracy over radii, with controls, masking checks and samples to look at."""

import dataclasses
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mindgap.core import (
    InputError,
    Progress,
    Subject,
    Which,
    integer,
    number,
    unknown_name,
    validated,
)
from mindgap.jobs.attack.answer import Found, Robustness, told
from mindgap.ops.attacks.controls import train_surrogate
from mindgap.ops.attacks.masking import MaskingNotice, Sign
from mindgap.ops.attacks.robustness import (
    Level,
    Settings,
    hardened,
    levels,
    sharpened,
    signs,
    unattacked,
)
from mindgap.ops.attacks.scene import GRID, Scene, attackable, has_gradient, scene_of
from mindgap.ops.attacks.threat import Norm, Threat
from mindgap.ops.samples import class_name
from mindgap.training.fitted import Fitted

LEAST_LIKELY = "least-likely"
LEARNED = 2000  # training inputs that a surrogate learns from, at most


@validated
def attack(
    subject: Subject | Fitted,
    *,
    norm: Norm = "linf",
    epsilons: Sequence[float] | None = None,
    threat: Threat | None = None,
    mask: Tensor | None = None,
    goal: int | str | None = None,
    smallest: bool = False,
    samples: int = 500,
    steps: int = 20,
    restarts: int = 1,
    momentum: float = 0.0,
    surrogate: nn.Module | None = None,
    black_box: bool = True,
    seed: int = 0,
    progress: bool = False,
) -> Robustness:
    """Attack a model at growing radii, and say how many predictions hold.

    Every radius is attacked by gradient, by random noise and through a surrogate that is trained
    on the model's answers. If these show that the model hides its gradient, a ``MaskingNotice``
    names the signs, and the logits are attacked too. An estimator without a gradient, such as a
    forest, is attacked by noise and through the surrogate alone.

    Args:
        subject: A model with its loss and data, or what ``fit`` returned. The test data are
            attacked, or the training data if there are none.
        norm: ``"linf"``, ``"l2"`` or ``"l1"``.
        epsilons: The radii. In units of the training inputs' range, unless a threat is given; by
            default 0.5/255 to 32/255 of it in L∞, and for d features √d/4 and d/8 times as much in
            L2 and L1.
        threat: Box, units and mask of your own; its norm and radius are used too.
        mask: Where inputs may change, if no threat is given: anything but zero there, in the shape
            of one sample or one that broadcasts to it.
        goal: A class that predictions are driven to as well, by its number or name, or
            ``"least-likely"`` for the class that the model thinks least likely at each sample.
        smallest: Whether to search the smallest change that breaks each prediction, up to the
            largest radius.
        samples: How many samples to attack at most.
        steps: Steps of PGD.
        restarts: Starts of PGD.
        momentum: How much of the earlier directions a step keeps.
        surrogate: A model to attack in the black box; one is trained if None.
        black_box: Whether to attack through a surrogate at all.
        seed: Seed of all draws.
        progress: Whether to show a progress bar.

    >>> x = torch.linspace(0, 1, 100)[:, None]
    >>> model = nn.Linear(1, 2)
    >>> with torch.no_grad():
    ...     _ = model.weight.copy_(torch.tensor([[0.0], [1.0]]))
    ...     _ = model.bias.copy_(torch.tensor([0.5, 0.0]))
    >>> subject = Subject(model, "cross_entropy", (x, (x[:, 0] > 0.5).long()))
    >>> attack(subject, epsilons=[0.1, 0.2], black_box=False).rows[0].accuracy
    0.8
    """
    subject = subject.subject() if isinstance(subject, Fitted) else subject
    for name, value in (("samples", samples), ("steps", steps), ("restarts", restarts)):
        integer(name, value)
    number("momentum", momentum)
    which: Which = "train" if subject.test is None else "test"
    scene = scene_of(subject, which, norm=norm, samples=samples, threat=threat, seed=seed)
    scene = _masked(scene, mask, threat)
    subject.part(scene.places, which).outputs()  # refuses what is no number
    radii = _radii(scene, epsilons)
    how = Settings(steps, restarts, momentum, seed=seed, batch_size=subject.batch_size)
    clean = unattacked(scene, how)
    goals, words = (None, "") if goal is None else _goals(subject, scene, goal, clean.outputs)
    sizes = None
    with Progress(3 + smallest, unit="stage", title="attack", shown=progress) as bar:
        net = _surrogate(subject, scene, surrogate, seed) if black_box else None
        bar.advance()
        found = levels(scene, radii, how, net, goals)
        bar.advance()
        # At the largest radius most predictions break, so that attacks can be told apart best.
        seen = signs(scene, found[-1], how) if has_gradient(subject) else ()
        if any(sign.found for sign in seen):
            _warn(seen)
        if not seen or any(sign.found for sign in seen):
            found = hardened(scene, found, how, goals)
        bar.advance()
        if smallest:
            found, sizes = sharpened(scene, found, how)
            bar.advance()
    headline = found[_place(scene, found)]
    whole = Found(found, headline, seen, clean, goals, words, sizes, shares=threat is None)
    return told(subject, which, scene, whole)


def _masked(scene: Scene, mask: Tensor | None, threat: Threat | None) -> Scene:
    if mask is None:
        return scene
    if threat is not None:
        raise InputError("mask must be left out next to a threat, got both. Use Threat(mask=...).")
    if not bool(mask.any()):
        raise InputError("mask must leave a place where inputs may change, got zeros. Change it.")
    if mask.ndim > scene.inputs.ndim - 1:
        raise InputError(
            f"mask must have at most the {scene.inputs.ndim - 1} dimensions of one sample "
            f"{tuple(scene.inputs.shape[1:])}, got the shape {tuple(mask.shape)}. Pass one for all."
        )
    return dataclasses.replace(scene, threat=dataclasses.replace(scene.threat, mask=mask))


def _goals(subject: Subject, scene: Scene, goal: int | str, outputs: Tensor) -> tuple[Tensor, str]:
    """Return one class per sample that is to be reached, and words for it."""
    if subject.task != "classification":
        raise InputError(f"goal must be left out in a {subject.task}, got {goal!r}: it is a class.")
    if goal == LEAST_LIKELY:
        return outputs.argmin(1), "their least likely class"
    count = outputs.shape[1]
    names = [class_name(subject.classes, k) for k in range(count)]
    if isinstance(goal, str) and goal not in names and not goal.isdecimal():
        raise unknown_name("goal", goal, [*names, LEAST_LIKELY])
    place = names.index(goal) if isinstance(goal, str) and goal in names else int(goal)
    integer("goal", place, 0, count - 1, meaning="the number of a class")
    if bool((scene.targets == place).all()):
        raise InputError(
            f"goal must be a class that some sample is not of, got {goal!r}. Choose another."
        )
    return torch.full_like(scene.targets, place), f"class {names[place]}"


def _radii(scene: Scene, epsilons: Sequence[float] | None) -> tuple[float, ...]:
    if epsilons is not None:
        if not len(epsilons):
            raise InputError("epsilons must hold at least one radius, got none. Leave it out.")
        return tuple(sorted({number("epsilons", epsilon) for epsilon in epsilons}))
    if isinstance(scene.threat.epsilon, torch.Tensor):
        raise InputError(
            "The radius of a threat must be one number here, got one per sample. Use "
            "mindgap.ops.attacks.descent.pgd, or pass epsilons."
        )
    return tuple(factor / 8 * scene.threat.epsilon for factor in GRID)


def _place(scene: Scene, found: Sequence[Level]) -> int:
    """Return the place of the threat's own radius, or of the largest where it is not among them."""
    own = torch.as_tensor(scene.threat.epsilon).double().max()
    near = [k for k, level in enumerate(found) if abs(level.epsilon / float(own) - 1) < 1e-6]
    return near[0] if near else len(found) - 1


def _surrogate(subject: Subject, scene: Scene, given: nn.Module | None, seed: int) -> nn.Module:
    if given is not None:
        return given
    places = torch.arange(len(subject.train))[:: max(1, len(subject.train) // LEARNED)]
    return train_surrogate(scene.victim, attackable(subject, "train", places), seed=seed)


def _warn(seen: Sequence[Sign]) -> None:
    named = "; ".join(f"{sign.name} ({sign.sentence})" for sign in seen if sign.found)
    warnings.warn(
        f"The model hides its gradient: {named}. The logits were attacked as well.",
        MaskingNotice,
        stacklevel=4,
    )
