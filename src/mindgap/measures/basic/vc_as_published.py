"""The VC bound in the form of the slides, which has no constants."""

import math

from mindgap.core import Estimate, Measure, Subject, option
from mindgap.ops.models.parameters import count


class VcAsPublished(Measure):
    r"""Training error plus the VC term with W ln W for the dimension, as published.

    Formula: $\hat R + \sqrt{\frac{W \ln W}{n}} + \sqrt{\frac{\ln(1/\delta)}{2n}}$

    Reading: The dimension is of the order W ln W, or W L ln W for L layers, up to a constant that is
    left out. So this is a number to compare, not a bound. See the bound vc-dimension for a theorem.

    Assumes: Nothing. W is the number of weights.

    >>> import torch
    >>> x = torch.eye(2)
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(x)
    >>> subject = Subject(model, "cross_entropy", (x, torch.tensor([0, 1])))
    >>> round(float(VcAsPublished(delta=0.1)(subject)), 4)
    2.4238
    """

    method = ("K1",)
    cites = ("kawaguchi2017generalization",)
    direction = "lower"
    needs = frozenset({"classification"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )

    delta: float = option(0.05, help="δ of the last term", above=0, below=1)

    def compute(self, subject: Subject) -> Estimate:
        """Evaluate the formula."""
        weights, samples = sum(count(subject.model).values()), len(subject.train)
        dimension = weights * math.log(weights) if weights > 1 else 0.0
        slack = math.sqrt(math.log(1 / self.delta) / (2 * samples))
        return Estimate(
            value=subject.mean_error("train") + math.sqrt(dimension / samples) + slack,
            status="heuristic",
            terms={"dimension": dimension},
        )
