"""The inverse of the margin."""

import math

from mindgap.core import Estimate, Measure, Subject, option
from mindgap.measures.norms.by_layer import published_margin, the_margin


class InverseMargin(Measure):
    r"""One over the squared tenth percentile of the training margins.

    Formula: $1 / \gamma^2, \quad \gamma = Q_{0.1}\left\{ f(x_i)_{y_i} - \max_{k \neq y_i} f(x_i)_k
    \right\}$

    Reading: Claimed to be larger where a model generalizes worse. Scaling the last layer changes
    it, so that it says little on its own. Where the percentile is not positive it is undefined: a
    negative margin is no small one.

    Assumes: A classification with one logit per class, and training errors below 10 %.

    >>> import torch
    >>> data = torch.tensor([[3.0, 1.0], [0.0, 5.0]]), torch.tensor([0, 1])
    >>> float(InverseMargin()(Subject(torch.nn.Identity(), "cross_entropy", data)))
    0.25
    """

    method = ("E10",)
    cites = ("jiang2020fantastic", "dziugaite2020search")
    direction = "lower"
    needs = frozenset({"classification"})
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    as_published: bool = option(
        False,
        help="as the code of Dziugaite et al.: 1/(|γ| √n), where a negative margin counts as positive",
    )

    def compute(self, subject: Subject) -> Estimate:
        """Return the inverse, and the margin itself."""
        if self.as_published:
            margin = published_margin(subject)
            value = 1 / (margin * math.sqrt(len(subject.train)))
            return Estimate(value=value, status="heuristic", terms={"margin": margin})
        margin = the_margin(subject)
        return Estimate(value=margin**-2, terms={"margin": margin})
