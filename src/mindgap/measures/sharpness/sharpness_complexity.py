"""The sharpness measures of Jiang et al."""

import math

from mindgap.core import Estimate, Subject
from mindgap.measures.sharpness.noise_measure import ComplexityMeasure, weights_and_center


class SharpnessComplexity(ComplexityMeasure):
    r"""PAC-Bayes complexity for the worst noise that the model stands.

    Formula: $\sqrt{\frac{1}{n} \left( \frac{1}{2} \mathrm{KL}(Q \Vert P) + \ln \frac{n}{\sigma} + 10
    \right)}, \quad \sigma = \frac{\alpha}{\sqrt{2 \ln(2k)}}$

    Reading: As pac-bayes-complexity, with Gaussian noise so small that its largest entry is about α,
    the radius of a box of weights in which the training error rises by ``rise`` at most. Claimed to
    be larger where a model generalizes worse. It is no bound.

    Assumes: Projected ascent finds the worst weights in the box; it may miss them, and then α is too
    large. With ``magnitude`` the box is α'|w| + ε wide, with ε = 0.001. k is the number of weights.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.eye(2))
    >>> data = torch.eye(2).repeat(8, 1), torch.arange(2).repeat(8)
    >>> 0.5 < float(SharpnessComplexity()(Subject(model, "cross_entropy", data))) < 1.5
    True
    """

    invariant_to = frozenset({"sample-order", "unit-permutation"})

    def compute(self, subject: Subject) -> Estimate:
        """Search for the worst noise and evaluate the complexity."""
        search = self.found(subject)
        weights = len(weights_and_center(subject, "zero")[0])
        return self.result(subject, search, 1 / math.sqrt(2 * math.log(2 * weights)))
