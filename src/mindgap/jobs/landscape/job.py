"""landscape: compute the loss around a trained model, or between two."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import InputError, Subject, Which, integer, validated
from mindgap.jobs.landscape.answer import Landscape, Trail
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import hessian_products
from mindgap.ops.curvature.spectrum import top_eigenpairs
from mindgap.ops.landscape.directions import Normalize, random_directions, trajectory_plane, unit
from mindgap.ops.landscape.paths import bent_path, coordinates, path_losses
from mindgap.ops.landscape.points import BatchNorm, has_batch_norm, losses_at, surface
from mindgap.training.fit import Loop
from mindgap.training.fitted import Fitted

Directions = Literal["random", "hessian", "trajectory"]
DIRECTIONS: tuple[Directions, ...] = ("random", "hessian", "trajectory")
MARGIN = 0.25  # of its extent, by which a grid reaches beyond a trail
NORMALIZED = {
    "filter": "random, each filter scaled to the norm of the model's (Li et al., 2018); biases and "
    "normalization parameters do not move",
    "layer": "random, each weight tensor scaled to the norm of the model's; biases and normalization "
    "parameters do not move",
    "none": "random, of length one; all weights move",
}
STATISTICS = {
    "running": "running statistics as they are",
    "recomputed": "statistics recomputed at each point",
    "": "none in the model",
}


@dataclasses.dataclass(frozen=True)
class _Plane:
    """Directions with what is known about them, before any loss is computed."""

    directions: Tensor
    labels: tuple[str, str]
    words: str
    span: float
    trail: Tensor | None = None
    facts: Mapping[str, float] = dataclasses.field(default_factory=dict)


@validated
def landscape(
    subject: Subject | Fitted,
    *,
    directions: Directions = "random",
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
    target = _subset(_subject(subject), which, integer("samples", samples), seed)
    flat = FlatLoss(target)
    if span is not None and not (math.isfinite(span) and span > 0):
        raise InputError(f"span must be a positive number, got {span}. Pass 1, for example.")
    statistics: BatchNorm = batch_norm or ("running" if to is None else "recomputed")
    if to is not None:
        found = _between(
            flat, _weights(_subject(to), flat), points, steps, statistics, seed, progress
        )
    else:
        plane = _plane(flat, _subject(subject), directions, normalize, trajectory, seed)
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
    split = subject.split(which)
    if len(split) > samples:
        order = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))
        split = split.subset(order[:samples].sort().values)
    return Subject(
        subject.model,
        subject.loss,
        split,
        task=subject.task,
        name=subject.name,
        batch_size=subject.batch_size,
        check_determinism=False,
    )


def _weights(subject: Subject, flat: FlatLoss) -> Tensor:
    return _flattened(dict(subject.model.named_parameters()), flat)


def _flattened(state: Mapping[str, Tensor], flat: FlatLoss) -> Tensor:
    own = {name: weight.shape for name, weight in flat.named.items()}
    if any(name not in state or state[name].shape != shape for name, shape in own.items()):
        raise InputError(
            f"Weights must be those of the same network, got others than {', '.join(own)}. Pass "
            "state dicts of this model, or a second model of its class."
        )
    like = next(iter(flat.named.values()))
    return torch.cat([state[name].detach().to(like).flatten() for name in own])


def _plane(
    flat: FlatLoss,
    subject: Subject,
    directions: Directions,
    normalize: Normalize,
    trajectory: Sequence[Mapping[str, Tensor]] | None,
    seed: int,
) -> _Plane:
    if directions == "hessian":
        return _hessian(flat, seed)
    if directions == "trajectory" or trajectory is not None:
        states = _recorded(subject) if trajectory is None else list(trajectory)
        return _trajectory([*(_flattened(state, flat) for state in states), flat.point])
    rows = random_directions(flat.named, normalize=normalize, seed=seed)
    span = float(flat.point.norm()) if normalize == "none" else 1.0
    labels = ("first random direction", "second random direction")
    return _Plane(rows, labels, NORMALIZED[normalize], span)


def _hessian(flat: FlatLoss, seed: int) -> _Plane:
    found = top_eigenpairs(hessian_products(flat), min(2, len(flat.point)), seed=seed)
    if len(found.values) < 2:
        raise InputError(
            "A plane of eigenvectors needs at least two weights, got one. Choose random directions."
        )
    largest = float(found.values[0].abs())
    words = "eigenvectors of the Hessian's largest eigenvalues, of length one"
    return _Plane(
        found.vectors.to(flat.point),
        ("first eigenvector", "second eigenvector"),
        words if found.converged else f"{words}, which did not converge",
        math.sqrt(2 / largest) if largest > 0 else 1.0,
        facts={
            f"{name} eigenvalue": float(found.values[k])
            for k, name in enumerate(("first", "second"))
        },
    )


def _trajectory(recorded: Sequence[Tensor]) -> _Plane:
    found = trajectory_plane(recorded)
    shares = [f"{100 * share:.1f} %" for share in found.explained]
    return _Plane(
        found.directions,
        ("first principal direction", "second principal direction"),
        f"principal directions of {len(recorded)} recorded weights, of length one, which hold "
        f"{shares[0]} and {shares[1]} of the squared distances to the end",
        0.0,
        trail=found.coordinates,
        facts={"share of the run in the plane": sum(found.explained)},
    )


def _recorded(subject: Subject) -> list[Mapping[str, Tensor]]:
    """Train the subject's recipe again, and keep the weights before every epoch."""
    recipe = subject.recipe
    if recipe is None:
        raise InputError(
            "A trajectory needs recorded weights, got a subject without a recipe to train again. "
            "Pass trajectory=[state dicts], or a subject that fit made without remedies."
        )
    loop, states = Loop(recipe, [], subject.seed, (), 0), list[Mapping[str, Tensor]]()
    while loop.epoch < recipe.epochs and not loop.stopped:
        states.append({name: p.detach().clone() for name, p in loop.model.named_parameters()})
        loop.advance()
    return states


