"""Inequalities that carry a quantity of a sample over to unseen data."""

import math

from mindgap.core import InputError, implements, integer, number, validated


@implements("K3", cites=("bousquet2002stability",))
@validated
def uniform_stability_bound(
    empirical: float, stability: float, samples: int, delta: float, largest_loss: float
) -> float:
    r"""Bound the risk of a uniformly stable algorithm (Bousquet and Elisseeff, Theorem 12).

    Formula: $R \le \hat R + 2\beta + (4n\beta + M) \sqrt{\frac{\ln(1/\delta)}{2n}}$

    Reading: It falls with n only if β falls faster than $1/\sqrt{n}$. A β of 0.01 at n = 500 is
    already vacuous for the 0-1 loss.

    Assumes: Independent samples, a loss in [0, M], and a β that no training set, removed sample and
    evaluated sample exceeds. A β measured on one sample is smaller, and the result no guarantee.

    Args:
        empirical: The mean loss on the training data.
        stability: β, the largest change of a loss when one training sample is removed.
        samples: Number of training samples.
        delta: The probability with which the bound may fail.
        largest_loss: M, the largest value of the loss.

    >>> round(uniform_stability_bound(0.1, 0.001, 500, 0.05, 1.0), 6)
    0.2662
    """
    count = integer("samples", samples)
    beta, most = number("stability", stability, 0), number("largest_loss", largest_loss, 0)
    if not 0 < delta < 1:
        raise InputError(
            f"delta must be a number above 0 and below 1, got {delta}. Write 0.05 for 5 %."
        )
    deviation = math.sqrt(math.log(1 / delta) / (2 * count))
    return number("empirical", empirical) + 2 * beta + (4 * count * beta + most) * deviation
