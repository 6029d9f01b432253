"""The sharpness of Keskar and others."""

import torch
from torch import Tensor

from mindgap.core import Estimate, Line, Series, Subject, Undefined, option
from mindgap.measures.curvature.curvature_measure import FEWEST, CurvatureMeasure
from mindgap.ops.curvature.ascent import ScaledLoss, box, climb
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.evidence.passes import affordable

GRADIENT, CORNERS = 3, 4  # forward passes of a gradient, and places that are tried first
PARTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # radii of the figure, relative to the wanted one


class KeskarSharpness(CurvatureMeasure):
    r"""Largest relative rise of the training loss in a small box around the weights, in percent.

    Formula: $\phi = 100 \cdot \frac{\max_{|u_i| \le \varepsilon (|w_i| + 1)} \hat L(w + u) - \hat
    L(w)}{1 + \hat L(w)}$

    Reading: Keskar and others report larger values after training with large batches. The box is
    in the space of all weights, with the paper's radius ε. ``largest`` is the highest loss found.
    One climb starts at the weights and one at the highest of the four corners along the two
    sharpest directions, because the gradient at a minimum points nowhere; ``from_gradient`` is what
    the first climb found, which agrees with the paper's ten steps of L-BFGS-B. It is the only one where
    a network is too large to search sharp directions. The figure shows the loss on the way to the
    corner and beyond. Rescaling a ReLU network changes the value.

    Assumes: A loss that is close to convex in the box. The value is a lower bound.

    >>> model = torch.nn.Linear(1, 1, bias=False).double()
    >>> _ = model.weight.data.fill_(2.0)
    >>> subject = Subject(model, "mse", (torch.ones(1, 1).double(), torch.ones(1, 1)))
    >>> round(float(KeskarSharpness(radius=0.1)(subject)), 6)  # (1.3² − 1) / 2
    34.5
    """

    method = ("E7",)
    cites = ("keskar2017large",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication"})
    cost = "moderate"

    radius: float = option(1e-3, help="ε, half the width of the box relative to |w| + 1", above=0)
    steps: int = option(10, help="points that the climb tries", low=1)

    def compute(self, subject: Subject) -> Estimate:
        """Return the sharpness, the two losses, and the rise in boxes of other sizes."""
        climbs_of = 2 * GRADIENT * (self.steps + 1)
        flat = self.flat(
            subject,
            affordable(
                subject,
                self.samples,
                passes=climbs_of + len(PARTS) + CORNERS + 1,
                fewest=FEWEST,
                work=self.work,
            ),
        )
        scale = self.radius * (flat.point.double().abs() + 1)
        along = ScaledLoss(flat, scale, list(flat.batches()))
        middle = torch.zeros_like(scale)
        corners = self._corners(flat, scale)
        starts = [middle, max(corners, key=along.value)] if corners else [middle]
        climbs = [climb(along, box, start, self.steps) for start in starts]
        largest, place, converged = max(climbs, key=lambda climbed: climbed.value)
        loss = along.value(middle)
        rises = {part * self.radius: along.value(part * place) for part in PARTS}
        percent = {radius: _percent(loss, value) for radius, value in rises.items()}
        return Estimate(
            value=_percent(loss, largest),
            status="estimate",
            terms={
                "loss": loss,
                "largest": largest,
                "radius": self.radius,
                "from_gradient": _percent(loss, climbs[0].value),
            },
            details={
                "box": "|u_i| ≤ radius · (|w_i| + 1), all weights",
                "converged": converged,
                **self.told(flat, subject),
            },
            charts=(_chart(percent),),
        )

    def _corners(self, flat: FlatLoss, scale: Tensor) -> list[Tensor]:
        """List the corners along the sharpest directions; none of a network too large for these."""
        try:
            vectors = self.pairs(self.searched(flat)).vectors[:2].to(scale)
        except Undefined:
            return []
        return [box(sign * vector * scale) for vector in vectors for sign in (1, -1)]


def _percent(loss: float, largest: float) -> float:
    return 100 * (largest - loss) / (1 + loss)


def _chart(percent: dict[float, float]) -> Line:
    return Line(
        title="Rise of the loss towards the worst corner of the box",
        x_label="radius ε",
        y_label="sharpness (percent)",
        series=[Series(name="sharpness", x=list(percent), y=list(percent.values()))],
    )
