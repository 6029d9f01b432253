"""The PAC-Bayes bound by inverting the binary kl divergence."""

from mindgap.bounds.pac_bayes import PacBayesBound
from mindgap.ops.pac_bayes.bounds import small_kl


class PacBayesKl(PacBayesBound):
    r"""Largest risk of the noisy model whose binary kl divergence from its training error is within the budget.

    Formula: $\mathbb{E}_u L(w+u) \le \max\left\{ p : \mathrm{kl}\left( \mathbb{E}_u \hat L(w+u)
    \,\Vert\, p \right) \le \frac{\mathrm{KL}(w+u \Vert \pi) + \ln(2\sqrt{n}/\delta)}{n} \right\}$

    Reading: Bounds the risk of the randomly perturbed model, not of the model as it stands. The one
    to look at first: never above the quadratic form, and never beyond 1.

    Assumes: Independent training samples, 0-1 loss, initial weights and noise that do not depend on
    the training data.

    >>> round(float(PacBayesKl(delta=0.05).evaluate(empirical=0.02, kl=500.0, samples=60_000)), 4)
    0.0439
    """

    method = ("P1",)
    cites = ("maurer2004note", "langford2005tutorial", "dziugaite2017computing")
    basis = "noisy training errors"

    def value(self, empirical: float, kl: float, samples: int) -> float:
        """The upper end of the kl ball."""
        return small_kl(empirical, kl, samples, self.delta)
