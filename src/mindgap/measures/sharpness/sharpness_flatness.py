"""The flatness of a minimum under the worst noise."""

from mindgap.core import Estimate, Subject
from mindgap.measures.sharpness.noise_measure import NoiseMeasure


class SharpnessFlatness(NoiseMeasure):
    r"""One over the squared radius of a box in which the training error stays low.

    Formula: $1 / \alpha^2, \quad \max_{|u_i| \le \alpha} \hat R(w + u) = \hat R(w) + 0.1$

    Reading: Small means a flat minimum in every direction. Claimed to be larger where a model
    generalizes worse; with ``magnitude`` it was the best predictor of Jiang et al. ReLU rescaling
    changes it, unless the box grows with the weights.

    Assumes: Projected ascent on the loss finds the worst weights in the box; it may miss them, and
    then the value is too small. With ``magnitude`` the box is α'|w| + ε wide, with ε = 0.001.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.eye(2))
    >>> data = torch.eye(2).repeat(8, 1), torch.arange(2).repeat(8)
    >>> round(float(SharpnessFlatness()(Subject(model, "cross_entropy", data))), 1)
    4.0
    """

    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication"})

    def compute(self, subject: Subject) -> Estimate:
        """Return 1/α²."""
        search = self.found(subject)
        return Estimate(value=search.scale**-2, status="heuristic", terms=self.terms(search))
