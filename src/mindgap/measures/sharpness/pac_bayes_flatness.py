"""The flatness of a minimum under Gaussian noise."""

import math

from mindgap.core import Estimate, Subject, option
from mindgap.measures.sharpness.noise_measure import NoiseMeasure


class PacBayesFlatness(NoiseMeasure):
    r"""One over the variance of the largest Gaussian noise that the model stands.

    Formula: $1 / \sigma^2, \quad \mathbb{E}_{u \sim N(0, \sigma^2 I)} \hat R(w + u) = \hat R(w) + 0.1$

    Reading: Small means a flat minimum: noise on the weights hardly changes the predictions.
    Claimed to be larger where a model generalizes worse. ReLU rescaling changes it, unless the noise
    grows with the weights (``magnitude``).

    Assumes: R̂ is the error rate on the training data, or a sample of them. With ``magnitude`` the
    variance is σ'²w² + ε² with ε = 0.001.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.eye(2))
    >>> data = torch.eye(2).repeat(8, 1), torch.arange(2).repeat(8)
    >>> 0.5 < float(PacBayesFlatness()(Subject(model, "cross_entropy", data))) < 10
    True
    """

    invariant_to = frozenset({"sample-order", "duplication"})

    draws: int = option(16, help="draws of the noise, the same ones for every size", low=2)
    as_published: bool = option(
        False,
        help=(
            "as the code of Dziugaite et al.: 1/(σ √n), where the noise has a standard deviation of "
            "σ², so that 1/σ² is one over a standard deviation"
        ),
    )

    def compute(self, subject: Subject) -> Estimate:
        """Return 1/σ² and what a limited number of draws leaves open in it."""
        search = self.found(subject, self.draws, published=self.as_published)
        error = search.standard_error
        if self.as_published:
            value = 1 / (search.scale * math.sqrt(len(subject.train)))
            spread = None if error is None else value * error / search.scale
            terms = self.terms(search)
            return Estimate(value=value, status="heuristic", standard_error=spread, terms=terms)
        return Estimate(
            value=search.scale**-2,
            status="estimate",
            standard_error=None if error is None else 2 * error * search.scale**-3,
            terms=self.terms(search),
        )
