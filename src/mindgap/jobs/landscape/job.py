"""landscape: compute the loss around a trained model, or between two."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mindgap.core import InputError, Subject, Which, integer, validated
from mindgap.jobs.landscape import planes
from mindgap.jobs.landscape.answer import Landscape, Trail
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.landscape.directions import Normalize
from mindgap.ops.landscape.paths import bent_path, coordinates, path_losses
from mindgap.ops.landscape.points import BatchNorm, has_batch_norm, losses_at, surface
from mindgap.training.fitted import Fitted

STATISTICS = {
    "running": "running statistics as they are",
    "recomputed": "statistics recomputed at each point",
    "": "none in the model",
}


@validated
def landscape(
    subject: Subject | Fitted,
    *,
    directions: planes.Directions = "random",
    normalize: Normalize = "filter",
    points: int = 25,
    span: float | None = None,
    dimensions: int = 2,
    to: Subject | Fitted | None = None,
    trajectory: Sequence[Mapping[str, Tensor]] | None = None,
    batch_norm: BatchNorm | None = None,
    which: Which = "train",
    samples: int = 2_000,
    steps: int = 600,
    seed: int = 0,
    progress: bool = False,
) -> Landscape:
    """Compute the loss on a grid around a trained model, or between two trained models.

    Args:
        subject: A model with its loss and data, or what ``fit`` returned. It is not changed.
        directions: ``"random"``; ``"hessian"`` for the eigenvectors of the largest eigenvalues; or
            ``"trajectory"`` for the plane that holds most of a training run.
        normalize: How random directions are scaled: by ``"filter"``, by ``"layer"`` or ``"none"``.
        points: Points of the grid in each direction; an odd number has the model among them.
        span: How far the grid reaches from the model. If None: 1 for scaled directions, the norm
            of the weights for directions of length one, so far that a quadratic loss rises by one
            for eigenvectors, and beyond all of a trajectory.
        dimensions: 2 for a surface, 1 for a line.
        to: A second model of the same kind. The plane then holds both minima and a bent path of
            low loss between them, which is searched for.
        trajectory: State dicts from training, in order; the model's own weights are the end. If
            None, the subject's recipe is trained again and its weights are recorded every epoch.
        batch_norm: ``"running"`` keeps the statistics of batch normalization, ``"recomputed"``
            averages them anew at each point. If None, they are recomputed between two models and
            kept otherwise.
        which: The data whose loss is computed: ``"train"`` or ``"test"``.
        samples: The most samples to use, drawn at random.
        steps: Steps of the search for a bent path.
        seed: Seed of directions, samples and search.
        progress: Whether to show a progress bar.

    Returns:
        The losses. Print them, show their charts, or ``save`` them as .html, .csv, .json or .png.

    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> subject = Subject(torch.nn.Linear(1, 1), "mse", (x, 2 * x))
    >>> found = landscape(subject, points=5, normalize="none")
    >>> found.losses.shape, found.charts()[0].kind
    (torch.Size([5, 5]), 'surface')
    """
    integer("dimensions", dimensions, 1, 2)
    integer("points", points, 3)
    integer("steps", steps)
    integer("seed", seed, 0)
    target = _subset(_subject(subject), which, integer("samples", samples), seed)
    target.outputs()  # refuses what is no number
    flat = FlatLoss(target)
    if span is not None and not (math.isfinite(span) and span > 0):
        raise InputError(f"span must be a positive number, got {span}. Pass 1, for example.")
    statistics: BatchNorm = batch_norm or ("running" if to is None else "recomputed")
    if to is not None:
        found = _between(
            flat, _weights(_subject(to), flat), points, steps, statistics, seed, progress
        )
    else:
        plane = planes.plane_of(flat, _subject(subject), directions, normalize, trajectory, seed)
        found = _around(flat, plane, points, span, dimensions, statistics, progress)
    told = {
        "Directions": found.settings["Directions"],
        "Batch normalization": STATISTICS[statistics if has_batch_norm(flat.model) else ""],
        "Data": f"{flat.samples:,} {'training' if which == 'train' else 'test'} samples",
    }
    return dataclasses.replace(found, name=target.name, settings=told, which=which)


def _subject(given: Subject | Fitted) -> Subject:
    subject = given.subject() if isinstance(given, Fitted) else given
    reason = subject.instability()
    if reason:
        raise InputError(
            "A landscape needs outputs that depend on the weights and the sample alone, got a model "
            f"where {reason}. Switch dropout and noise off in evaluation mode."
        )
    return subject


def _subset(subject: Subject, which: Which, samples: int, seed: int) -> Subject:
    count = len(subject.split(which))
    order = torch.arange(count)
    if count > samples:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        order = order[:samples].sort().values
    return subject.part(order, which)


def _weights(subject: Subject, flat: FlatLoss) -> Tensor:
    return planes.flattened(dict(subject.model.named_parameters()), flat)


def _around(
    flat: FlatLoss,
    plane: planes.Plane,
    points: int,
    span: float | None,
    dimensions: int,
    batch_norm: BatchNorm,
    progress: bool,
) -> Landscape:
    x, y = planes.axes_of(plane, points, span)
    y = y if dimensions == 2 else torch.zeros(1, dtype=torch.float64)
    losses = surface(flat, plane.directions, x, y, batch_norm=batch_norm, progress=progress)
    extra = torch.zeros(1, 2, dtype=torch.float64)
    if plane.trail is not None:
        extra = torch.cat([extra, plane.trail.double()])
    there = losses_at(flat, plane.directions, extra, batch_norm=batch_norm)
    trails = (Trail("training", extra[1:], there[1:]),) if plane.trail is not None else ()
    return Landscape(
        name="",
        settings={"Directions": plane.words},
        x=x,
        y=y,
        losses=losses,
        center=float(there[0]),
        labels=plane.labels,
        trails=trails,
        facts=plane.facts,
    )


def _between(
    flat: FlatLoss,
    other: Tensor,
    points: int,
    steps: int,
    batch_norm: BatchNorm,
    seed: int,
    progress: bool,
) -> Landscape:
    own = flat.point
    if torch.equal(own, other):
        raise InputError(
            "Two minima must have different weights, got the same twice. Train with another seed."
        )
    bend = bent_path(flat, other, steps=steps, batch_norm=batch_norm, seed=seed, progress=progress)
    ways = path_losses(flat, other, bend, points=points, batch_norm=batch_norm)
    directions, corners = planes.frame_of(own, other, bend)
    places = torch.stack([ways.places, torch.zeros_like(ways.places)], 1) @ corners
    curve = coordinates(ways.places) @ corners
    both = torch.cat([places, curve])
    x, y = planes.beyond(both[:, 0], points), planes.beyond(both[:, 1], points)
    losses = surface(flat, directions, x, y, batch_norm=batch_norm, progress=progress)
    return Landscape(
        name="",
        settings={"Directions": "the plane of both minima and the bend of the path, in distances"},
        x=x,
        y=y,
        losses=losses,
        center=float(ways.line[0]),
        labels=("towards the second minimum", "across, towards the bend"),
        trails=(Trail("straight line", places, ways.line), Trail("bent path", curve, ways.bent)),
        between=ways,
        facts={"distance of the minima": float((other - own).norm())},
    )
