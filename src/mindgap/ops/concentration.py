"""Inequalities that carry a quantity of a sample over to unseen data."""

import math

from mindgap.core import InputError, implements, integer, kl_inverse, number, validated


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
    deviation = math.sqrt(_log_inverse(delta) / (2 * count))
    return number("empirical", empirical) + 2 * beta + (4 * count * beta + most) * deviation


@implements("K3", cites=("xu2012robustness",))
@validated
def robustness_bound(
    empirical: float,
    variation: float,
    cells: int,
    samples: int,
    delta: float,
    largest_loss: float,
) -> float:
    r"""Bound the risk of an algorithm that is robust over a partition (Xu and Mannor, Theorem 3).

    Formula: $R \le \hat R + \epsilon + M \sqrt{\frac{2 K \ln 2 + 2 \ln(1/\delta)}{n}}$

    Reading: A fine partition makes the variation ε small and the number of cells K large. It is
    below M only if there are many more samples than cells.

    Assumes: Independent samples, a loss in [0, M], a partition of pairs of input and label that is
    fixed before the data are seen, and an ε that no pair of a training sample and any other point
    of its cell exceeds. A variation measured on samples is smaller, and the result no guarantee.

    Args:
        empirical: The mean loss on the training data.
        variation: ε, the largest difference of losses within a cell.
        cells: K, the number of cells, empty ones included.
        samples: Number of training samples.
        delta: The probability with which the bound may fail.
        largest_loss: M, the largest value of the loss.

    >>> round(robustness_bound(0.1, 0.05, 100, 60_000, 0.05, 1.0), 6)
    0.199095
    """
    count, most = integer("samples", samples), number("largest_loss", largest_loss, 0)
    budget = 2 * integer("cells", cells) * math.log(2) + 2 * _log_inverse(delta)
    within = number("variation", variation, 0)
    return number("empirical", empirical) + within + most * math.sqrt(budget / count)


@implements("K1", "K2", cites=("boucheron2013concentration", "kawaguchi2017generalization"))
@validated
def bernstein(
    samples: int, delta: float, *, magnitude: float = 1.0, variance: float = 1.0, exact: bool = True
) -> float:
    r"""Bound by Bernstein's inequality how far a mean can be above the mean of n samples.

    Formula: $\epsilon = a + \sqrt{a^2 + \frac{2 \gamma^2 t}{n}} \le 2a + \sqrt{\frac{2 \gamma^2
    t}{n}}, \quad a = \frac{C t}{3n}, \quad t = \ln \frac{1}{\delta}$

    Reading: The first form inverts the inequality exactly. The second, which is the printed one, is
    slightly larger. For 0-1 losses the variance is at most 1/4.

    Assumes: Independent samples whose deviations from the mean are at most C, with a variance of at
    most γ².

    Args:
        samples: n.
        delta: The probability with which the bound may fail; divide it by the number of means.
        magnitude: C.
        variance: γ².
        exact: Invert the inequality exactly, instead of by the printed form.

    >>> f"{bernstein(10_000, 1e-10, exact=False):.10f}", f"{bernstein(10_000, 1e-10):.6f}"
    ('0.0693964610', '0.068633')
    """
    term = _log_inverse(delta) / integer("samples", samples)
    linear = number("magnitude", magnitude, 0) * term / 3
    square = 2 * number("variance", variance, 0) * term
    if exact:
        return linear + math.sqrt(linear * linear + square)
    return 2 * linear + math.sqrt(square)


@implements("K1", cites=("tropp2012user",))
@validated
def matrix_bernstein(dimension: int, delta: float, *, magnitude: float, variance: float) -> float:
    r"""Bound the largest eigenvalue of a sum of random matrices (Tropp 2012, Theorem 1.4).

    Formula: $P\left( \lambda_{max}\left( \sum_k X_k \right) \ge t \right) \le d \, \exp\left(
    \frac{-t^2 / 2}{\sigma^2 + R t / 3} \right)$

    Reading: Returns the t for which the right side is δ. In path space the dimension is the number
    of paths, of which only the logarithm counts.

    Assumes: Independent symmetric matrices of mean zero, with eigenvalues of at most R.

    Args:
        dimension: d, the number of rows.
        delta: The probability with which the bound may fail.
        magnitude: R.
        variance: σ², the norm of the sum of the matrices' expected squares.

    >>> scalar = 10_000 * bernstein(10_000, 0.1)
    >>> math.isclose(matrix_bernstein(1, 0.1, magnitude=1.0, variance=10_000.0), scalar)
    True
    """
    term = math.log(integer("dimension", dimension)) + _log_inverse(delta)
    linear = number("magnitude", magnitude, 0) * term / 3
    return linear + math.sqrt(linear * linear + 2 * number("variance", variance, 0) * term)


@implements("K2", cites=("blum2015ladder", "langford2005tutorial"))
@validated
def adaptive_guarantee(
    rate: float, samples: int, models: int, delta: float, *, bits: float = 1.0
) -> float:
    r"""Bound the risk of the best of models that were tried one after the other.

    Formula: $\mathrm{kl}(\hat R \Vert R) \le \frac{\ln |F| + \ln(1/\delta)}{n}, \quad |F| \le
    \sum_{t=1}^{T} 2^{b(t-1)} < 2^{bT}$

    Reading: Counts what could have been reached, not what was tried: what is tried next may depend on
    all results so far. If each result only told whether the model is the best so far (b = 1), the
    T-th model is one of $2^{T-1}$. Early stopping and tuning by hand are such searches. A grid or a
    list of seeds that was fixed before is not, and costs ln T only.

    Assumes: Independent held-out samples, a loss in [0, 1], and results that told no more than b bits
    each. Whoever saw the error itself knows $\log_2(n+1)$ bits.

    Args:
        rate: The held-out error of the chosen model.
        samples: n, the number of held-out samples.
        models: T, the number of models that were compared, every evaluated epoch included.
        delta: The probability with which the bound may fail.
        bits: b.

    >>> round(adaptive_guarantee(0.02, 10_000, 312, 0.05), 4)
    0.0642
    """
    budget = integer("models", models) * number("bits", bits, 0) * math.log(2)
    return kl_inverse(number("rate", rate, 0, 1), (budget + _log_inverse(delta)) / samples)


def _log_inverse(delta: float) -> float:
    """Return ln(1/δ); refuse what is no probability."""
    if not 0 < delta < 1:
        raise InputError(
            f"delta must be a number above 0 and below 1, got {delta}. Write 0.05 for 5 %."
        )
    return -math.log(delta)
