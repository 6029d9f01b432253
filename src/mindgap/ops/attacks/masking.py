"""Signs that a model hides its gradient, so that attacks by gradient make it look robust."""

import dataclasses

import torch
from torch import Tensor

from mindgap.core import binomial_upper_tail, proportion_interval
from mindgap.ops.attacks.threat import Threat

# A healthy net has no zero gradients; a net that is sure beyond the precision of its numbers has some.
SILENT = 0.05
# Holding on to more than this share of predictions when the attacker may choose any input.
HELD = 0.05
UNLIKELY = 0.01
SENTENCES = {
    "zero gradients": "the gradient is exactly zero at {share} of the samples",
    "more steps hurt": "one step breaks {share} of the predictions that many small steps do not",
    "black box beats white box": "attacks that see no gradient break {share} of the predictions "
    "that the gradient does not",
    "large changes do not suffice": "{share} of the predictions hold although any input is allowed",
}


class MaskingNotice(UserWarning):
    """Warns that a model hides its gradient, and names the sign."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sign:
    """One sign of gradient masking, looked for.

    Args:
        name: ``"zero gradients"``, ``"more steps hurt"``, ``"black box beats white box"`` or
            ``"large changes do not suffice"``.
        share: The share of samples that show it.
        found: Whether it is more than chance and rounding give.
        p_value: How likely chance alone gives such a share; None where it is no test.
    """

    name: str
    share: float
    found: bool
    p_value: float | None = None

    @property
    def sentence(self) -> str:
        """The sign in words.

        >>> Sign(name="zero gradients", share=0.5, found=True).sentence
        'the gradient is exactly zero at 50\xa0% of the samples'
        """
        return SENTENCES[self.name].format(share=f"{100 * self.share:.0f}\N{NO-BREAK SPACE}%")


def zero_gradients(silent: Tensor, right: Tensor) -> Sign:
    """Count samples at which the gradient of the loss is exactly zero.

    Args:
        silent: Whether the gradient is zero or no number.
        right: Whether the prediction is right without an attack; others are left out.

    >>> zero_gradients(torch.tensor([True, False]), torch.tensor([True, True])).found
    True
    """
    share = _share(silent, right)
    return Sign(name="zero gradients", share=share, found=share > SILENT)


def beaten(name: str, weak: Tensor, strong: Tensor, right: Tensor) -> Sign:
    """Compare a weak attack with a strong one, sample by sample (a one-sided sign test).

    Args:
        name: The sign.
        weak: What the attack breaks that should be weaker.
        strong: What the attack breaks that should be stronger.
        right: Whether the prediction is right without an attack.

    >>> few, many = torch.arange(40) < 10, torch.arange(40) < 30
    >>> beaten("more steps hurt", many, few, many | True).found
    True
    """
    only, other = int((weak & ~strong & right).sum()), int((strong & ~weak & right).sum())
    p_value = binomial_upper_tail(only, only + other, 0.5) if only else 1.0
    share = _share(weak & ~strong, right)
    return Sign(name=name, share=share, found=only > other and p_value < UNLIKELY, p_value=p_value)


def holds_on(broken: Tensor, right: Tensor) -> Sign:
    """Count predictions that hold although the attacker may choose any input in the box.

    Args:
        broken: What the attack without a limit breaks.
        right: Whether the prediction is right without an attack.

    >>> holds_on(torch.tensor([True] * 99 + [False]), torch.tensor([True] * 100)).found
    False
    """
    kept, count = int((~broken & right).sum()), int(right.sum())
    low = proportion_interval(kept, count, 1 - 2 * UNLIKELY).low if count else 0.0
    share = _share(~broken, right)
    return Sign(name="large changes do not suffice", share=share, found=low > HELD)


def _share(some: Tensor, right: Tensor) -> float:
    return float((some & right).sum()) / max(1, int(right.sum()))


def unlimited(threat: Threat) -> float:
    """Return the L∞ radius from which on every input in the box is allowed; infinite without a box.

    >>> unlimited(Threat(low=0.0, high=4.0, unit=torch.tensor([1.0, 2.0])))
    4.0
    """
    unit, low, high = (torch.as_tensor(x).double() for x in (threat.unit, threat.low, threat.high))
    ways = torch.where(unit > 0, (high - low) / unit.clamp_min(1e-300), 0.0)
    return float(ways.max())
