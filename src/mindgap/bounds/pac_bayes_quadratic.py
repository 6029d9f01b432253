"""The quadratic PAC-Bayes bound."""

from mindgap.bounds.pac_bayes import PacBayesBound
from mindgap.ops.pac_bayes.bounds import quadratic


class PacBayesQuadratic(PacBayesBound):
    r"""Risk of the noisy model from its training error and its divergence, as a square of square roots.

    Formula: $\mathbb{E}_u L(w+u) \le \left( \sqrt{\mathbb{E}_u \hat L(w+u) + B} + \sqrt{B}
    \right)^2, \quad B = \frac{\mathrm{KL}(w+u \Vert \pi) + \ln(2\sqrt{n}/\delta)}{2n}$

    Reading: Bounds the risk of the randomly perturbed model, not of the model as it stands. A
    closed form that can be differentiated, and so trained on; its price falls with 1/n, not with
    its root, where the training error is small.

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
        """The square."""
        return quadratic(empirical, kl, samples, self.delta)
