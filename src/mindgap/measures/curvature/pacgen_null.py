"""pacGen without the Hessian: the control that pacGen must beat."""

from mindgap.core import Bar, Estimate, Measure, Subject, option
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.pacgen import EPSILON, GAMMA, pacgen_null


class PacgenNull(Measure):
    r"""The pacGen metric with a Hessian of zero: a count of the weights that are not small.

    Formula: $\Psi_0 = \sum_i \ln \frac{|w_i| + \kappa_i}{\kappa_i}, \quad \kappa_i = \gamma |w_i| +
    \epsilon$

    Reading: What pacGen says when it knows nothing of the curvature. If this ranks models as pacGen
    does, the ranking comes from the sizes of the weights. It reads no data.

    Assumes: Nothing.

    >>> PacgenNull().gamma
    0.1
    """

    method = ("P6",)
    cites = ("wang2018identifying",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication"})
    rescaling = "logarithmic"

    gamma: float = option(GAMMA, help="radius of the noise as a part of the weight's size", low=0)
    epsilon: float = option(EPSILON, help="radius of the noise on a weight of zero", above=0)

    def compute(self, subject: Subject) -> Estimate:
        """Return the sum, in total and by tensor."""
        flat = FlatLoss(subject)
        terms = pacgen_null(flat.point.double(), gamma=self.gamma, epsilon=self.epsilon)
        parts = {
            name: float(part.sum())
            for name, part in zip(flat.named, terms.split(flat.sizes), strict=True)
        }
        chart = Bar.of(
            parts, title="pacGen null by tensor", y_label="Ψ₀", horizontal=True, wide=False
        )
        return Estimate(value=float(terms.sum()), details={"by_tensor": parts}, charts=(chart,))
