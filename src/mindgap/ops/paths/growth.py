"""How many ways a chain of layers has to classify n samples, and its VC dimension."""

import math

import torch

from mindgap.core import implements
from mindgap.ops.paths.chain import Chain, Rectifier, Weights


@implements("K1", cites=("bartlett2019nearly",))
def log_growth(chain: Chain, samples: int) -> float:
    r"""Bound the logarithm of the number of ways to get some of n samples wrong.

    Formula: $\ln \Pi(n) \le \min\left( n \ln 2, \; \sum_i \left( \ln 2 + W_i \ln \frac{2 e n k_i
    i}{W_i} \right) \right)$

    Reading: Each layer i decides the signs of $k_i$ polynomials of degree i per sample, in the $W_i$
    weights up to it. Warren's theorem counts the patterns. The last layer decides the order of any
    two outputs.

    Assumes: The layers were chosen before the data were seen. A term with fewer polynomials than
    weights is replaced by one bit per polynomial.

    Args:
        chain: The network; its weights do not matter.
        samples: n.

    >>> from mindgap.nets import MLP
    >>> from mindgap.ops.paths.chain import read_chain
    >>> log_growth(read_chain(MLP((2, 2)), (2,)), 10) / math.log(2)
    10.0
    """
    total = 0.0
    for polynomials, degree, weights in _decisions(chain):
        count = samples * polynomials
        bits = count * math.log(2)
        if count >= weights:
            warren = math.log(2) + weights * math.log(2 * math.e * count * degree / weights)
            bits = min(bits, warren)
        total += bits
    return min(total, samples * math.log(2))


def vc_dimension(chain: Chain) -> int:
    """Bound the VC dimension of the errors: the most samples with any pattern of errors.

    >>> from mindgap.nets import MLP
    >>> from mindgap.ops.paths.chain import read_chain
    >>> vc_dimension(read_chain(MLP((2, 2)), (2,)))
    29
    """
    low, high = 1, 2
    while log_growth(chain, high) >= high * math.log(2) * (1 - 1e-12):
        low, high = high, 2 * high
    # The difference is concave in n and zero at n = 0, so that it changes its sign only once.
    while high - low > 1:
        middle = (low + high) // 2
        if log_growth(chain, middle) >= middle * math.log(2) * (1 - 1e-12):
            low = middle
        else:
            high = middle
    return low


def _decisions(chain: Chain) -> list[tuple[int, int, int]]:
    """Return, for all that has a sign, polynomials per sample, their degree and their variables."""
    units, found = torch.zeros(1, *chain.shape, dtype=torch.double), []
    degree = weights = 0
    for step in chain.steps:
        if isinstance(step, Weights):
            degree += 1
            weights += step.weight.numel() + (0 if step.bias is None else step.bias.numel())
            units = step(units)
        elif isinstance(step, Rectifier):
            found.append((units.numel(), degree, weights))
        else:
            units, places = step(units), math.prod(step.window.size)
            if not step.average:
                found.append((units.numel() * math.comb(places, 2), degree, weights))
    # A gate in front of the first layer looks at the inputs alone, which no weight changes.
    inner = [row for row in found if row[2]]
    return [*inner, (math.comb(units.numel(), 2), degree, weights)]
