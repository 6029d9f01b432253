"""The PAC-Bayes bound by a mixture over inverse temperatures."""

from mindgap.bounds.pac_bayes import PacBayesBound
from mindgap.ops.pac_bayes.bounds import mixture


class PacBayesMixture(PacBayesBound):
    r"""Bound the risk of a model with noise on its weights by a mixture of PAC-Bayes bounds.

    Formula: $\mathbb{E}_u L(w+u) \le \max\left\{ p : \ln \frac{1}{10} \left( \sum_{j=1}^9
    e^{n(-\lambda_j q - \ln(1 - (1 - e^{-\lambda_j}) p))} + \frac{e^{n\,\mathrm{kl}(q \Vert p)}}{
    \xi(n)} \right) \le \mathrm{KL}(w+u \Vert \pi) + \ln\frac{1}{\delta} \right\}, \quad q =
    \mathbb{E}_u \hat L(w+u)$

    Reading: Bounds the risk of the stochastic model, not of the model without noise. Within ln 10
    nats it is as good as Catoni's bound with the best of nine λ and as the kl inverse. At a small
    divergence it is the tightest of these bounds.

    Assumes: Independent training samples, 0-1 loss, initial weights and noise that do not depend on
    the training data. The nine λ are fixed in the code, so nothing is chosen by the data.

    >>> found = PacBayesMixture(delta=0.05).evaluate(empirical=0.02, kl=1.0, samples=60_000)
    >>> round(float(found), 4)
    0.022
    """

    method = ("P1",)
    cites = ("catoni2007pac", "maurer2004note", "donsker1975asymptotic")
    basis = "noisy training errors"

    def value(self, empirical: float, kl: float, samples: int) -> float:
        """Invert the mixture."""
        return mixture(empirical, kl, samples, self.delta)
