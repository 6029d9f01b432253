"""Directions in weight space: random and normalized, or the plane of a training run."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import InputError, choice, implements

Normalize = Literal["filter", "layer", "none"]
NORMALIZE: tuple[Normalize, ...] = ("filter", "layer", "none")


@implements("E3", cites=("li2018visualizing",))
def random_directions(
    weights: Mapping[str, Tensor],
    count: int = 2,
    *,
    normalize: Normalize = "filter",
    seed: int = 0,
) -> Tensor:
    r"""Draw Gaussian directions and scale them to the weights, as Li et al. (2018) do.

    Formula: $d_{i,j} \leftarrow \frac{d_{i,j}}{\|d_{i,j}\|} \|w_{i,j}\|$

    Reading: With ``"filter"``, every filter of a direction (the weights of one output channel or
    unit) gets the norm of the same filter of the weights; with ``"layer"``, every weight tensor
    does. Vectors such as biases and the gains and shifts of normalization layers have no filters:
    as in the published experiments, they do not move. With ``"none"``, all weights move, and a
    direction as a whole has length one, so coordinates are Euclidean distances.

    Assumes: Trained weights; filters of zeros do not move.

    Args:
        weights: The trained weights by name, in order.
        count: Number of directions.
        normalize: ``"filter"``, ``"layer"`` or ``"none"``.
        seed: Seed of the draws.

    Returns:
        One direction per row.

    >>> weights = {"weight": torch.tensor([[3.0, 4.0], [0.0, 2.0]]), "bias": torch.ones(2)}
    >>> (row,) = random_directions(weights, 1)
    >>> [round(float(part.norm()), 4) for part in (row[:2], row[2:4], row[4:])]
    [5.0, 2.0, 0.0]
    """
    choice("normalize", normalize, NORMALIZE)
    source = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        drawn = {
            name: torch.randn(w.shape, generator=source, dtype=torch.float64)
            for name, w in weights.items()
        }
        scaled = [_scaled(drawn[name], w, normalize).flatten() for name, w in weights.items()]
        rows.append(torch.cat(scaled))
    found = torch.stack(rows)
    if not found.any():
        raise InputError(
            "Normalized directions need weight matrices or filters that are not zero, got none. "
            'Pass normalize="none".'
        )
    return unit(found).to(_like(weights)) if normalize == "none" else found.to(_like(weights))


def _like(weights: Mapping[str, Tensor]) -> Tensor:
    return next(iter(weights.values()))


def _scaled(drawn: Tensor, weight: Tensor, normalize: Normalize) -> Tensor:
    if normalize == "none":
        return drawn
    if weight.ndim < 2:
        return torch.zeros_like(drawn)
    own = weight.detach().cpu().double()
    if normalize == "layer":
        return drawn * float(own.norm() / drawn.norm())
    rows = own.flatten(1).norm(dim=1) / drawn.flatten(1).norm(dim=1)
    scaled: Tensor = drawn * rows.view(-1, *[1] * (drawn.ndim - 1))
    return scaled


def unit(directions: Tensor) -> Tensor:
    """Give every row length one; a row of zeros stays as it is.

    >>> unit(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    lengths: Tensor = directions.norm(dim=-1, keepdim=True)
    return directions / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)


@dataclasses.dataclass(frozen=True)
class _Trajectory:
    """Recorded weights in the plane that holds most of their movement.

    Args:
        directions: Two orthogonal directions of length one.
        coordinates: The recorded weights in that plane, with the last at zero.
        explained: Share of the squared movement away from the last weights that each direction
            holds.
    """

    directions: Tensor
    coordinates: Tensor
    explained: tuple[float, float]


@implements("E3", cites=("li2018visualizing",))
def trajectory_plane(recorded: Sequence[Tensor] | Tensor) -> _Trajectory:
    r"""Find the plane through the last weights that holds most of a training run (PCA).

    Formula: $\min_{d_1, d_2} \sum_t \min_{a, b} \lVert w_t - w_T - a d_1 - b d_2 \rVert^2$

    Reading: As Li et al. (2018) do, the principal components are those of the differences to the
    last weights, which are not centered. The plane is the best one in the sense of least squares.

    Assumes: At least three recorded weights.

    Args:
        recorded: The weights at several times, flat, in the order of training; at least three.

    >>> path = torch.tensor([[4.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    >>> found = trajectory_plane(path)
    >>> torch.allclose(found.coordinates @ found.directions, path, atol=1e-6)
    True
    >>> round(sum(found.explained), 6)
    1.0
    """
    rows = torch.stack(list(recorded)).double()
    if len(rows) < 3:
        raise InputError(
            f"A trajectory must hold at least three recorded weights, got {len(rows)}. Record more."
        )
    moved = rows - rows[-1]
    # The Gram matrix is small where the weights are many; its eigenvectors give the components.
    values, vectors = torch.linalg.eigh(moved @ moved.T)
    if float(values[-2]) <= 1e-12 * float(values[-1]):
        raise InputError(
            "A trajectory must span a plane, got weights on a line or at one point. Record more "
            "weights, or choose random directions."
        )
    top = values[-2:].flip(0)
    directions = (vectors[:, -2:].flip(1).T @ moved) / top.sqrt()[:, None]
    shares = (top / values.clamp_min(0).sum()).tolist()
    like = torch.stack(list(recorded)[-1:])
    return _Trajectory(directions.to(like), (moved @ directions.T).to(like), (shares[0], shares[1]))
