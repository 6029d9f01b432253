"""Catoni's PAC-Bayes bound."""

from mindgap.bounds.pac_bayes import PacBayesBound
from mindgap.core import option
from mindgap.ops.pac_bayes.bounds import catoni


class PacBayesCatoni(PacBayesBound):
    r"""Risk of the noisy model by Catoni's bound, the best for a steepness that is known beforehand.

    Formula: $\mathbb{E}_u L(w+u) \le \frac{1}{1 - e^{-C}} \left( 1 - \exp\left( -C\, \mathbb{E}_u
    \hat L(w+u) - \frac{\mathrm{KL}(w+u \Vert \pi) + \ln(1/\delta)}{n} \right) \right)$

    Reading: Bounds the risk of the randomly perturbed model, not of the model as it stands. With
    the best C it equals the kl inverse without its root of n; but the best C is not known
    beforehand, and a grid over C has its price.

    Assumes: Independent training samples, 0-1 loss, initial weights and noise that do not depend on
    the training data. C must be chosen beforehand; at 0 the best of a grid is taken, whose members
    share δ.

    >>> round(
    ...     float(PacBayesCatoni(delta=0.05).evaluate(empirical=0.02, kl=500.0, samples=60_000)), 4
    ... )
    0.0443
    """

    method = ("P1",)
    cites = ("catoni2007pac",)

    steepness: float = option(
        0.0, help="C, chosen before seeing the data; 0: the best of a grid", low=0
    )

    def value(self, empirical: float, kl: float, samples: int) -> float:
        """With the given C, or over the grid."""
        return catoni(empirical, kl, samples, self.delta, steepness=self.steepness or None)
