"""What is said of a place on the toy's loss surface: curvature, Ψ, the bound, and what is true."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from mindgap.ops.pacgen import pacgen_null, pacgen_parts, radii
from mindgap.ops.plane_calculus import derivatives, third_norm
from mindgap.studies.pacgen_toy import Toy

ETA, DELTA = 39.0, 0.05  # the paper's η; it does not tell its δ
BOX = 13  # lines, each way, on which the neighbourhood of a place is searched
NODES = torch.tensor([-math.sqrt(0.6), 0.0, math.sqrt(0.6)], dtype=torch.float64)  # Gauss and Legendre's three
SHARES = torch.tensor([5.0, 8.0, 5.0], dtype=torch.float64) / 18


@dataclasses.dataclass(frozen=True)
class Bound8:
    """Inequality (8) at many places: its right side and the widths of the noise (9)."""

    bound: Tensor
    scales: Tensor


def bound8(loss: Tensor, weights: Tensor, diagonal: Tensor, lipschitz: Tensor, samples: int) -> Bound8:
    r"""(8) with :math:`\tau_i = |w_i| + \kappa_i`, where :math:`H_{ii} + \rho \sqrt m \kappa_i / 3 < 0` counts as zero.

    Approximate, as in the paper: τ may not depend on the data, the loss must lie in [0, 1] and be convex within κ.

    >>> one = torch.ones(1, 2)
    >>> round(float(bound8(torch.zeros(1), one, 300 * one, torch.zeros(1), samples=100).bound), 4)
    0.5188
    """
    reach, count = radii(weights), weights.shape[-1]
    stiffness = ETA * (diagonal / 3 + lipschitz.unsqueeze(-1) * math.sqrt(count) * reach / 9).clamp(min=0)
    scales = torch.minimum(stiffness.rsqrt(), reach)
    ratio = ((weights.abs() + reach) / scales).log().sum(-1)
    return Bound8(loss + (count / 2 + ratio + math.log(1 / DELTA)) / ETA + ETA / (2 * samples), scales)


def scores(toy: Toy, places: Tensor, truth: Toy) -> list[dict[str, Any]]:
    """All that is known of each place (n, 2); ``truth`` holds fresh samples of the same clouds."""
    here, box = derivatives(toy.loss, places), _boxes(places)
    rho = third_norm(toy.loss, box.flatten(0, 1)).view(box.shape[:2]).amax(1)
    bend = derivatives(toy.loss, box.flatten(0, 1)).hessian
    convex = (torch.linalg.eigvalsh(bend)[:, 0] >= 0).view(box.shape[:2]).all(1)
    found = bound8(here.value, places, here.diagonal, rho, len(toy.inputs))
    columns = {
        "place": places,
        "loss": here.value,
        "train_error": toy.error(places),
        "trace": here.trace,
        "rho": rho,
        "psi": pacgen_parts(places, here.diagonal, rho).terms.sum(-1),
        "psi_without_rho": pacgen_parts(places, here.diagonal, 0.0).terms.sum(-1),
        "null": pacgen_null(places).sum(-1),
        "bound": found.bound,
        "risk": truth.losses(places),
        "error": truth.error(places),
        "noisy_risk": noisy_loss(truth, places, found.scales),
        "convex": convex,
    }
    columns["gap"] = columns["risk"] - columns["loss"]
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def noisy_loss(toy: Toy, places: Tensor, scales: Tensor) -> Tensor:
    """Mean of the loss under uniform noise of these widths, by Gauss and Legendre's rule of three nodes each way."""
    steps = torch.cartesian_prod(NODES, NODES)
    shares = torch.cartesian_prod(SHARES, SHARES).prod(-1)
    near = places[:, None] + steps * scales[:, None]
    return toy.losses(near.flatten(0, 1)).view(len(places), -1) @ shares


def _boxes(places: Tensor) -> Tensor:
    """A grid over the neighbourhood of each place, its edges included: (n, places, 2)."""
    line = torch.linspace(-1, 1, BOX, dtype=places.dtype)
    return places[:, None] + torch.cartesian_prod(line, line) * radii(places)[:, None]
