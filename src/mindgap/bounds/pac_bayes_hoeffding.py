"""Theorem 1: the PAC-Bayes–Hoeffding bound."""

from mindgap.bounds.pac_bayes import PacBayesBound
from mindgap.core import option
from mindgap.ops.pac_bayes.bounds import hoeffding


class PacBayesHoeffding(PacBayesBound):
    r"""Bound the risk of a model with noise on its weights by the PAC-Bayes–Hoeffding bound.

    Formula: $\mathbb{E}_u L(w+u) \le \mathbb{E}_u \hat L(w+u)
    + \frac{\mathrm{KL}(w+u \Vert \pi) + \ln(1/\delta)}{\eta} + \frac{\eta}{2n}$

    Reading: Bounds the risk of the stochastic model, not of the model without noise. Wide noise
    makes the divergence small and the training error high. The simplest PAC-Bayes bound;
    pac-bayes-kl is tighter at small training errors.

    Assumes: Independent training samples, 0-1 loss, initial weights and noise that do not depend on
    the training data. η must be chosen before the data are seen; at 0 the best of a grid is taken,
    whose members share δ. ``sharp`` replaces η/2n by η/8n, which Hoeffding's lemma allows for a
    loss in [0, 1].

    >>> round(
    ...     float(PacBayesHoeffding(delta=0.05).evaluate(empirical=0.02, kl=500.0, samples=60_000)),
    ...     4,
    ... )
    0.1556
    """

    method = ("P1",)
    cites = ("wang2018identifying", "seldin2012pac")

    eta: float = option(0.0, help="η, chosen before seeing the data; 0: the best of a grid", low=0)
    sharp: bool = option(False, help="use η/8n, the best constant for a loss in [0, 1], for η/2n")

    def value(self, empirical: float, kl: float, samples: int) -> float:
        """Evaluate the bound with the given η, or over the grid."""
        return hoeffding(empirical, kl, samples, self.delta, eta=self.eta or None, sharp=self.sharp)
