"""Uniform noise for all weights of a network at once, cheap enough to draw anew at every step of training."""

import torch
from torch import Tensor

_LEVELS = (
    2**24
)  # odd multiples of 1/2^24: exact in single precision, symmetric about zero, never 0, never ±1
_MASK = 2**64 - 1
POOL = 2**20


def mixed(seed: int, step: int) -> int:
    """64 random bits from two numbers: the generator splitmix64, entered at ``step``.

    >>> mixed(0, 1) != mixed(1, 0)
    True
    """
    return _scrambled(_scrambled(seed) + step * 0x9E3779B97F4A7C15)


class UniformNoise:
    """Numbers drawn from U(-1, 1), a function of seed and step alone; global random numbers are left where they are.

    To draw a number a weight costs as much as a tenth of a training step. So a pool of ``count +
    pool`` numbers is drawn once, and every step reads the ``count`` numbers that begin at a random
    place. The numbers of one step are independent of each other; over the steps a weight meets a
    random member of the pool each time, but the same number comes back at another weight of another
    step. ``pool=0`` draws all numbers afresh at every step instead.

    All numbers are odd multiples of 2⁻²⁴, on every device the same.

    >>> noise = UniformNoise(3, seed=0, pool=8)
    >>> torch.equal(noise(5), noise(5)), bool(noise(5).abs().max() < 1)
    (True, True)
    """

    def __init__(
        self, count: int, seed: int, *, pool: int = POOL, like: Tensor | None = None
    ) -> None:
        self.count, self.seed, self.places = count, seed, pool
        self.like = torch.empty(0) if like is None else like
        self.pool = self._drawn(count + pool, mixed(seed, 0)) if pool else None

    def __call__(self, step: int) -> Tensor:
        """The noise of one step (to be read, not written)."""
        bits = mixed(self.seed, step + 1)
        if self.pool is None:
            return self._drawn(self.count, bits)
        place = bits % (self.places + 1)
        return self.pool[place : place + self.count]

    def _drawn(self, count: int, bits: int) -> Tensor:
        generator = torch.Generator().manual_seed(bits >> 1)
        numbers = torch.randint(0, _LEVELS, (count,), generator=generator, dtype=torch.int32)
        return (
            numbers.mul_(2).add_(1 - _LEVELS).to(self.like.dtype).div_(_LEVELS).to(self.like.device)
        )


def _scrambled(word: int) -> int:
    word &= _MASK
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _MASK
    return word ^ (word >> 31)
