"""The smallest change that breaks a prediction, sample by sample."""

import dataclasses

import torch
from torch import Tensor

from mindgap.core import evaluating, implements, integer
from mindgap.core.purity import preserved
from mindgap.ops.attacks.controls import judged
from mindgap.ops.attacks.descent import BATCH, pgd
from mindgap.ops.attacks.threat import Ball, Threat
from mindgap.ops.attacks.victim import Victim

RIVALS = 10  # outputs whose boundaries are tried; gradients of more cost more than they find
BEYOND = 1.02  # how far a step goes past the boundary of the linearized model
PULLS = 20  # halvings on the way from the sample to the point found


@dataclasses.dataclass(frozen=True)
class Smallest:
    """The smallest changes found, one row per sample.

    Args:
        points: The changed inputs; the samples themselves where nothing was found.
        sizes: The norms of the changes: zero where the prediction was wrong already, infinite
            where no change breaks it.
    """

    points: Tensor
    sizes: Tensor


@implements("S4", cites=("moosavi2016deepfool", "rony2019decoupling"))
def minimal_norm(
    victim: Victim,
    inputs: Tensor,
    targets: Tensor,
    threat: Threat,
    *,
    steps: int = 20,
    rounds: int = 8,
    batch_size: int = BATCH,
) -> Smallest:
    r"""Search the smallest change of every sample that breaks its prediction.

    Formula: $\min \left\{ \lVert \delta / u \rVert_p : \hat y(x + \delta) \ne y \right\}$

    Reading: An upper bound of the distance to the decision boundary. First the model is linearized
    again and again and its nearest boundary crossed; then PGD tries ever smaller radii. Exact for
    linear models.

    Assumes: Inputs that are real numbers, and gradients that show the way.

    Args:
        victim: The model under attack; margins are attacked, whatever its objective.
        inputs: One sample per row.
        targets: The true targets.
        threat: What the attacker may do; its radius is the largest that is tried.
        steps: Linearizations, and steps of PGD per radius.
        rounds: Number of radii per sample.
        batch_size: Samples that are attacked at once.

    >>> x, y = torch.tensor([[3.0, 0.0]]), torch.tensor([0])
    >>> found = minimal_norm(Victim.of(torch.nn.Identity()), x, y, Threat(norm="l2", epsilon=9.0))
    >>> round(float(found.sizes), 4)  # 3 / √2
    2.1213
    """
    integer("rounds", rounds, 0)
    inputs, targets = inputs.detach().to(victim.like), targets.to(victim.like.device)
    with preserved(victim.model, weights=False), evaluating(victim.model):
        aiming = victim.checked(inputs, targets).aiming("margin")
        problem = _Problem(aiming, inputs, targets, threat, steps, batch_size)
        found = problem.linearized()
        found = problem.widest(found)
        for _ in range(rounds):
            found = problem.smaller(found)
    return found.smallest


@dataclasses.dataclass(frozen=True)
class _Search:
    """The smallest changes so far, and the radii at which an attack failed."""

    smallest: Smallest
    failed: Tensor


