"""Robust accuracy: over radii, with controls, and with the checks that a gradient is not hidden."""

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mindgap.core import Interval, generator, proportion_interval
from mindgap.ops.attacks.controls import better, judged, random_noise, transfer
from mindgap.ops.attacks.descent import Attacked, fgsm, iterative_target_class, pgd
from mindgap.ops.attacks.masking import Sign, beaten, holds_on, unlimited, zero_gradients
from mindgap.ops.attacks.minimal import minimal_norm
from mindgap.ops.attacks.scene import Scene
from mindgap.ops.attacks.victim import Objective

OTHERS = 20  # samples that are put in the place of each, to see whether it can be broken at all


@dataclasses.dataclass(frozen=True)
class Settings:
    """How hard to attack.

    Args:
        steps: Steps of PGD.
        restarts: Its starts.
        momentum: How much of earlier directions a step keeps.
        random_start: Whether it begins at random points; otherwise at the samples.
        draws: Random points per sample, of the control.
        seed: Seed of all draws.
        batch_size: Samples that are attacked at once.
    """

    steps: int = 20
    restarts: int = 1
    momentum: float = 0.0
    random_start: bool = True
    draws: int = 10
    seed: int = 0
    batch_size: int = 512


@dataclasses.dataclass(frozen=True)
class Level:
    """What the attacks found at one radius.

    Args:
        epsilon: The radius.
        found: The strongest attack on every sample.
        noise: Random points of the ball.
        black_box: What breaks a surrogate, shown to this model; None without a surrogate.
        towards: The attack towards given classes, broken where a class is reached; None without.
    """

    epsilon: float
    found: Attacked
    noise: Attacked
    black_box: Attacked | None = None
    towards: Attacked | None = None

    @property
    def blind(self) -> Attacked:
        """The better of the attacks that see no gradient."""
        return self.noise if self.black_box is None else better(self.noise, self.black_box)

    @property
    def accuracy(self) -> float:
        """The share of predictions that no attack broke: an upper bound of robust accuracy."""
        return self.found.robust_accuracy

    @property
    def interval(self) -> Interval:
        """The interval of the share, for the samples that were not drawn."""
        count = len(self.found.broken)
        return proportion_interval(count - int(self.found.broken.sum()), count)


def attacked(
    scene: Scene,
    epsilon: float | Tensor,
    how: Settings,
    objective: Objective = "loss",
    goal: Tensor | None = None,
) -> Attacked:
    """Attack all samples by gradient at one radius.

    Args:
        scene: The samples and the threat.
        epsilon: The radius, or one per sample.
        how: How hard to attack.
        objective: What to increase.
        goal: Classes to reach; None to get away from the true ones.
    """
    if goal is not None:
        return iterative_target_class(
            scene.victim.aiming(objective), scene.inputs, scene.targets, scene.threat.at(epsilon),
            goal=goal, steps=how.steps, batch_size=how.batch_size,
        )  # fmt: skip
    return pgd(
        scene.victim.aiming(objective), scene.inputs, scene.targets, scene.threat.at(epsilon),
        steps=how.steps, restarts=how.restarts, momentum=how.momentum,
        random_start=how.random_start, seed=how.seed, batch_size=how.batch_size,
    )  # fmt: skip


def levels(
    scene: Scene,
    epsilons: Sequence[float],
    how: Settings,
    surrogate: nn.Module | None = None,
    goal: Tensor | None = None,
) -> tuple[Level, ...]:
    """Attack at growing radii; what is broken at one is broken at all larger ones.

    Args:
        scene: The samples and the threat.
        epsilons: The radii.
        how: How hard to attack.
        surrogate: What to attack in the black box; None leaves it out.
        goal: One class per sample to be reached as well; None leaves it out.
    """
    found, done = unattacked(scene, how), list[Level]()
    reached = None if goal is None else _at_goal(found, goal)
    for epsilon in sorted(epsilons):
        found = _on_the_rest(scene, epsilon, how, "loss", found)
        if reached is not None:
            reached = _on_the_rest(scene, epsilon, how, "loss", reached, goal)
            found = better(found, _judged_by_truth(scene, reached))
        black = None if surrogate is None else _black_box(scene, epsilon, how, surrogate)
        done.append(Level(epsilon, found, noisy(scene, epsilon, how), black, reached))
    return tuple(done)


def hardened(
    scene: Scene, found: Sequence[Level], how: Settings, goal: Tensor | None = None
) -> tuple[Level, ...]:
    """Attack the logits where the loss broke nothing, and count what the controls broke.

    Args:
        scene: The samples and the threat.
        found: What attacks on the loss found, by growing radius.
        how: How hard to attack.
        goal: One class per sample to be reached as well, as in ``levels``.
    """
    before, done = unattacked(scene, how), list[Level]()
    reached = None if goal is None else _at_goal(before, goal)
    for level in found:
        before = better(better(before, level.found), level.blind)
        before = _on_the_rest(scene, level.epsilon, how, "margin", before)
        if reached is not None and level.towards is not None:
            reached = better(reached, level.towards)
            reached = _on_the_rest(scene, level.epsilon, how, "margin", reached, goal)
            before = better(before, _judged_by_truth(scene, reached))
        done.append(dataclasses.replace(level, found=before, towards=reached))
    return tuple(done)


