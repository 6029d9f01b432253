"""Planes through weight space: their directions, what is known of them, and how far they reach."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import InputError, Subject
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import hessian_products
from mindgap.ops.curvature.spectrum import top_eigenpairs
from mindgap.ops.landscape.directions import Normalize, random_directions, trajectory_plane, unit
from mindgap.training.fit import Loop

Directions = Literal["random", "hessian", "trajectory"]
MARGIN = 0.25  # of its extent, by which a grid reaches beyond a trail
NORMALIZED = {
    "filter": "random, each filter scaled to the norm of the model's (Li et al., 2018); biases and "
    "normalization parameters do not move",
    "layer": "random, each weight tensor scaled to the norm of the model's; biases and normalization "
    "parameters do not move",
    "none": "random, of length one; all weights move",
}


@dataclasses.dataclass(frozen=True)
class Plane:
    """Directions with what is known about them, before any loss is computed.

    Args:
        directions: Two, one per row.
        labels: What they are, for axes.
        words: What they are, in a sentence.
        span: How far a grid reaches by default.
        trail: Recorded weights in the plane.
        facts: Numbers with names.
    """

    directions: Tensor
    labels: tuple[str, str]
    words: str
    span: float
    trail: Tensor | None = None
    facts: Mapping[str, float] = dataclasses.field(default_factory=dict)


def flattened(state: Mapping[str, Tensor], flat: FlatLoss) -> Tensor:
    """Return the trained weights of a state dict as one vector; refuse those of another network."""
    own = {name: weight.shape for name, weight in flat.named.items()}
    if any(name not in state or state[name].shape != shape for name, shape in own.items()):
        raise InputError(
            f"Weights must be those of the same network, got others than {', '.join(own)}. Pass "
            "state dicts of this model, or a second model of its class."
        )
    like = next(iter(flat.named.values()))
    return torch.cat([state[name].detach().to(like).flatten() for name in own])


def plane_of(
    flat: FlatLoss,
    subject: Subject,
    directions: Directions,
    normalize: Normalize,
    trajectory: Sequence[Mapping[str, Tensor]] | None,
    seed: int,
) -> Plane:
    """Make the plane that is asked for.

    Args:
        flat: The loss around which it lies.
        subject: The model with its recipe, for a training run.
        directions: The kind of plane.
        normalize: How random directions are scaled.
        trajectory: State dicts of a run, if they were recorded.
        seed: Seed of random directions.
    """
    if directions == "hessian":
        return _hessian(flat, seed)
    if directions == "trajectory" or trajectory is not None:
        states = _recorded(subject) if trajectory is None else list(trajectory)
        return _trajectory([*(flattened(state, flat) for state in states), flat.point])
    rows = random_directions(flat.named, normalize=normalize, seed=seed)
    span = float(flat.point.norm()) if normalize == "none" else 1.0
    labels = ("first random direction", "second random direction")
    return Plane(rows, labels, NORMALIZED[normalize], span)


def _hessian(flat: FlatLoss, seed: int) -> Plane:
    found = top_eigenpairs(hessian_products(flat), min(2, len(flat.point)), seed=seed)
    if len(found.values) < 2:
        raise InputError(
            "A plane of eigenvectors needs at least two weights, got one. Choose random directions."
        )
    largest = float(found.values[0].abs())
    words = "eigenvectors of the Hessian's largest eigenvalues, of length one"
    return Plane(
        found.vectors.to(flat.point),
        ("first eigenvector", "second eigenvector"),
        words if found.converged else f"{words}, which did not converge",
        math.sqrt(2 / largest) if largest > 0 else 1.0,
        facts={
            f"{name} eigenvalue": float(found.values[k])
            for k, name in enumerate(("first", "second"))
        },
    )


def _trajectory(recorded: Sequence[Tensor]) -> Plane:
    found = trajectory_plane(recorded)
    shares = [f"{100 * share:.1f} %" for share in found.explained]
    return Plane(
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


def axes_of(plane: Plane, points: int, span: float | None) -> tuple[Tensor, Tensor]:
    """Return the grid's axes: around the model, or beyond a trail by a margin."""
    if plane.trail is None or span is not None:
        reach = plane.span if span is None else span
        axis = torch.linspace(-reach, reach, points, dtype=torch.float64)
        return axis, axis
    return beyond(plane.trail[:, 0], points), beyond(plane.trail[:, 1], points)


def beyond(places: Tensor, points: int) -> Tensor:
    """Return an axis that reaches beyond all places by a margin."""
    low, high = float(places.min()), float(places.max())
    room = MARGIN * (high - low)
    return torch.linspace(low - room, high + room, points, dtype=torch.float64)


def frame_of(own: Tensor, other: Tensor, bend: Tensor) -> tuple[Tensor, Tensor]:
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