@dataclasses.dataclass(frozen=True)
class _Problem:
    victim: Victim
    inputs: Tensor
    targets: Tensor
    threat: Threat
    steps: int
    batch_size: int

    def linearized(self) -> _Search:
        """Cross the boundaries of linearized models."""
        ball, every = self.threat.around(self.inputs), torch.arange(len(self.inputs))
        parts = [
            _crossed(self.victim, ball[rows], self.targets[rows], self.steps)
            for rows in every.to(self.inputs.device).split(self.batch_size)
        ]
        found = _pulled(self.victim, ball, torch.cat(parts), self.targets)
        return _Search(found, torch.zeros_like(ball.radius.flatten()))

    def widest(self, found: _Search) -> _Search:
        """Try the whole radius where linearizing found nothing."""
        rows = torch.isinf(found.smallest.sizes).nonzero().flatten()
        return self._tried(found, rows, self.threat.around(self.inputs).radius.flatten())

    def smaller(self, found: _Search) -> _Search:
        """Try a radius between the smallest change and the largest radius that failed."""
        sizes = found.smallest.sizes
        rows = (torch.isfinite(sizes) & (sizes > found.failed * 1.001)).nonzero().flatten()
        # Closer to the known end: most failures are at radii that are far too small.
        return self._tried(found, rows, found.failed + 0.75 * (sizes - found.failed))

    def _tried(self, found: _Search, rows: Tensor, radii: Tensor) -> _Search:
        if not len(rows):
            return found
        inputs, targets = self.inputs[rows], self.targets[rows]
        near = self.threat.of(rows, self.inputs).at(radii[rows])
        # From random points: at a number that equals its target the gradient is zero.
        attacked = pgd(
            self.victim, inputs, targets, near, steps=self.steps, batch_size=self.batch_size
        )
        again = _pulled(self.victim, near.around(inputs), attacked.points, targets)
        smaller = again.sizes < found.smallest.sizes[rows]
        won, lost = rows[smaller], rows[~attacked.broken]
        points, sizes = found.smallest.points.clone(), found.smallest.sizes.clone()
        points[won], sizes[won] = again.points[smaller], again.sizes[smaller]
        failed = found.failed.clone()
        failed[lost] = torch.maximum(failed[lost], radii[lost])
        return _Search(Smallest(points, sizes), failed)


def _crossed(victim: Victim, ball: Ball, targets: Tensor, steps: int) -> Tensor:
    """Step across the nearest boundary of the linearized model until the prediction breaks."""
    points = ball.inputs
    for _ in range(steps):
        gaps, slopes = _boundaries(victim, points, targets)
        # The dual norm of a slope is how much a change of size one moves its gap.
        lengths = ball.dual(slopes)
        ways = torch.where(lengths > 0, gaps.clamp_min(0) / lengths.clamp_min(1e-30), torch.inf)
        nearest = ways.argmin(1)
        way = ways.gather(1, nearest[:, None]).flatten()
        running = (gaps > 0).all(1) & torch.isfinite(way)
        if not bool(running.any()):
            break
        slope = slopes[torch.arange(len(nearest), device=nearest.device), nearest]
        length = torch.where(running, BEYOND * way + 1e-9, torch.zeros_like(way))
        points = ball.moved(points, -slope, length)
    return points


def _boundaries(victim: Victim, points: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest gaps of every sample and their gradients."""
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        gaps = victim.gaps(victim.outputs_and_logits(points)[1], targets)
        some = gaps.topk(min(RIVALS, gaps.shape[1]), dim=1, largest=False).values
        # The gap of a class to itself is infinite and must not be differentiated.
        known = torch.where(torch.isfinite(some), some, torch.zeros_like(some))
        slopes = [
            torch.autograd.grad(known[:, k].sum(), points, retain_graph=True)[0]
            for k in range(known.shape[1])
        ]
    return some.detach(), torch.stack(slopes, 1).nan_to_num(0.0, 0.0, 0.0)


def _pulled(victim: Victim, ball: Ball, points: Tensor, targets: Tensor) -> Smallest:
    """Halve the way from the sample to the point, as long as the prediction stays broken."""
    broken = judged(victim, points, targets).broken
    right = ~judged(victim, ball.inputs, targets).broken
    shape = (-1, *[1] * (points.ndim - 1))
    low, high = torch.zeros_like(ball.radius), torch.where(right.view(shape), 1.0, 0.0).to(points)
    for _ in range(PULLS):
        middle = (low + high) / 2
        inside = judged(victim, ball.inputs + middle * (points - ball.inputs), targets).broken
        high = torch.where(inside.view(shape), middle, high)
        low = torch.where(inside.view(shape), low, middle)
    found = torch.where(high == 1, points, ball.inputs + high * (points - ball.inputs))
    sizes = torch.where(broken | ~right, ball.sizes(found), torch.inf)
    inside = sizes <= ball.radius.flatten() * (1 + 1e-6)
    sizes = torch.where(inside, sizes, torch.inf)
    return Smallest(torch.where(torch.isfinite(sizes).view(shape), found, ball.inputs), sizes)
