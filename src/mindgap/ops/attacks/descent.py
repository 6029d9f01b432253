"""Attacks by gradient: FGSM, PGD and the iterative attack towards a class."""

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import InputError, choice, evaluating, generator, implements, integer, number
from mindgap.core.purity import preserved
from mindgap.ops.attacks.threat import Ball, Threat
from mindgap.ops.attacks.victim import Victim

BATCH = 512
SPREAD = 2.5  # radii that all steps together are long, as in Madry et al. (2018)
CROWDED = 0.8  # share of running samples below which the others are taken out of the batch


@dataclasses.dataclass(frozen=True)
class Attacked:
    """What an attack found, one row per sample.

    Args:
        points: The inputs that it chose.
        outputs: The model's outputs there.
        scores: What it increased.
        broken: Whether the prediction is wrong there; with a goal, whether the goal is reached.
        silent: Whether the gradient was exactly zero, or no number, where the attack began.
    """

    points: Tensor
    outputs: Tensor
    scores: Tensor
    broken: Tensor
    silent: Tensor

    @property
    def robust_accuracy(self) -> float:
        """The share of samples whose prediction is still right."""
        return 1 - float(self.broken.double().mean())


@implements("S4", cites=("goodfellow2015explaining",))
def fgsm(
    victim: Victim,
    inputs: Tensor,
    targets: Tensor,
    threat: Threat,
    *,
    goal: Tensor | None = None,
    batch_size: int = BATCH,
) -> Attacked:
    r"""Attack by one step of the whole radius along the steepest direction.

    Formula: $x' = x + \epsilon\, \mathrm{sign}\left( \nabla_x \ell(f(x), y) \right)$

    Reading: Exact for a linear model. On others it is the cheapest attack, and a weak one. In L2 and
    L1 the step goes along the steepest direction of that norm.

    Assumes: Inputs that are real numbers.

    Args:
        victim: The model under attack.
        inputs: One sample per row.
        targets: The true targets.
        threat: What the attacker may do.
        goal: Classes to reach; None to get away from the true ones.
        batch_size: Samples that are attacked at once.

    >>> from torch import nn
    >>> x, y = torch.tensor([[0.4, 0.0]]), torch.tensor([0])
    >>> fgsm(Victim.of(nn.Identity()), x, y, Threat(epsilon=0.25)).points.tolist()
    [[0.15000000596046448, 0.25]]
    """
    return pgd(
        victim, inputs, targets, threat, steps=1, step=1.0, random_start=False, keep="last",
        goal=goal, batch_size=batch_size,
    )  # fmt: skip


@implements("S4", cites=("kurakin2017adversarial",))
def iterative_target_class(
    victim: Victim,
    inputs: Tensor,
    targets: Tensor,
    threat: Threat,
    *,
    goal: Tensor | None = None,
    steps: int = 20,
    step: float | None = None,
    batch_size: int = BATCH,
) -> Attacked:
    r"""Attack towards one class in small steps, each cut off at the ball around the sample.

    Formula: $x_{t+1} = \Pi_{B(x, \epsilon)}\left( x_t - \alpha\, \mathrm{sign}\left( \nabla_x
    \ell(f(x_t), y_{goal}) \right) \right), \qquad \alpha < \epsilon$

    Reading: The loss of the wanted class falls, so the step has a minus sign. The wanted class is
    the least likely one unless another is given.

    Assumes: A classification, and inputs that are real numbers.

    Args:
        victim: The model under attack.
        inputs: One sample per row.
        targets: The true classes.
        threat: What the attacker may do.
        goal: One class per sample; the least likely of every sample if None.
        steps: Number of steps.
        step: Length α of a step, as a share of the radius; below one.
        batch_size: Samples that are attacked at once.

    >>> from torch import nn
    >>> x, y = torch.tensor([[0.4, 0.0, -1.0]]), torch.tensor([0])
    >>> found = iterative_target_class(Victim.of(nn.Identity()), x, y, Threat(epsilon=1.0))
    >>> int(found.outputs.argmax())
    2
    """
    if victim.task != "classification":
        raise InputError(f"A target class needs a classification, got a {victim.task}. Use pgd.")
    if step is not None and not 0 < step < 1:
        raise InputError(f"step must be above 0 and below 1, got {step}. Leave it out.")
    if goal is None:
        goal = victim.answers(inputs, batch_size).argmin(1)
    return pgd(
        victim, inputs, targets, threat, steps=steps, step=step, random_start=False, goal=goal,
        batch_size=batch_size,
    )  # fmt: skip


