"""The quadratic PAC-Bayes bound."""

from mindgap.bounds.pac_bayes import PacBayesBound
from mindgap.ops.pac_bayes.bounds import quadratic


class PacBayesQuadratic(PacBayesBound):
    r"""Bound the risk of a model with noise on its weights by the quadratic PAC-Bayes bound.

    Formula: $\mathbb{E}_u L(w+u) \le \left( \sqrt{\mathbb{E}_u \hat L(w+u) + B} + \sqrt{B}
    \right)^2, \quad B = \frac{\mathrm{KL}(w+u \Vert \pi) + \ln(\xi(n)/\delta)}{2n}$

    Reading: Bounds the risk of the stochastic model, not of the model without noise. It is a closed
    form that can be differentiated, and so minimized in training. At small training errors its
    complexity term falls like 1/n, not like 1/√n.

    Assumes: Independent training samples, 0-1 loss, initial weights and noise that do not depend on
    the training data.

    >>> round(
    ...     float(PacBayesQuadratic(delta=0.05).evaluate(empirical=0.02, kl=500.0, samples=60_000)),
    ...     4,
    ... )
    0.0488
    """

    method = ("P1",)
    cites = ("rivasplata2019pac", "perezortiz2021tighter")
    basis = "noisy training errors"

    def value(self, empirical: float, kl: float, samples: int) -> float:
        """Evaluate the closed form."""
        return quadratic(empirical, kl, samples, self.delta)
