"""How far a surface is from convex: its convex envelope and its curvature in the plane."""

import torch
from torch import Tensor

from mindgap.core import InputError, implements


@implements("E3", cites=("li2018visualizing",))
def convex_envelope(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    r"""Compute the largest convex function below the heights of a grid, at the grid's points.

    Formula: $\max \{ g(p) : g \text{ convex}, \; g(q) \le L(q) \text{ for all } q \}$

    Reading: A surface that lies above it is not convex, and the distance says by how much.

    Assumes: Finite heights.

    Args:
        x: Places on the first axis.
        y: Places on the second axis.
        z: Heights: one row per y, one column per x.

    >>> axis = torch.tensor([-1.0, 0.0, 1.0])
    >>> bump = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> convex_envelope(axis, axis, bump)[1, 1]
    tensor(0., dtype=torch.float64)
    """
    from scipy.spatial import ConvexHull  # slow to import

    heights = _finite(z)
    rows, columns = torch.meshgrid(y.double(), x.double(), indexing="ij")
    spread = float(heights.max() - heights.min())
    if spread == 0:
        return heights
    # Scaled, so that the hull's tolerance means the same in every direction. A lid above keeps the
    # hull from being flat, and its upper facets apart from the lower ones.
    points = torch.stack([columns.flatten(), rows.flatten(), heights.flatten()], 1)
    low = points.amin(0)
    unit = (points - low) / (points.amax(0) - low)
    lid = torch.tensor([[0.5, 0.5, 2.0]], dtype=torch.float64)
    facets = torch.from_numpy(ConvexHull(torch.cat([unit, lid]).numpy()).equations)
    below = facets[facets[:, 2] < -1e-9]
    planes = -(unit[:, :2] @ below[:, :2].T + below[:, 3]) / below[:, 2]
    found = (planes.amax(1) * spread + low[2]).view_as(heights)
    return torch.minimum(found, heights)


def share_above_envelope(x: Tensor, y: Tensor, z: Tensor, tolerance: float = 0.1) -> float:
    """Compute the share of a grid's points that lie clearly above the convex envelope.

    Args:
        x: Places on the first axis.
        y: Places on the second axis.
        z: Heights: one row per y, one column per x.
        tolerance: How far above counts, as a share of the height itself: a few corners of huge
            loss would hide everything if it were a share of the range.

    >>> axis = torch.linspace(-1, 1, 5)
    >>> share_above_envelope(axis, axis, axis[:, None] ** 2 + axis**2)
    0.0
    """
    heights = _finite(z)
    above = heights - convex_envelope(x, y, z)
    return float((above > tolerance * heights.abs()).double().mean())


@implements("E3", cites=("li2018visualizing",))
def curvature_ratios(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    r"""Compute how negative the curvature of a surface is next to how positive, inside the grid.

    Formula: $\max(-\min_u c_u, 0) / \max_u |c_u|, \quad c_u = \frac{L(p + u) - 2 L(p) + L(p - u)}
    {\lVert u \rVert^2}$

    Reading: Curvatures are second differences along the grid's rows, columns and both diagonals. A
    negative one is three points on a line of which the middle lies above the chord, so it proves
    that the loss is not convex, however coarse the grid. (Eigenvalues of a 2 × 2 Hessian by
    differences do not: on a convex surface that grows tenfold per step, its mixed difference
    exceeds all others.) Positive curvatures prove nothing about other directions.

    Assumes: A grid with even spacing.

    Args:
        x: Places on the first axis, evenly spaced.
        y: Places on the second axis, evenly spaced.
        z: Heights: one row per y, one column per x.

    Returns:
        One ratio from 0 to 1 per inner point of the grid.

    >>> axis = torch.linspace(-1, 1, 5)
    >>> float(curvature_ratios(axis, axis, axis[:, None] ** 2 - axis**2).min())
    1.0
    """
    heights, steps = _finite(z), (float(x[1] - x[0]), float(y[1] - y[0]))
    rows, columns = heights.shape
    curved = []
    for right, up in ((1, 0), (0, 1), (1, 1), (1, -1)):
        ahead = heights[1 + up : rows - 1 + up, 1 + right : columns - 1 + right]
        behind = heights[1 - up : rows - 1 - up, 1 - right : columns - 1 - right]
        length = (right * steps[0]) ** 2 + (up * steps[1]) ** 2
        curved.append((ahead - 2 * heights[1:-1, 1:-1] + behind) / length)
    found = torch.stack(curved)
    largest = found.abs().amax(0)
    return torch.where(largest > 0, (-found.amin(0)).clamp_min(0) / largest.clamp_min(1e-300), 0.0)


def _finite(z: Tensor) -> Tensor:
    if z.ndim != 2 or min(z.shape) < 3 or not bool(torch.isfinite(z).all()):
        raise InputError(
            f"Heights must be finite numbers on a grid of at least 3 × 3 points, got the shape "
            f"{tuple(z.shape)} with {int((~torch.isfinite(z)).sum())} that are not. Choose a smaller "
            "span."
        )
    return z.double()
