"""Published numbers of linear regions: how many a network must, can and cannot have."""

import math
from collections.abc import Sequence

from mindgap.core import InputError, implements, integer


@implements("E2", cites=("zaslavsky1975facing",))
def zaslavsky(units: int, dimension: int) -> int:
    r"""Count the regions of a hyperplane arrangement: the most that one ReLU layer can have.

    Formula: $\sum_{j=0}^{d} \binom{n}{j}$

    Reading: An *upper* bound for one layer, and reached by hyperplanes in general position.

    Assumes: One hidden layer with activations of one kink.

    Args:
        units: Number n of units.
        dimension: Dimension d of the input.

    >>> zaslavsky(5, 2)
    16
    """
    integer("units", units, 0)
    integer("dimension", dimension, 0)
    return sum(math.comb(units, j) for j in range(dimension + 1))


@implements("E2", cites=("montufar2014number",))
def montufar(widths: Sequence[int], dimension: int) -> int:
    r"""Count the regions that some network of these widths has.

    Formula: $\prod_{l=1}^{L-1} \left\lfloor \frac{n_l}{d} \right\rfloor^d \sum_{j=0}^{d}
    \binom{n_L}{j}$

    Reading: A *lower* bound on the largest number over all weights. One network may have far fewer,
    and trained ones usually do.

    Assumes: ReLU layers that are at least as wide as the input.

    Args:
        widths: Numbers of units of the hidden layers.
        dimension: Dimension d of the input.

    >>> montufar([4, 4], 2)
    44
    """
    widths = _checked(widths, dimension)
    if min(widths) < dimension:
        raise InputError(
            f"Every layer must be at least as wide as the input ({dimension}), got {min(widths)}. "
            "Choose wider layers; the theorem says nothing about others."
        )
    folds = math.prod(int((width // dimension) ** dimension) for width in widths[:-1])
    return folds * zaslavsky(widths[-1], dimension)


@implements("E2", cites=("serra2018bounding",))
def serra(widths: Sequence[int], dimension: int) -> int:
    r"""Bound the number of regions of every ReLU network of these widths from above.

    Formula: $\sum_{j \in J} \prod_{l=1}^{L} \binom{n_l}{j_l}, \qquad J = \left\{ j : 0 \le j_l \le
    \min(d, n_1 - j_1, \ldots, n_{l-1} - j_{l-1}, n_l) \right\}$

    Reading: An *upper* bound that no choice of weights exceeds. For one layer it is Zaslavsky's
    number.

    Assumes: A chain of ReLU layers without skip connections.

    Args:
        widths: Numbers of units of the hidden layers.
        dimension: Dimension d of the input.

    >>> serra([5], 2), serra([4, 4], 2)
    (16, 121)
    """
    widths = _checked(widths, dimension)
    # The dimension that is left after a layer is all that later layers depend on.
    ways = {dimension: 1}
    for width in widths:
        after = dict[int, int]()
        for left, count in ways.items():
            for chosen in range(min(left, width) + 1):
                rest = min(left, width - chosen)
                after[rest] = after.get(rest, 0) + count * math.comb(width, chosen)
        ways = after
    return sum(ways.values())


@implements("E2", cites=("telgarsky2016benefits",))
def telgarsky(depth: int) -> int:
    r"""Count the linear pieces of the tent map composed with itself.

    Formula: $2^k$

    Reading: A *lower* bound on the most pieces of k layers of two units with one input: the tent
    network ``mindgap.nets.Tri`` has as many. A shallow network needs about as many units as pieces.

    Assumes: One input.

    Args:
        depth: How often the tent map is applied.

    >>> telgarsky(10)
    1024
    """
    return 1 << integer("depth", depth, 0)


def _checked(widths: Sequence[int], dimension: int) -> list[int]:
    integer("dimension", dimension)
    if not widths:
        raise InputError("widths must hold at least one layer, got none. Pass for example [8, 8].")
    return [integer("widths", width) for width in widths]
