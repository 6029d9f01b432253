"""Adaptive worst-case sharpness over small batches."""

from typing import Literal

import torch

from mindgap.core import Estimate, Histogram, Subject, generator, option, standard_error
from mindgap.measures.curvature.curvature_measure import CurvatureMeasure
from mindgap.ops.curvature.ascent import ScaledLoss, ball, box, climb
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.evidence.passes import affordable

GRADIENT = 3  # forward passes that one takes


class AdaptiveSharpness(CurvatureMeasure):
    r"""Mean rise of the loss of small batches in the worst direction, relative to the weights.

    Formula: $S_{max}^\rho = \mathbb{E}_{|B| = m} \max_{\lVert u \oslash |w| \rVert_p \le \rho} \hat
    L_B(w + u) - \hat L_B(w)$

    Reading: Every batch of m samples has a worst perturbation of its own. Perturbations are
    relative to each weight, so that rescaling ReLU layers changes nothing. Andriushchenko and
    others find that it does not predict generalization reliably, and that its sign may be the
    wrong one. Compare values of one m, ρ and p only.

    Assumes: A climb of a few steps ends near the maximum; the value is a lower bound.

    >>> model = torch.nn.Linear(1, 1, bias=False).double()
    >>> _ = model.weight.data.fill_(2.0)
    >>> data = (torch.ones(4, 1).double(), torch.ones(4, 1))
    >>> round(float(AdaptiveSharpness(radius=0.1)(Subject(model, "mse", data))), 6)  # 1.2² − 1
    0.44
    """

    method = ("E7",)
    cites = ("andriushchenko2023modern",)
    direction = "lower"
    invariant_to = frozenset({"unit-permutation", "relu-rescaling"})
    cost = "moderate"

    radius: float = option(0.01, help="ρ, the size of a perturbation relative to |w|", above=0)
    norm: Literal["inf", "2"] = option(
        "inf", help="p, the norm of perturbations", choices=("inf", "2")
    )
    batch_size: int = option(32, help="m, the samples that share a perturbation", low=1)
    batches: int = option(8, help="batches that are drawn", low=2)
    steps: int = option(10, help="points that each climb tries", low=1)

    def compute(self, subject: Subject) -> Estimate:
        """Return the mean rise over batches, with its standard error."""
        flat = self.flat(subject)
        wanted = self.batch_size * self.batches
        most = affordable(
            subject,
            wanted,
            passes=GRADIENT * (self.steps + 1) + 1,
            fewest=min(2 * self.batch_size, wanted),
            work=self.work,
        )
        found, converged = zip(*self._rises(flat, most), strict=True)
        rises = torch.tensor(found, dtype=torch.float64)
        return Estimate(
            value=float(rises.mean()),
            status="estimate",
            standard_error=standard_error(rises.tolist()) if len(rises) > 1 else None,
            terms={"largest": float(rises.max()), "radius": self.radius, "batches": len(rises)},
            details={"converged": all(converged), **self.told(flat, subject)},
            charts=(
                Histogram.of(
                    {"batches": rises},
                    bins=10,
                    title="Worst rise of the loss by batch",
                    x_label="rise of the loss",
                ),
            ),
        )

    def _rises(self, flat: FlatLoss, most: int) -> list[tuple[float, bool]]:
        """Climb for every batch; return the rise, and whether the climb converged."""
        scale = self.radius * flat.point.double().abs()
        order = torch.randperm(flat.samples, generator=generator(self.seed))
        found = []
        order = order[: most // self.batch_size * self.batch_size]
        for batch in flat.batches(order, self.batch_size):
            evaluate = ScaledLoss(flat, scale, [batch])
            start = torch.zeros_like(scale)
            climbed = climb(evaluate, box if self.norm == "inf" else ball, start, self.steps)
            found.append((climbed.value - evaluate.value(start), climbed.converged))
        return found
