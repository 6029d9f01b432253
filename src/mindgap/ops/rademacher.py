"""Empirical Rademacher complexity of linear and kernel classes, in closed form and by draws."""

import math

import torch
from torch import Tensor

from mindgap.core import InputError, generator, implements, number, standard_error, validated

SIGNS, BLOCK = 2**22, 2**14  # signs, and samples in double precision, that are in memory at once


@implements("K1", cites=("bartlett2002rademacher", "latala1994constant"))
@validated
def linear_complexity(features: Tensor, norm: float = 1.0) -> float:
    r"""Bound the empirical Rademacher complexity of linear functions of bounded norm.

    Formula: $\hat{\mathfrak{R}} = \frac{B}{n} \mathbb{E}_\xi \lVert \sum_i \xi_i \phi_i \rVert_2
    \le \frac{B}{n} \sqrt{\sum_i \lVert \phi_i \rVert_2^2}$

    Reading: How well the class fits random signs on these samples. The closed form on the right is
    at most √2 times the complexity itself (Khinchin and Kahane), and exact for orthogonal samples.

    Assumes: Features that do not depend on the samples.

    Args:
        features: One row per sample.
        norm: B, the largest norm of the weights.

    >>> linear_complexity(torch.eye(4), norm=2.0)
    1.0
    """
    return number("norm", norm) * math.sqrt(sum_of_squares(features)) / len(features)


def sum_of_squares(features: Tensor) -> float:
    """Add up all squares in double precision, some samples at a time."""
    blocks = features.detach().flatten(1).split(BLOCK)
    return sum(float(block.double().square().sum()) for block in blocks)


@implements("K1", cites=("bartlett2002rademacher", "latala1994constant"))
@validated
def kernel_complexity(gram: Tensor, norm: float = 1.0) -> float:
    r"""Bound the empirical Rademacher complexity of a ball of a kernel's function space.

    Formula: $\hat{\mathfrak{R}} = \frac{B}{n} \mathbb{E}_\xi \sqrt{\xi^\top K \xi} \le \frac{B}{n}
    \sqrt{\mathrm{tr} K}$

    Reading: For a kernel with k(x, x) = 1, as the Gaussian, it is B/√n whatever the data. The bound
    is at most √2 times the complexity itself.

    Assumes: A symmetric matrix without negative eigenvalues.

    Args:
        gram: The kernel of all pairs of samples.
        norm: B, the largest norm of the functions.

    >>> kernel_complexity(torch.eye(4), norm=2.0)
    1.0
    """
    _check_gram(gram)
    return number("norm", norm) * math.sqrt(float(gram.double().trace())) / len(gram)


@validated
def sampled_kernel_complexity(
    gram: Tensor, norm: float = 1.0, *, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Estimate the complexity itself by random signs; return it and its standard error.

    Args:
        gram: The kernel of all pairs of samples.
        norm: B, the largest norm of the functions.
        draws: Number of sign vectors.
        seed: Their seed.

    >>> sampled_kernel_complexity(torch.eye(4), norm=2.0)
    (1.0, 0.0)
    """
    _check_gram(gram)
    signs = random_signs(draws, len(gram), seed).to(gram.device, torch.float64)
    squares = ((signs @ gram.double()) * signs).sum(1).clamp(min=0)
    return _mean(squares.sqrt() * number("norm", norm) / len(gram))


@validated
def sampled_linear_complexity(
    features: Tensor, norm: float = 1.0, *, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Estimate the complexity itself by random signs; return it and its standard error.

    Args:
        features: One row per sample.
        norm: B, the largest norm of the weights.
        draws: Number of sign vectors.
        seed: Their seed.

    >>> sampled_linear_complexity(torch.eye(4), norm=2.0)
    (1.0, 0.0)
    """
    rows = features.detach().flatten(1)
    random = generator(seed)
    total = rows.new_zeros(int(number("draws", draws, 1)), rows.shape[1], dtype=torch.float64)
    for block in rows.split(max(1, SIGNS // len(total))):
        total += _signs(len(total), len(block), random).to(total) @ block.double()
    return _mean(total.norm(dim=1) * number("norm", norm) / len(rows))


def random_signs(draws: int, samples: int, seed: int) -> Tensor:
    """Draw vectors of independent signs, one per row."""
    return _signs(int(number("draws", draws, 1)), samples, generator(seed))


def _signs(draws: int, samples: int, random: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(0, 2, (draws, samples), generator=random) - 1


def _mean(values: Tensor) -> tuple[float, float]:
    return float(values.mean()), standard_error(values.tolist())


def _check_gram(gram: Tensor) -> None:
    if gram.ndim != 2 or len(gram) != gram.shape[1] or not torch.allclose(gram, gram.T):
        raise InputError(
            "gram must be a symmetric matrix, samples × samples, got the shape "
            f"{tuple(gram.shape)}. Pass the kernel of all pairs."
        )