@implements("S4", cites=("madry2018towards", "dong2018boosting"))
def pgd(
    victim: Victim,
    inputs: Tensor,
    targets: Tensor,
    threat: Threat,
    *,
    steps: int = 20,
    step: float | None = None,
    restarts: int = 1,
    momentum: float = 0.0,
    random_start: bool = True,
    keep: Literal["best", "last"] = "best",
    goal: Tensor | None = None,
    seed: int = 0,
    batch_size: int = BATCH,
) -> Attacked:
    r"""Attack by projected gradient ascent from random points of the ball.

    Formula: $x_{t+1} = \Pi_{B(x, \epsilon)}\left( x_t + \alpha \, \arg\max_{\|v\|_p \le 1} \langle v,
    \nabla_x \ell(f(x_t), y) \rangle \right)$

    Reading: A broken prediction proves that the model is not robust at the sample. One that holds
    proves nothing: a better attack may break it. So the accuracy is an upper bound.

    Assumes: Inputs that are real numbers, and gradients that show the way (see masking).

    The model is attacked in evaluation mode. Its mode, statistics and gradients stay as they are.

    Args:
        victim: The model under attack.
        inputs: One sample per row.
        targets: The true targets.
        threat: What the attacker may do.
        steps: Number of steps; samples that break earlier are done.
        step: Length α of a step, as a share of the radius; 2.5 over the number of steps if None.
        restarts: Number of starts; later ones attack what the earlier ones did not break.
        momentum: How much of the earlier directions a step keeps.
        random_start: Whether to begin at a random point of the ball instead of the sample.
        keep: ``"best"`` returns the first point that breaks a prediction, or else the one with the
            largest score; ``"last"`` makes all steps and returns the last point, as a textbook.
        goal: Classes to reach; None to get away from the true ones.
        seed: Seed of the starts.
        batch_size: Samples that are attacked at once.

    >>> from torch import nn
    >>> x, y = torch.tensor([[0.4, 0.0], [3.0, 0.0]]), torch.tensor([0, 0])
    >>> pgd(Victim.of(nn.Identity()), x, y, Threat(norm="l2", epsilon=0.5)).broken.tolist()
    [True, False]
    """
    integer("steps", steps)
    integer("restarts", restarts)
    integer("batch_size", batch_size)
    choice("keep", keep, ("best", "last"))
    number("momentum", momentum)
    share = min(1.0, SPREAD / steps) if step is None else number("step", step)
    inputs, targets = inputs.detach().to(victim.like), targets.to(victim.like.device)
    ball, draws = threat.around(inputs), generator(seed) if random_start else None
    goal = None if goal is None else _checked_goal(goal.to(targets.device), victim, inputs)
    aim = _Aim(targets, goal)
    with preserved(victim.model, weights=False), evaluating(victim.model):
        plan = _Plan(victim.checked(inputs, targets), steps, share, momentum, keep)
        # Slices are views: the batches are not copied.
        spans = [slice(k, k + batch_size) for k in range(0, max(1, len(inputs)), batch_size)]
        parts = [_restarted(plan, ball[span], aim[span], restarts, draws) for span in spans]
    return _joined(parts)


def _checked_goal(goal: Tensor, victim: Victim, inputs: Tensor) -> Tensor:
    classes = victim.answers(inputs[:1], 1).shape[-1]
    if goal.shape != inputs.shape[:1] or not bool(((goal >= 0) & (goal < classes)).all()):
        raise InputError(
            f"goal must hold one class from 0 to {classes - 1} per sample ({len(inputs)}), got "
            f"{len(goal) if goal.ndim else 'a single'} of {int(goal.min())} to {int(goal.max())}. "
            "Pass as many as there are samples."
        )
    return goal


@dataclasses.dataclass(frozen=True)
class _Plan:
    victim: Victim
    steps: int
    share: float
    momentum: float
    keep: str

    def found(
        self, points: Tensor, outputs: Tensor, scores: Tensor, aim: "_Aim", silent: Tensor
    ) -> Attacked:
        done = outputs.argmax(1) == aim.goal if aim.goal is not None else None
        broken = self.victim.broken(outputs, aim.targets) if done is None else done
        return Attacked(points, outputs, scores, broken, silent)


