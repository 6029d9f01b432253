"""The sharpness of Keskar and others."""

import torch

from mindgap.core import Estimate, Line, Series, Subject, option
from mindgap.measures.curvature.curvature_measure import CurvatureMeasure
from mindgap.ops.curvature.ascent import box, climb, scaled_loss
from mindgap.ops.curvature.flat_loss import FlatLoss

LARGER = (0.25, 0.5, 1.0, 2.0, 4.0)  # radii of the figure, as parts of the wanted one


class KeskarSharpness(CurvatureMeasure):
    r"""Largest relative rise of the training loss in a small box around the weights, in percent.

    Formula: $\phi = 100 \cdot \frac{\max_{|u_i| \le \varepsilon (|w_i| + 1)} \hat L(w + u) - \hat
    L(w)}{1 + \hat L(w)}$

    Reading: Keskar and others report larger values after training with large batches. The box is
    in the space of all weights, with the paper's radius ε. ``largest`` is the highest loss found,
    and ``steps`` how many points were tried. The figure shows the rise for other radii. Rescaling a
    ReLU network changes the value.

    Assumes: A loss that is close to convex in the box, so that the climb ends near the maximum. The
    value is a lower bound. The paper climbs with ten steps of L-BFGS-B, from which it differs a
    little.

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
        """Return the sharpness, the two losses, and the rises in boxes of other sizes."""
        flat = self.flat(subject)
        rises = {part * self.radius: self._rise(flat, part * self.radius) for part in LARGER}
        loss, largest = rises[self.radius]
        percent = {radius: _percent(*pair) for radius, pair in rises.items()}
        return Estimate(
            value=percent[self.radius],
            status="estimate",
            terms={"loss": loss, "largest": largest, "radius": self.radius, "steps": self.steps},
            details={
                "box": "|u_i| ≤ radius · (|w_i| + 1), all weights",
                **self.told(flat, subject),
            },
            charts=(_chart(percent),),
        )

    def _rise(self, flat: FlatLoss, radius: float) -> tuple[float, float]:
        scale = radius * (flat.point.double().abs() + 1)
        evaluate = scaled_loss(flat, scale, list(flat.batches()))
        return climb(evaluate, box, torch.zeros_like(scale), self.steps)


def _percent(loss: float, largest: float) -> float:
    return 100 * (largest - loss) / (1 + loss)


def _chart(percent: dict[float, float]) -> Line:
    return Line(
        title="Rise of the loss against the size of the box",
        x_label="radius ε",
        y_label="sharpness (percent)",
        x_scale="log",
        series=[Series(name="sharpness", x=list(percent), y=list(percent.values()))],
    )
