"""Uniform noise for all weights of a network, cheap enough for every training step."""

import torch
from torch import Tensor

# Odd multiples of 2⁻²⁴: exact in single precision, symmetric about zero, never 0, never ±1.
_LEVELS = 2**24
_MASK = 2**64 - 1
POOL = 2**20


def mixed(seed: int, step: int) -> int:
    """Mix two numbers to 64 random bits: output ``step`` of the generator splitmix64.

    >>> mixed(0, 1) != mixed(1, 0)
    True
    """
    return _scrambled(_scrambled(seed) + step * 0x9E3779B97F4A7C15)


class UniformNoise:
    """Noise from U(-1, 1), a function of seed and step; global generators stay untouched.

    Drawing one number per weight would cost a tenth of a training step. So a pool of ``count +
    pool`` numbers is drawn once, and every step reads ``count`` of them from a random offset. The
    numbers of one step are independent of each other. Over the steps, each weight gets a random
    member of the pool, but a number returns at another weight of another step. All numbers are odd
    multiples of 2⁻²⁴, the same on every device.

    Args:
        count: Number of weights.
        seed: Seed.
        pool: Number of further offsets; 0 draws new numbers at every step instead.
        like: A tensor with the dtype and device of the noise.

    >>> noise = UniformNoise(3, seed=0, pool=8)
    >>> torch.equal(noise(5), noise(5)), bool(noise(5).abs().max() < 1)
    (True, True)
    """

    def __init__(
        self, count: int, seed: int, *, pool: int = POOL, like: Tensor | None = None
    ) -> None:
        self.count, self.seed, self.offsets = count, seed, pool
        self.like = torch.empty(0) if like is None else like
        self.pool = self._drawn(count + pool, mixed(seed, 0)) if pool else None

    def __call__(self, step: int) -> Tensor:
        """Return the noise of one step, which must not be written to."""
        bits = mixed(self.seed, step + 1)
        if self.pool is None:
            return self._drawn(self.count, bits)
        offset = bits % (self.offsets + 1)
        return self.pool[offset : offset + self.count]

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