@dataclasses.dataclass(frozen=True)
class _Aim:
    """What the samples of a batch should not, or should, be taken for."""

    targets: Tensor
    goal: Tensor | None

    def __getitem__(self, rows: Tensor | slice) -> "_Aim":
        return _Aim(self.targets[rows], None if self.goal is None else self.goal[rows])


def _restarted(
    plan: _Plan, ball: Ball, aim: _Aim, restarts: int, draws: torch.Generator | None
) -> Attacked:
    """Attack from several starts; None draws no start and begins at the samples."""
    found = _climb(plan, ball, aim, ball.inputs if draws is None else ball.random(draws))
    for _ in range(restarts - 1):
        rows = (~found.broken).nonzero().flatten()
        if not len(rows):
            break
        part = ball[rows]
        start = part.inputs if draws is None else part.random(draws)
        found = _improved(found, rows, _climb(plan, part, aim[rows], start))
    return found


def _climb(plan: _Plan, ball: Ball, aim: _Aim, points: Tensor) -> Attacked:
    """Climb from the points; samples that are done leave the batch."""
    rows = torch.arange(len(points), device=points.device)
    kept, silent = None, torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    velocity = torch.zeros_like(points) if plan.momentum else points
    for count in range(plan.steps):
        outputs, scores, gradient = _gradient(plan.victim, points, aim)
        silent = silent if count else _are_zero(gradient)
        if plan.keep == "best":
            now = plan.found(points, outputs, scores, aim, silent[rows])
            # Cloned, because better points will be written over these.
            kept = _cloned(now) if kept is None else _improved(kept, rows, now)
            some = (~now.broken).nonzero().flatten()
            if not len(some):
                return kept
            if len(some) < CROWDED * len(points):
                rows, ball, aim = rows[some], ball[some], aim[some]
                points, gradient = points[some], gradient[some]
                velocity = velocity[some] if plan.momentum else points
        if plan.momentum:
            velocity = gradient = plan.momentum * velocity + _sized(gradient)
        points = ball.step(points, gradient, plan.share)
    with torch.no_grad():
        outputs, scores = plan.victim.scores(points, aim.targets, aim.goal)
    last = plan.found(points, outputs, scores, aim, silent[rows])
    return last if kept is None else _improved(kept, rows, last)


def _gradient(victim: Victim, points: Tensor, aim: _Aim) -> tuple[Tensor, Tensor, Tensor]:
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        outputs, scores = victim.scores(points, aim.targets, aim.goal)
        if not scores.requires_grad:  # the outputs do not depend on the inputs at all
            return outputs, scores, torch.zeros_like(points)
        (gradient,) = torch.autograd.grad(scores.sum(), points, allow_unused=True)
    gradient = torch.zeros_like(points) if gradient is None else gradient
    # Contiguous, so that points keep the order in memory that the inputs have.
    gradient = gradient.contiguous()
    if not bool(gradient.sum().isfinite()):  # a fraction of the time that replacing numbers takes
        gradient = gradient.nan_to_num_(0.0, 0.0, 0.0)
    return outputs.detach(), scores.detach(), gradient


def _are_zero(gradient: Tensor) -> Tensor:
    flat = gradient.flatten(1)
    zero = flat.sum(1) == 0  # ten times as quick as a look at every number
    if bool(zero.any()):
        zero[zero.clone()] = (flat[zero] == 0).all(1)
    return zero


def _sized(gradient: Tensor) -> Tensor:
    total = gradient.abs().flatten(1).mean(1).reshape(-1, *[1] * (gradient.ndim - 1))
    return gradient / torch.where(total > 0, total, torch.ones_like(total))


def _improved(kept: Attacked, rows: Tensor, now: Attacked) -> Attacked:
    """Write the rows where the attack now does better: it breaks, or its score is higher."""
    before, scores = kept.broken[rows], kept.scores[rows]
    some = (~before & (now.broken | (now.scores > scores))).nonzero().flatten()
    for name in ("points", "outputs", "scores", "broken"):
        getattr(kept, name).index_copy_(0, rows[some], getattr(now, name)[some])
    return kept


def _cloned(found: Attacked) -> Attacked:
    return Attacked(*(getattr(found, field.name).clone() for field in dataclasses.fields(found)))


def _joined(parts: list[Attacked]) -> Attacked:
    if len(parts) == 1:
        return parts[0]
    names = [field.name for field in dataclasses.fields(Attacked)]
    return Attacked(*(torch.cat([getattr(part, name) for part in parts]) for name in names))
