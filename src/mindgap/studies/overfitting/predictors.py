"""Trees and polynomials on one input, and the split of the error into bias, variance and noise."""

import dataclasses
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import NDArray

Values = NDArray[np.float64]
Predictor = Callable[[Values], Values]


def tree(inputs: Values, targets: Values, depth: int) -> Predictor:
    """Grow a regression tree of some depth, with the best split at every node.

    Args:
        inputs: One number per sample.
        targets: One number per sample.
        depth: The most splits on the way to a leaf.

    >>> predict = tree(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 0.0, 1.0, 3.0]), 1)
    >>> predict(np.array([0.5, 2.4, 2.6])).round(2).tolist()
    [0.33, 0.33, 3.0]
    """
    order = np.argsort(inputs, kind="stable")
    x, y = inputs[order], targets[order]
    ends = sorted(_cuts(x, y, 0, len(x), depth))
    places = [0, *ends, len(x)]
    values = np.array([y[a:b].mean() for a, b in pairwise(places)])
    thresholds = np.array([(x[end - 1] + x[end]) / 2 for end in ends])
    return lambda at: values[np.searchsorted(thresholds, at)]


def _cuts(x: Values, y: Values, first: int, last: int, depth: int) -> list[int]:
    """Places at which the sorted samples from first to last are cut."""
    if depth == 0 or last - first < 2:
        return []
    left = np.cumsum(y[first:last])
    count = np.arange(1, last - first)
    # The squared error falls by S_l²/n_l + S_r²/n_r: only this part depends on the split.
    gain = left[:-1] ** 2 / count + (left[-1] - left[:-1]) ** 2 / count[::-1]
    gain[x[first : last - 1] == x[first + 1 : last]] = -np.inf
    if np.ptp(y[first:last]) == 0 or not np.isfinite(gain).any():
        return []
    middle = first + int(np.argmax(gain)) + 1
    below, above = _cuts(x, y, first, middle, depth - 1), _cuts(x, y, middle, last, depth - 1)
    return [*below, middle, *above]


def polynomial(inputs: Values, targets: Values, degree: int) -> Predictor:
    """Fit a polynomial by least squares.

    Args:
        inputs: Numbers in [-1, 1].
        targets: One number per sample.
        degree: Its degree.

    >>> x = np.linspace(-1, 1, 5)
    >>> bool(np.allclose(polynomial(x, x**2, 2)(np.array([0.5])), 0.25))
    True
    """
    weights = np.linalg.lstsq(legvander(inputs, degree), targets, rcond=None)[0]
    return lambda at: legvander(at, degree) @ weights


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of the expected squared error.

    Args:
        bias: Squared difference of the mean prediction from the truth.
        variance: Variance of the predictions over training sets.
        noise: Variance of the targets.
    """

    bias: float
    variance: float
    noise: float

    @property
    def total(self) -> float:
        """The expected squared error."""
        return self.bias + self.variance + self.noise


def split(predictions: Values, truth: Values, noise: Values) -> Parts:
    """Split the error of predictions from many training sets, averaged over places.

    The squared bias is unbiased: what the variance of the mean prediction adds to it is removed.

    Args:
        predictions: One row per training set, one column per place.
        truth: The true mean at every place.
        noise: The variance of the targets at every place.

    >>> split(np.array([[0.0, 0.0], [2.0, 2.0]]), np.zeros(2), np.ones(2))
    Parts(bias=0.0, variance=2.0, noise=1.0)
    """
    variance = predictions.var(0, ddof=1)
    bias = (predictions.mean(0) - truth) ** 2 - variance / len(predictions)
    return Parts(float(bias.mean()), float(variance.mean()), float(noise.mean()))


def polynomial_parts(
    inputs: Values,
    truth: tuple[Values, Values],
    noise: tuple[Values, Values],
    at: Values,
    degree: int,
) -> Parts:
    """Compute the parts of a polynomial's error in closed form, for fixed inputs.

    The prediction at t is h(t)·y with h(t) = φ(t) Φ⁺. So its mean is h(t)·f*(X), and its variance
    Σ h_i(t)² σ²(x_i).

    Args:
        inputs: The training inputs X.
        truth: The true means at the training inputs and at ``at``.
        noise: The variances of the targets there.
        at: Places over which the parts are averaged.
        degree: Degree of the polynomial.

    >>> x, zero = np.linspace(-1, 1, 4), np.zeros(4)
    >>> polynomial_parts(x, (zero, zero), (zero + 1, zero + 1), x, 0).variance
    0.25
    """
    hats = legvander(at, degree) @ np.linalg.pinv(legvander(inputs, degree))
    bias = (hats @ truth[0] - truth[1]) ** 2
    return Parts(float(bias.mean()), float((hats**2 @ noise[0]).mean()), float(noise[1].mean()))
