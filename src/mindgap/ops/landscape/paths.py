"""Two minima: the straight line between them, and a bent path along which the loss stays low."""

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mindgap.core import (
    Batch,
    InputError,
    Progress,
    call,
    copied,
    implements,
    integer,
    number,
    same_environment,
    with_weights,
)
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.landscape.points import BatchNorm, losses_at


@dataclasses.dataclass(frozen=True)
class Path:
    """Losses on the line between two minima and on a bent path between them.

    Args:
        places: From 0, the first minimum, to 1, the second.
        line: Losses on the straight line.
        bent: Losses on the bent path.
        bend: The weights that pull the path, flat.
    """

    places: Tensor
    line: Tensor
    bent: Tensor
    bend: Tensor

    @property
    def line_barrier(self) -> float:
        """How far the loss on the line rises above the straight line between both losses."""
        return _barrier(self.places, self.line)

    @property
    def bent_barrier(self) -> float:
        """How far the loss on the bent path rises above the straight line between both losses."""
        return _barrier(self.places, self.bent)


def _barrier(places: Tensor, losses: Tensor) -> float:
    straight = losses[0] + places * (losses[-1] - losses[0])
    return float((losses - straight).max())


@implements("E3", cites=("garipov2018loss",))
@same_environment()
def bent_path(
    flat: FlatLoss,
    other: Tensor,
    *,
    steps: int = 600,
    learning_rate: float = 0.01,
    batch_size: int = 128,
    batch_norm: BatchNorm = "running",
    seed: int = 0,
    progress: bool = False,
) -> Tensor:
    r"""Search for a quadratic Bézier curve between two minima along which the loss is low.

    Formula: $\min_\theta \mathbb{E}_{t \sim U(0,1)} L((1-t)^2 w_1 + 2t(1-t)\theta + t^2 w_2)$

    Reading: As Garipov et al. (2018) do, the middle weights minimize the mean loss over the curve:
    every step draws a place and a batch. The steps are Adam's, with a rate that falls linearly to
    zero.

    Assumes: Two minima of the same network. A curve that is not found may exist all the same.

    Args:
        flat: The loss, whose model is the first minimum.
        other: The weights of the second, flat.
        steps: Number of steps; zero gives the middle of the line.
        learning_rate: The first rate.
        batch_size: Samples per step.
        batch_norm: ``"recomputed"`` normalizes by the batch in every step, ``"running"`` by the
            model's running statistics.
        seed: Seed of places and batches.
        progress: Whether to show a progress bar.

    Returns:
        The middle weights :math:`\theta`, flat.

    >>> from mindgap.core import Subject
    >>> data = (torch.ones(4, 1), torch.ones(4, 1))
    >>> model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    >>> flat = FlatLoss(Subject(model, "mse", data))
    >>> for weight, value in zip(model.parameters(), (4.0, 0.25)):
    ...     _ = weight.data.fill_(value)
    >>> other = torch.tensor([0.25, 4.0])
    >>> found = path_losses(flat, other, bent_path(flat, other))
    >>> found.line_barrier > 10, found.bent_barrier < 1
    (True, True)
    """
    own = _same_kind(flat, other)
    integer("steps", steps, 0)
    number("learning_rate", learning_rate)
    bend = ((own + other.to(own)) / 2).requires_grad_()
    optimizer = torch.optim.Adam([bend], lr=learning_rate)
    model, source = _training_copy(flat.model, batch_norm), torch.Generator().manual_seed(seed)
    with Progress(steps, unit="step", title="path", shown=progress) as bar, torch.enable_grad():
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = learning_rate * (1 - step / steps)
            order = torch.randperm(flat.samples, generator=source)[:batch_size]
            (batch,) = flat.batches(order, batch_size)
            first, second = coordinates(torch.rand(1, generator=source).to(own))[0]
            optimizer.zero_grad()
            point = own + first * (other.to(own) - own) + second * (bend - own)
            _mean_loss(flat, model, point, batch).backward()
            optimizer.step()
            bar.advance()
    return bend.detach()


def path_losses(
    flat: FlatLoss,
    other: Tensor,
    bend: Tensor,
    *,
    points: int = 25,
    batch_norm: BatchNorm = "running",
    progress: bool = False,
) -> Path:
    """Compute the losses on the line and on the bent path.

    Args:
        flat: The loss, whose model is the first minimum.
        other: The weights of the second, flat.
        bend: The middle weights of the path.
        points: Places on each, both ends included.
        batch_norm: How batch normalization is treated, as in
            :func:`mindgap.ops.landscape.points.losses_at`.
        progress: Whether to show a progress bar.
    """
    own = _same_kind(flat, other)
    places = torch.linspace(0, 1, integer("points", points, 2), dtype=torch.float64)
    straight = torch.stack([places, torch.zeros_like(places)], 1)
    directions = torch.stack([other.to(own) - own, bend.to(own) - own])
    losses = losses_at(
        flat,
        directions,
        torch.cat([straight, coordinates(places)]),
        batch_norm=batch_norm,
        progress=progress,
    )
    return Path(places, losses[:points], losses[points:], bend)


def coordinates(places: Tensor) -> Tensor:
    """Return the curve's coordinates along (second − first) and (bend − first).

    >>> coordinates(torch.tensor([0.0, 0.5, 1.0])).tolist()
    [[0.0, 0.0], [0.25, 0.5], [1.0, 0.0]]
    """
    return torch.stack([places**2, 2 * places * (1 - places)], 1)


def _same_kind(flat: FlatLoss, other: Tensor) -> Tensor:
    own = flat.point
    if other.shape != own.shape:
        raise InputError(
            f"Both minima must have the same weights, {len(own):,} in all, got {other.numel():,} in "
            "the second. Train the same network twice."
        )
    return own


def _training_copy(model: nn.Module, batch_norm: BatchNorm) -> nn.Module:
    """A copy in evaluation mode, but for batch normalization that follows the batch."""
    own = copied(model).eval()
    for layer in own.modules():
        if isinstance(layer, _BatchNorm) and batch_norm == "recomputed":
            layer.train()
    return own


def _mean_loss(flat: FlatLoss, model: nn.Module, point: Tensor, batch: Batch) -> Tensor:
    def answer(*given: Tensor, **named: Tensor) -> object:
        return with_weights(model, flat.weights(point), given, named)

    outputs = call(answer, batch.inputs, point)  # type: ignore[arg-type]
    return flat.subject.loss(outputs, batch.target).mean()
