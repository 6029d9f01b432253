"""How much noise on the weights, random or worst, a model stands before its error rises."""

import dataclasses
import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import Inputs, Subject, evaluating, generator, standard_error, values
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.models.parameters import vmap_or_loop

EPSILON = 1e-3  # the least noise on a weight of zero, of Jiang et al.
RANGE = (1e-6, 1e3)  # of scales that are tried
HALVINGS = 16  # leave a relative error of 3e-4
ASCENT = 10  # steps of the search for the worst noise
AT_ONCE = 8_000_000  # weights of all models that are evaluated together


@dataclasses.dataclass(frozen=True)
class NoiseSearch:
    """The scale of noise at which the training error has risen as far as allowed.

    Args:
        scale: σ or σ' of Gaussian noise, α or α' of the worst noise.
        standard_error: What a limited number of draws leaves open in it; None for the worst noise.
        converged: Whether the rise was found between two scales that were tried.
        rise: The rise of the error rate at the scale.
        error: The error rate without noise.
    """

    scale: float
    standard_error: float | None
    converged: bool
    rise: float
    error: float


@dataclasses.dataclass(frozen=True)
class Search:
    """What to search for.

    Args:
        magnitude: Whether noise grows with the size of a weight.
        rise: The rise of the error rate that is allowed.
        draws: Draws of Gaussian noise; the same ones for all scales.
        samples: The largest number of training samples to use.
        seed: The seed of noise and of the choice of samples.
        published: Draw Gaussian noise with what should be its variance as its standard deviation.
    """

    magnitude: bool = False
    rise: float = 0.1
    draws: int = 16
    samples: int = 1000
    seed: int = 0
    published: bool = False

    def gaussian(self, subject: Subject) -> NoiseSearch:
        """Find the standard deviation of Gaussian noise with the given mean rise of the error.

        >>> data = torch.eye(2).repeat(8, 1), torch.arange(2).repeat(8)
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> _ = model.weight.data.copy_(torch.eye(2))
        >>> found = Search().gaussian(Subject(model, "cross_entropy", data))
        >>> found.converged, 0.2 < found.scale < 2.0
        (True, True)
        """
        return subject.cached(("gaussian noise", self), lambda: self._gaussian(subject))

    def worst(self, subject: Subject) -> NoiseSearch:
        """Find the radius of a box in which projected ascent makes the error rise as far.

        The ascent may miss the worst place, so that the radius is an upper estimate.

        >>> data = torch.eye(2).repeat(8, 1), torch.arange(2).repeat(8)
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> _ = model.weight.data.copy_(torch.eye(2))
        >>> found = Search().worst(Subject(model, "cross_entropy", data))
        >>> round(found.scale, 2)
        0.5
        """
        return subject.cached(("worst noise", self), lambda: self._worst(subject))

    def sizes(self, place: Tensor, scale: float) -> Tensor:
        """Return the standard deviation of the noise on every weight."""
        if self.published:
            return self._variances(place, scale)
        if not self.magnitude:
            return torch.full_like(place, scale)
        return self._variances(place, scale).sqrt()

    def _variances(self, place: Tensor, scale: float) -> Tensor:
        if not self.magnitude:
            return torch.full_like(place, scale**2)
        return scale**2 * place.square() + EPSILON**2

    def _gaussian(self, subject: Subject) -> NoiseSearch:
        flat, order = FlatLoss(subject), self._order(subject)
        place, source = flat.point.double().cpu(), generator(self.seed)
        rows = [
            torch.randn(len(place), generator=source, dtype=torch.double) for _ in range(self.draws)
        ]
        noise = torch.stack(rows)

        def errors(scale: float) -> Tensor:
            points = place + self.sizes(place, scale) * noise
            return _error_rates(flat, order, points.to(flat.point))

        def slope(scale: float) -> float:
            near = [float(errors(scale * math.exp(step)).mean()) for step in (-0.1, 0.1)]
            return (near[1] - near[0]) / 0.2

        base = float(_error_rates(flat, order, flat.point[None])[0])
        scale, converged = self._halved(lambda at: float(errors(at).mean()) - base)
        there = errors(scale)
        rising = slope(scale)
        spread = standard_error(there.tolist()) if self.draws > 1 else math.nan
        error = scale * spread / rising if rising > 0 and spread == spread else None
        return NoiseSearch(scale, error, converged, float(there.mean()) - base, base)

    def _worst(self, subject: Subject) -> NoiseSearch:
        flat, order = FlatLoss(subject), self._order(subject)
        base = float(_error_rates(flat, order, flat.point[None])[0])

        def rise(scale: float) -> float:
            radius = scale * flat.point.abs() + EPSILON if self.magnitude else scale
            return _ascended(flat, order, radius) - base

        scale, converged = self._halved(rise)
        return NoiseSearch(scale, None, converged, rise(scale), base)

    def _halved(self, rise: Callable[[float], float]) -> tuple[float, bool]:
        """Halve the range of scales, on a logarithmic axis, until the rise is met."""
        low, high = (math.log(end) for end in RANGE)
        if rise(RANGE[1]) <= self.rise:
            return RANGE[1], False
        if rise(RANGE[0]) > self.rise:
            return RANGE[0], False
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if rise(math.exp(middle)) > self.rise else (middle, high)
        return math.exp(low), True

    def _order(self, subject: Subject) -> Tensor | None:
        if len(subject.train) <= self.samples:
            return None
        shuffled = torch.randperm(len(subject.train), generator=generator(self.seed + 1))
        return shuffled[: self.samples]


