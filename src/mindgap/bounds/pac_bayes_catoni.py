"""Catoni's PAC-Bayes bound."""

from mindgap.bounds.pac_bayes import PacBayesBound
from mindgap.core import option
from mindgap.ops.pac_bayes.bounds import catoni


class PacBayesCatoni(PacBayesBound):
    r"""Bound the risk of a model with noise on its weights by Catoni's bound.

    Formula: $\mathbb{E}_u L(w+u) \le \frac{1}{1 - e^{-C}} \left( 1 - \exp\left( -C\, \mathbb{E}_u
    \hat L(w+u) - \frac{\mathrm{KL}(w+u \Vert \pi) + \ln(1/\delta)}{n} \right) \right)$

    Reading: Bounds the risk of the stochastic model, not of the model without noise. With the best
    inverse temperature C it equals the kl inverse without the root of n. The best C is not known
    before the data are seen, and a grid over C costs a part of δ.

    Assumes: Independent training samples, 0-1 loss, initial weights and noise that do not depend on
    the training data. C must be chosen before the data are seen; at 0 the best of a grid is taken,
    whose members share δ.

    >>> round(
    ...     float(PacBayesCatoni(delta=0.05).evaluate(empirical=0.02, kl=500.0, samples=60_000)), 4
    ... )
    0.0443
    """

    method = ("P1",)
    cites = ("catoni2007pac",)

    inverse_temperature: float = option(
        0.0, help="C, chosen before seeing the data; 0: the best of a grid", low=0
    )

    def value(self, empirical: float, kl: float, samples: int) -> float:
        """Evaluate the bound with the given C, or over the grid."""
        chosen = self.inverse_temperature or None
        return catoni(empirical, kl, samples, self.delta, inverse_temperature=chosen)
