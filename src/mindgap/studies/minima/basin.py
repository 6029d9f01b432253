r"""The volume of the basin around a minimum, from radii along random directions.

In polar coordinates the star-shaped region around :math:`w` in which the loss stays below a level
has the volume

.. math:: V = \omega_d \, \mathbb{E}_\phi \left[ r(\phi)^d \right], \qquad
          \log V - \log \omega_d \ge d \, \mathbb{E}_\phi \left[ \log r(\phi) \right],

with the unit ball's volume :math:`\omega_d` and the radius :math:`r(\phi)` at which the loss first
reaches the level. For many weights the mean of :math:`r^d` is that of its largest draw, so we report
the right-hand side: it needs few directions, and its difference between two minima has an interval.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.landscape.directions import Normalize, random_directions
from mindgap.ops.landscape.points import losses_at

RADII = torch.logspace(-3, 3, 121, dtype=torch.float64)  # 20 per factor of ten


def radii(
    flat: FlatLoss, levels: Sequence[float], *, directions: int, normalize: Normalize, seed: int
) -> list[list[float]]:
    """Find along random directions where the loss first reaches some levels.

    Args:
        flat: The loss, whose model is the minimum.
        levels: The levels.
        directions: Number of directions.
        normalize: ``"filter"`` measures in norms of the filters, ``"none"`` in Euclidean distance.
        seed: Seed of the directions.

    Returns:
        For every level one radius per direction: zero where the loss at the minimum is not below
        the level, and the largest of the grid where it is never reached.

    >>> from mindgap.core import Subject
    >>> data = (torch.eye(2) * 2**0.5, torch.zeros(2, 1))
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> _ = model.weight.data.zero_()
    >>> flat = FlatLoss(Subject(model, "mse", data))  # the squared norm of the weights
    >>> found = radii(flat, [0.25], directions=3, normalize="none", seed=0)
    >>> [round(radius, 2) for radius in found[0]]
    [0.5, 0.5, 0.5]
    """
    drawn = random_directions(flat.named, directions, normalize=normalize, seed=seed)
    places = torch.cat([torch.zeros(1, dtype=torch.float64), RADII])
    coordinates = torch.einsum("k,ij->ikj", places, torch.eye(directions, dtype=torch.float64))
    losses = losses_at(flat, drawn, coordinates.flatten(0, 1)).view(directions, len(places))
    rows = losses.tolist()
    return [[_first(places.tolist(), row, level) for row in rows] for level in levels]


def _first(places: Sequence[float], losses: Sequence[float], level: float) -> float:
    """Return the first place where the losses reach a level, between two places by a straight line."""
    over = next((k for k, loss in enumerate(losses) if not loss < level), None)
    if over is None:
        return places[-1]
    if over == 0:
        return 0.0
    below, above = losses[over - 1], losses[over]
    share = (level - below) / (above - below) if math.isfinite(above) else 0.5
    return places[over - 1] + share * (places[over] - places[over - 1])


def moving(flat: FlatLoss, normalize: Normalize) -> int:
    """Count the weights that directions move: all, or those of matrices and filters.

    Args:
        flat: The loss.
        normalize: The normalization of the directions.
    """
    named = flat.named.values()
    return sum(w.numel() for w in named if normalize == "none" or w.ndim > 1)


def log10_volume(found: Sequence[float], dimension: int) -> float:
    """Bound the logarithm of the volume, in units of the unit ball's, from below.

    Args:
        found: One radius per direction.
        dimension: Number of weights that move.

    >>> log10_volume([0.1, 0.1], dimension=3)
    -3.0
    """
    if not min(found) > 0:
        return -math.inf
    return dimension * math.fsum(map(math.log10, found)) / len(found)


def log10_mean_power(found: Sequence[float], dimension: int) -> float:
    """Estimate the logarithm of the volume itself, which the largest radii decide.

    Args:
        found: One radius per direction.
        dimension: Number of weights that move.

    >>> round(log10_mean_power([0.1, 0.2], dimension=1), 4) == round(math.log10(0.15), 4)
    True
    """
    logs = torch.tensor(found, dtype=torch.float64).log() * dimension
    total: Tensor = torch.logsumexp(logs, 0) - math.log(len(found))
    return float(total) / math.log(10)