def _error_rates(flat: FlatLoss, order: Tensor | None, points: Tensor) -> Tensor:
    """Compute the error rate at each point, many points per pass."""
    first = next(flat.batches(order))
    read = 8 * sum(value.numel() for value in values(first.inputs))
    together = max(1, AT_ONCE // max(1, points.shape[1], read))
    with evaluating(flat.model):
        return torch.cat([_rates(flat, order, block) for block in points.split(together)])


def _rates(flat: FlatLoss, order: Tensor | None, points: Tensor) -> Tensor:
    wrong, count = torch.zeros(len(points), dtype=torch.double), 0
    for batch in flat.batches(order):
        outputs = vmap_or_loop(functools.partial(_outputs, flat, batch.inputs), points)
        wrong += (outputs.argmax(2) != batch.target).sum(1).double().cpu()
        count += len(batch.target)
    return wrong / count


def _outputs(flat: FlatLoss, inputs: Inputs, point: Tensor) -> Tensor:
    return flat.outputs(point, inputs)


def _ascended(flat: FlatLoss, order: Tensor | None, radius: Tensor | float) -> float:
    """Climb the loss by signed steps inside a box; return the largest error rate on the way."""
    start = flat.point
    point, worst = start.clone(), 0.0
    for step in range(ASCENT + 1):
        gradient, error = _gradient(flat, order, point)
        worst = max(worst, error)
        if step < ASCENT:
            # Rounding decides the sign of a derivative that should be zero, so it counts as zero.
            sure = gradient.abs() > 1e-6 * gradient.abs().max()
            moved = point + torch.where(sure, gradient.sign(), 0.0) * radius * (2.5 / ASCENT)
            point = torch.minimum(torch.maximum(moved, start - radius), start + radius)
    return worst


def _gradient(flat: FlatLoss, order: Tensor | None, point: Tensor) -> tuple[Tensor, float]:
    point = point.detach().requires_grad_()
    total, wrong, count = torch.zeros_like(point), 0, 0
    with evaluating(flat.model), torch.enable_grad():
        for batch in flat.batches(order):
            outputs = flat.outputs(point, batch.inputs)
            loss = flat.subject.loss(outputs, batch.target).sum()
            total += torch.autograd.grad(loss, point)[0]
            wrong += int((outputs.argmax(1) != batch.target).sum())
            count += len(batch.target)
    return total, wrong / count
