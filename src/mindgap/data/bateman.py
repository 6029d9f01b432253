r"""The Bateman equations: a population u that reacts with M species η over time.

.. math:: \partial_t u = v\, \sigma \cdot \eta\, u, \qquad \partial_t \eta = v\, (\Sigma\, \eta)\, u, \qquad
          u(0) = u_0, \quad \eta(0) = \eta_0

The function to learn is :math:`f(u_0, \eta_0, t) = (u(t), \eta(t))`, with one row :math:`(u_0,
\eta_0, t)` per point.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError, number, validated

Numbers = Sequence[float] | Tensor
Matrix = Sequence[Sequence[float]] | Tensor


@validated
def bateman(
    points: Tensor, *, production: float = 1.0, reaction: float = -1.0, speed: float = 1.0
) -> Tensor:
    r"""Solve the equations of one species in closed form, which torch can differentiate.

    With a = vσ, b = vΣ and c = aη₀ - bu₀, the quantity u/a - η/b is conserved, so that u obeys a
    logistic equation:

    .. math:: u(t) = \frac{u_0 e^{ct}}{1 - b u_0 t\, \varphi(ct)}, \qquad
              \eta(t) = \frac{\eta_0 e^{-ct}}{1 - a \eta_0 t\, \varphi(-ct)}, \qquad \varphi(z) = \frac{e^z - 1}{z}

    By default u grows at the cost of η. Where σ and Σ are both positive, u and η grow beyond all
    bounds in finite time, after which the numbers mean nothing.

    Args:
        points: Rows :math:`(u_0, \eta_0, t)`.
        production: The coefficient σ.
        reaction: The coefficient Σ.
        speed: The velocity v.

    Returns:
        Rows (u, η).

    >>> bateman(torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 100.0]])).round(decimals=4).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    rows = _rows(points, 1)
    first, second = (number("speed", speed) * float(value) for value in (production, reaction))
    start, other, time = rows.unbind(1)
    power = (first * other - second * start) * time
    grows = power >= 0
    below = torch.where(grows, -power, power)  # an exponential of it cannot overflow
    small, rest = below.exp(), _phi(below)
    one = torch.ones_like(small)
    return torch.stack(
        [
            start
            * torch.where(grows, one, small)
            / (torch.where(grows, small, one) - second * start * time * rest),
            other
            * torch.where(grows, small, one)
            / (torch.where(grows, one, small) - first * other * time * rest),
        ],
        dim=1,
    )


@validated
def bateman_system(
    points: Tensor,
    production: Numbers,
    reaction: Matrix,
    *,
    speed: float = 1.0,
    tolerance: float = 1e-8,
) -> Tensor:
    """Solve the equations of M species by an ODE solver, all points at once.

    Torch cannot differentiate it.

    Args:
        points: Rows (u₀, η₀, t), η₀ with M numbers.
        production: The M numbers of σ.
        reaction: The M × M numbers of Σ.
        speed: The velocity v.
        tolerance: Largest error of every number.

    Returns:
        Rows (u, η).

    >>> rows = torch.tensor([[0.5, 0.2, 0.3, 2.0]])
    >>> bateman_system(rows, [1.0, 0.5], [[-1.0, 0.0], [0.0, -0.5]]).shape
    torch.Size([1, 3])
    """
    sigma, matrix = _coefficients(production, reaction)
    rows = _rows(points, len(sigma)).detach().double()
    # Every point has its own time as the unit, so that one solution from 0 to 1 ends at the right
    # time for all of them.
    factor = number("speed", speed) * rows[:, -1:]

    def change(_: float, state: Any) -> Any:
        return (
            (factor * slope(torch.from_numpy(state).view(len(rows), -1), sigma, matrix))
            .flatten()
            .numpy()
        )

    if not number("tolerance", tolerance) > 0:
        raise InputError(f"tolerance must be above 0, got {tolerance}. 1e-8 is usual.")
    from scipy.integrate import solve_ivp  # slow to import

    begin = rows[:, :-1].flatten().numpy()
    # scipy bounds the root mean square over all numbers: tighter by their root bounds each of them
    least = tolerance / max(1.0, len(begin) ** 0.5)
    found = solve_ivp(
        change, (0.0, 1.0), begin, method="DOP853", rtol=max(least, 1e-12), atol=least
    )
    if not found.success:
        raise InputError(
            f"The equations must have a solution up to the last time, got: {found.message} Take "
            "shorter times, or reactions that use species up."
        )
    return torch.from_numpy(found.y[:, -1]).view(len(rows), -1)


def slope(state: Tensor, production: Tensor, reaction: Tensor) -> Tensor:
    """Compute the time derivatives of rows (u, η) at unit speed."""
    population, species = state[:, :1], state[:, 1:]
    return population * torch.cat([species @ production[:, None], species @ reaction.T], dim=1)


def _phi(power: Tensor) -> Tensor:
    """Compute (e^z - 1) / z, near zero by its series, whose derivatives are right there too."""
    small = power.abs() < 1e-4
    safe = torch.where(small, torch.ones_like(power), power)
    series = 1 + power / 2 + power.square() / 6 + power**3 / 24
    return torch.where(small, series, torch.expm1(safe) / safe)


def _coefficients(production: Numbers, reaction: Matrix) -> tuple[Tensor, Tensor]:
    sigma = torch.as_tensor(production, dtype=torch.float64)
    matrix = torch.as_tensor(reaction, dtype=torch.float64)
    if sigma.ndim != 1 or not len(sigma) or matrix.shape != (len(sigma), len(sigma)):
        raise InputError(
            "production must hold M numbers and reaction M x M, got the shapes "
            f"{tuple(sigma.shape)} and {tuple(matrix.shape)}. Give one row and one column per "
            "species."
        )
    return sigma, matrix


def _rows(points: Tensor, species: int) -> Tensor:
    if not isinstance(points, Tensor) or points.ndim != 2 or points.shape[1] != species + 2:
        shape = tuple(points.shape) if isinstance(points, Tensor) else type(points).__name__
        raise InputError(
            f"points must be rows of {species + 2} numbers (u0, {species} of eta0, t), got "
            f"{shape}. Pass a table."
        )
    return points if points.is_floating_point() else points.double()
