"""Least squares on random features, solved exactly, and what theory expects of it."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.core import InputError, Record, generator, implements
from mindgap.data import digits
from mindgap.data.noise import label_noise

CLASSES = 10
DIGITS = 1797
RIDGES = 10.0 ** torch.linspace(-8, 2, 41, dtype=torch.float64)  # relative to the largest σ²


@dataclasses.dataclass(frozen=True)
class LeastSquares:
    r"""All least squares of a table, with and without ridge, from one decomposition.

    Directions below the rounding error are left out, so that without ridge the weights are those of
    smallest norm.

    Args:
        left: Left singular vectors, one row per sample.
        sizes: Singular values.
        right: Right singular vectors, one row per direction.
        targets: One row per sample.

    >>> fitted = least_squares(torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0]]))
    >>> [round(float(weight), 6) for weight in fitted.weights()]
    [1.0, 1.0]
    """

    left: Tensor
    sizes: Tensor
    right: Tensor
    targets: Tensor

    def weights(self, ridge: float = 0.0) -> Tensor:
        """Return the weights that minimize the squared error plus ``ridge`` times their square."""
        shrunk = self.sizes / (self.sizes.square() + ridge)
        return self.right.T @ (shrunk[:, None] * (self.left.T @ self.targets))

    def left_out(self, ridge: float) -> float:
        r"""Return the mean squared error of leaving one sample out, without solving again.

        Formula: $\frac{1}{n} \sum_i \left\lVert \frac{y_i - \hat y_i}{1 - h_i} \right\rVert^2$
        """
        kept = self.sizes.square() / (self.sizes.square() + ridge)
        rest = self.targets - self.left @ (kept[:, None] * (self.left.T @ self.targets))
        leverage = (self.left.square() * kept).sum(1)
        return float((rest / (1 - leverage)[:, None]).square().sum(1).mean())

    def best_ridge(self) -> float:
        """Return the ridge of a fixed grid that leaves one sample out best; no test data."""
        grid: list[float] = (RIDGES * float(self.sizes.max()) ** 2).tolist()
        return min(grid, key=self.left_out)


def least_squares(features: Tensor, targets: Tensor) -> LeastSquares:
    """Decompose a table of features in double precision.

    Args:
        features: One row per sample.
        targets: One row per sample.
    """
    left, sizes, right = torch.linalg.svd(features.double(), full_matrices=False)
    keep = sizes > sizes.max() * max(features.shape) * torch.finfo(torch.float64).eps
    return LeastSquares(left[:, keep], sizes[keep], right[keep], targets.double())


@dataclasses.dataclass(frozen=True)
class Noisy:
    """Digits with some wrong training labels.

    Args:
        inputs: Training images, centered, one row each.
        labels: Their labels, some of them wrong.
        test_inputs: The other images, shifted by the same center.
        test_labels: Their labels, all of them right.
    """

    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor


def noisy_digits(samples: int, noise: float, seed: int) -> Noisy:
    """Draw training digits, make a share of their labels wrong, and keep the others for testing.

    Args:
        samples: Training digits.
        noise: Share of wrong labels.
        seed: Seed of the split and of the noise.

    >>> noisy_digits(100, 0.1, 0).test_inputs.shape
    torch.Size([1697, 64])
    """
    if samples > DIGITS - CLASSES:
        raise InputError(
            f"samples must be at most {DIGITS - CLASSES}, got {samples}. Keep some for testing."
        )
    data = digits(test_size=DIGITS - samples, seed=seed)
    assert data.test is not None
    labels, _ = label_noise(data.targets, noise, classes=CLASSES, seed=seed)
    # Without centering, many ReLU features of these non-negative pixels are zero for all samples.
    center = data.inputs.flatten(1).mean(0)
    return Noisy(
        data.inputs.flatten(1) - center,
        labels,
        data.test[0].flatten(1) - center,
        data.test[1],
    )


@dataclasses.dataclass(frozen=True)
class Features:
    """Random ReLU features of training and test digits, with centered one-hot targets."""

    train: Tensor
    targets: Tensor
    test: Tensor
    test_targets: Tensor

    def scores(self, width: int) -> dict[str, float]:
        """Fit the first ``width`` features by smallest norm and by ridge, and test both.

        Args:
            width: Number of features.
        """
        fitted = least_squares(self.train[:, :width], self.targets)
        plain, tamed = fitted.weights(), fitted.weights(fitted.best_ridge())
        rest = self.train[:, :width] @ plain - self.targets
        return {
            "train_loss": float(rest.square().sum(1).mean()),
            "norm": float(plain.norm()),
            **_tested(self.test[:, :width] @ plain, self.test_targets, "test"),
            **_tested(self.test[:, :width] @ tamed, self.test_targets, "ridge"),
        }


def _tested(outputs: Tensor, targets: Tensor, name: str) -> dict[str, float]:
    wrong = outputs.argmax(1) != targets.argmax(1)
    return {
        f"{name}_loss": float((outputs - targets).square().sum(1).mean()),
        f"{name}_error": float(wrong.double().mean()),
    }


def random_features(data: Noisy, width: int, seed: int) -> Features:
    r"""Compute the features $\max(0, Wx + b)$ with fixed Gaussian weights.

    Args:
        data: The digits.
        width: Number of features.
        seed: Seed of the weights.

    >>> random_features(noisy_digits(100, 0.1, 0), 50, 0).train.shape
    torch.Size([100, 50])
    """
    random = generator(seed)
    size = data.inputs.shape[1]
    weight = torch.randn(size, width, generator=random, dtype=torch.float64) / math.sqrt(size)
    bias = 0.1 * torch.randn(width, generator=random, dtype=torch.float64)
    train, test = (
        torch.relu(inputs.double() @ weight + bias) for inputs in (data.inputs, data.test_inputs)
    )
    one_hot = torch.eye(CLASSES, dtype=torch.float64) - 1 / CLASSES
    return Features(train, one_hot[data.labels], test, one_hot[data.test_labels])


@implements("S8", cites=("belkin2020two",))
def expected_ridgeless_risk(
    samples: int, used: int, signal: float, missing: float, noise: float
) -> float:
    r"""Compute the expected test error of least squares of smallest norm on Gaussian features.

    Formula: $(\lVert \beta_{\bar T} \rVert^2 + \sigma^2) \left(1 + \frac{p}{n - p - 1}\right)$ for $p \le
    n - 2$, $\quad \lVert \beta_T \rVert^2 \left(1 - \frac{n}{p}\right) + (\lVert \beta_{\bar T} \rVert^2
    + \sigma^2) \left(1 + \frac{n}{p - n - 1}\right)$ for $p \ge n + 2$

    Reading: Exact for every number of samples. It is infinite where as many features as samples, or
    one more or less, are used: the interpolation threshold.

    Assumes: Independent standard normal features, of which p are used, and Gaussian noise.

    Args:
        samples: Training samples n.
        used: Features p that the model sees.
        signal: Squared norm of the true weights of these features.
        missing: Squared norm of the true weights of all others.
        noise: Variance of the noise.

    >>> expected_ridgeless_risk(samples=10, used=4, signal=0.5, missing=0.5, noise=0.5)
    1.8
    >>> expected_ridgeless_risk(samples=10, used=10, signal=1.0, missing=0.0, noise=0.5)
    inf
    """
    spread = missing + noise
    if abs(used - samples) <= 1:
        return math.inf
    if used < samples:
        return spread * (1 + used / (samples - used - 1))
    return signal * (1 - samples / used) + spread * (1 + samples / (used - samples - 1))


def simulated_risks(
    samples: int, used: int, features: int, noise: float, draws: int, seed: int
) -> Tensor:
    """Draw problems with Gaussian features, fit each, and compute its test error exactly.

    The true weights are equal, with squared norm 1.

    Args:
        samples: Training samples.
        used: Features that the model sees.
        features: All features.
        noise: Variance of the noise.
        draws: Number of problems.
        seed: Seed of all draws.

    >>> simulated_risks(10, 4, 8, 0.5, draws=3, seed=0).shape
    torch.Size([3])
    """
    normal = functools.partial(torch.randn, generator=generator(seed), dtype=torch.float64)
    truth = torch.full((features,), features**-0.5, dtype=torch.float64)
    inputs = normal(draws, samples, features)
    targets = inputs @ truth + math.sqrt(noise) * normal(draws, samples)
    found = torch.linalg.pinv(inputs[..., :used]) @ targets[..., None]
    missed = truth.expand(draws, -1).clone()
    missed[:, :used] -= found[..., 0]
    return missed.square().sum(1) + noise


def column(runs: Sequence[Record], ratio: float, name: str) -> list[float]:
    """List one number of all runs at one ratio of features and samples.

    Args:
        runs: Records of trials, keyed by the ratio.
        ratio: The ratio.
        name: Which number.

    >>> column([{"0.5": {"norm": 2.0}}], 0.5, "norm")
    [2.0]
    """
    return [run[f"{ratio:g}"][name] for run in runs]


def middle(runs: Sequence[Record], ratio: float, name: str) -> float:
    """Return the mean of an error, and the geometric mean of what has heavy tails.

    Args:
        runs: Records of trials, keyed by the ratio.
        ratio: The ratio.
        name: Which number.

    >>> runs = [{"1": {"test_loss": 1.0}}, {"1": {"test_loss": 100.0}}]
    >>> round(middle(runs, 1.0, "test_loss"), 6)
    10.0
    """
    found = column(runs, ratio, name)
    if name.endswith("error"):
        return math.fsum(found) / len(found)
    return math.exp(math.fsum(math.log(max(value, 1e-300)) for value in found) / len(found))


CLEAR = 3.0  # standard errors from which on a peak counts as shown: p < 0.02 with ten seeds


def peak_test(peak: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Compare logarithms of losses at the threshold and elsewhere, paired over seeds.

    Args:
        peak: Losses at the threshold.
        other: Losses elsewhere, in the same order of seeds.

    Returns:
        The ratio of geometric means, and the mean logarithm in standard errors.

    >>> ratio, z = peak_test([10.0, 12.0, 11.0], [1.0, 1.1, 1.2])
    >>> round(ratio, 1), z > 5
    (10.0, True)
    """
    logs = (torch.tensor(peak).double() / torch.tensor(other).double()).log()
    error = float(logs.std()) / math.sqrt(len(logs))
    return math.exp(float(logs.mean())), float(logs.mean()) / max(error, 1e-300)
