"""The largest slope that a search finds."""

import torch

from mindgap.core import Estimate, InputError, Line, Measure, Series, Subject, Undefined, option
from mindgap.ops.attacks.scene import attackable, undefined_without
from mindgap.ops.evidence.passes import affordable, limited
from mindgap.ops.lipschitz.lower import lipschitz_lower, slope_passes

# Of a step, in double precision, in single forward passes; places of a start: samples, drawn ones and
# two factors of shrinking; the search may take twice the limit of other measures.
STEP, KINDS, SEARCH = 12, 4, 2.0


class LipschitzLowerBound(Measure):
    r"""Largest singular value of the Jacobian that ascent from the data finds.

    Formula: $L \ge \max_t \sigma_{\max}\!\left(\frac{\partial f}{\partial x}(x_t)\right)$

    Reading: The Lipschitz constant is at least this, and at most the measure lipschitz-upper-bound.
    ``data`` is the largest value at the training samples themselves: the steepest place is often far
    from them. ``last_gain`` is what the last quarter of the steps added: small if the search
    converged, which does not prove that there is no steeper place.

    Assumes: One input of real numbers per sample.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> round(float(LipschitzLowerBound()(Subject(model, "mse", (torch.eye(2), torch.eye(2))))), 6)
    4.0
    """

    method = ("S5",)
    cites = ("virmaux2018lipschitz",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})
    cost = "moderate"

    steps: int = option(40, help="steps of the ascent", low=0)
    starts: int = option(
        8, help="places to start from: samples, around them, nearer to zero", low=1
    )
    samples: int = option(500, help="training samples to look at, at most", low=1)
    work: float = limited()

    def compute(self, subject: Subject) -> Estimate:
        """Climb from training samples and places around them, without a box."""
        undefined_without(subject)
        count, most = len(subject.train), self._places(subject)
        places = torch.arange(count)[:: max(1, -(-count // most))]
        inputs = attackable(subject, "train", places)
        try:
            found = lipschitz_lower(
                subject.model, inputs, steps=self.steps, starts=self.starts, drawn=most
            )
        except InputError as error:
            raise Undefined(str(error)) from error
        before = found.history[-1 - len(found.history) // 4]
        chart = Line(
            title="Largest slope found",
            x_label="check",
            y_label="singular value of the Jacobian",
            series=(Series(x=list(range(len(found.history))), y=list(found.history)),),
            wide=False,
        )
        gain = 1 - before / found.lower if found.lower > 0 else 0.0
        return Estimate(
            value=found.lower,
            status="estimate",
            terms={"data": found.data, "last_gain": gain},
            charts=(chart,),
        )

    def _places(self, subject: Subject) -> int:
        """Return how many places of each kind to look at before the ascent."""
        outputs = subject.outputs("train")[0].numel()
        return affordable(
            subject,
            self.samples,
            passes=2 * KINDS * slope_passes(outputs),
            once=STEP * self.steps * self.starts,
            work=SEARCH * self.work,
        )