def sharpened(
    scene: Scene, found: Sequence[Level], how: Settings
) -> tuple[tuple[Level, ...], Tensor]:
    """Search the smallest change of every sample, and count it at the radii that allow it.

    Args:
        scene: The samples and the threat.
        found: What was found by growing radius.
        how: How hard to attack.

    Returns:
        The levels, and the size of the smallest change of every sample that any attack found:
        infinite where none of them broke the prediction.
    """
    threat = scene.threat.at(found[-1].epsilon)
    least = minimal_norm(
        scene.victim, scene.inputs, scene.targets, threat, steps=how.steps,
        batch_size=how.batch_size,
    )  # fmt: skip
    there = judged(scene.victim, least.points, scene.targets, how.batch_size)
    sizes, done = least.sizes, list[Level]()
    for level in found:
        allowed = dataclasses.replace(there, broken=there.broken & (least.sizes <= level.epsilon))
        best = better(level.found, allowed)
        own = threat.around(scene.inputs).sizes(level.found.points)
        sizes = torch.where(level.found.broken, torch.minimum(sizes, own), sizes)
        done.append(dataclasses.replace(level, found=best))
    return tuple(done), sizes


def signs(scene: Scene, level: Level, how: Settings) -> tuple[Sign, ...]:
    """Look for all signs of gradient masking at one radius.

    Args:
        scene: The samples and the threat.
        level: What the controls broke at the radius.
        how: How hard to attack.
    """
    right, white = ~unattacked(scene, how).broken, attacked(scene, level.epsilon, how)
    threat = scene.threat.at(level.epsilon)
    once = fgsm(scene.victim, scene.inputs, scene.targets, threat, batch_size=how.batch_size)
    looked = [
        zero_gradients(white.silent, right),
        beaten("more steps hurt", once.broken, white.broken, right),
        beaten("black box beats white box", level.blind.broken, white.broken, right),
    ]
    free = unlimited(threat)
    if math.isfinite(free) and threat.mask is None:  # a small sticker need not suffice
        far = dataclasses.replace(scene, threat=dataclasses.replace(threat, norm="linf"))
        # A model that ignores its inputs cannot be broken, and hides nothing.
        looked.append(holds_on(attacked(far, free, how).broken, right & _breakable(scene, how)))
    return tuple(looked)


def _breakable(scene: Scene, how: Settings) -> Tensor:
    """Tell which predictions another sample's input would break; such inputs are in the box."""
    outputs, random = unattacked(scene, how).outputs, generator(how.seed)
    orders = [torch.randperm(len(outputs), generator=random) for _ in range(OTHERS)]
    swapped = [scene.victim.broken(outputs[order], scene.targets) for order in orders]
    return torch.stack(swapped).any(0)


def unattacked(scene: Scene, how: Settings) -> Attacked:
    """Return what the model answers to the samples themselves."""
    return judged(scene.victim, scene.inputs, scene.targets, how.batch_size)


def _at_goal(found: Attacked, goal: Tensor) -> Attacked:
    return dataclasses.replace(found, broken=found.outputs.argmax(1) == goal)


def _judged_by_truth(scene: Scene, found: Attacked) -> Attacked:
    return dataclasses.replace(found, broken=scene.victim.broken(found.outputs, scene.targets))


def _on_the_rest(
    scene: Scene,
    epsilon: float,
    how: Settings,
    objective: Objective,
    found: Attacked,
    goal: Tensor | None = None,
) -> Attacked:
    """Attack what is not broken yet; what is broken or wrong anyway stays as it is."""
    rows = (~found.broken).nonzero().flatten()
    if not len(rows):
        return found
    part = dataclasses.replace(
        scene,
        inputs=scene.inputs[rows],
        targets=scene.targets[rows],
        threat=scene.threat.of(rows, scene.inputs),
    )
    some = attacked(part, epsilon, how, objective, None if goal is None else goal[rows])
    # Scores of another objective cannot be compared, so that the loss is computed there.
    losses = scene.victim.loss(some.outputs, part.targets)
    some = dataclasses.replace(some, scores=losses)
    names = [field.name for field in dataclasses.fields(Attacked)]
    return Attacked(
        *(getattr(found, name).index_copy(0, rows, getattr(some, name)) for name in names)
    )


def noisy(scene: Scene, epsilon: float | Tensor, how: Settings) -> Attacked:
    """Try random points of the ball on all samples."""
    return random_noise(
        scene.victim, scene.inputs, scene.targets, scene.threat.at(epsilon), draws=how.draws,
        seed=how.seed, batch_size=how.batch_size,
    )  # fmt: skip


def _black_box(scene: Scene, epsilon: float, how: Settings, surrogate: nn.Module) -> Attacked:
    return transfer(
        scene.victim, surrogate, scene.inputs, scene.targets, scene.threat.at(epsilon),
        steps=how.steps, seed=how.seed, batch_size=how.batch_size,
    )  # fmt: skip