def _around(
    flat: FlatLoss,
    plane: _Plane,
    points: int,
    span: float | None,
    dimensions: int,
    batch_norm: BatchNorm,
    progress: bool,
) -> Landscape:
    x, y = _axes(plane, points, span)
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


def _axes(plane: _Plane, points: int, span: float | None) -> tuple[Tensor, Tensor]:
    """Return the grid's axes: around the model, or beyond a trail by a margin."""
    if plane.trail is None or span is not None:
        reach = plane.span if span is None else span
        axis = torch.linspace(-reach, reach, points, dtype=torch.float64)
        return axis, axis
    return _beyond(plane.trail[:, 0], points), _beyond(plane.trail[:, 1], points)


def _beyond(places: Tensor, points: int) -> Tensor:
    low, high = float(places.min()), float(places.max())
    room = MARGIN * (high - low)
    return torch.linspace(low - room, high + room, points, dtype=torch.float64)


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
    directions, corners = _frame(own, other, bend)
    places = torch.stack([ways.places, torch.zeros_like(ways.places)], 1) @ corners
    curve = coordinates(ways.places) @ corners
    both = torch.cat([places, curve])
    x, y = _beyond(both[:, 0], points), _beyond(both[:, 1], points)
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


def _frame(own: Tensor, other: Tensor, bend: Tensor) -> tuple[Tensor, Tensor]:
    """Return orthogonal directions, and (other − own) and (bend − own) in their coordinates."""
    ahead = (other - own).double()
    first = unit(ahead)
    pull = (bend - own).double()
    along = float(pull @ first)
    across = pull - along * first
    if float(across.norm()) <= 1e-9 * float(ahead.norm()):
        raise InputError(
            "The bent path must leave the line, got none that does. Search with more steps."
        )
    corners = torch.tensor([[float(ahead.norm()), 0.0], [along, float(across.norm())]])
    return torch.stack([first, unit(across)]).to(own), corners.double()
