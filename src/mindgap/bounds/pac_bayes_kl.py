"""The PAC-Bayes bound by inverting the binary KL divergence."""

from mindgap.bounds.pac_bayes import PacBayesBound
from mindgap.ops.pac_bayes.bounds import small_kl


class PacBayesKl(PacBayesBound):
    r"""Bound the risk of a model with noise on its weights by inverting the binary KL.

    Formula: $\mathbb{E}_u L(w+u) \le \max\left\{ p : \mathrm{kl}\left( \mathbb{E}_u \hat L(w+u)
    \,\Vert\, p \right) \le \frac{\mathrm{KL}(w+u \Vert \pi) + \ln(\xi(n)/\delta)}{n} \right\}$

    Reading: Bounds the risk of the stochastic model, not of the model without noise. Look at this
    one first: it is never above the quadratic bound, and never above 1.

    Assumes: Independent training samples, 0-1 loss, initial weights and noise that do not depend on
    the training data.

    >>> round(float(PacBayesKl(delta=0.05).evaluate(empirical=0.02, kl=500.0, samples=60_000)), 4)
    0.0439
    """

    method = ("P1",)
    cites = ("maurer2004note", "langford2005tutorial", "dziugaite2017computing")
    basis = "noisy training errors"

    def value(self, empirical: float, kl: float, samples: int) -> float:
        """Compute the upper end of the kl ball."""
        return small_kl(empirical, kl, samples, self.delta)
