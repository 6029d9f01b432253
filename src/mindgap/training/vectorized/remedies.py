"""Remedies that vectorize: those that only prepare the recipe, dropout, and changes of the gradient before a step."""

import abc
from collections.abc import Sequence

import torch

from mindgap.core import Remedy
from mindgap.remedies.dropout import Dropout
from mindgap.remedies.gradient_clipping import GradientClipping
from mindgap.remedies.weight_decay import WeightDecay
from mindgap.training.vectorized.optimizers import Rule, per_parameter
from mindgap.training.vectorized.parameters import Store
from mindgap.training.vectorized.problem import Unsupported

_SEAMS = ("weights", "penalty", "backward", "after_step", "after_epoch", "finish")
_KNOWN = (Dropout, GradientClipping, WeightDecay)


def check_remedy(remedy: Remedy) -> None:
    """Refuse a remedy with a hook that has no vectorized form."""
    if isinstance(remedy, _KNOWN):
        return
    used = [hook for hook in _SEAMS if getattr(type(remedy), hook) is not getattr(Remedy, hook)]
    if used:
        raise Unsupported(f"the remedy {remedy.name} acts during training (its hook {used[0]})")
    if remedy.validation:
        raise Unsupported(f"the remedy {remedy.name} holds samples out")


class Edit(abc.ABC):
    """What happens between the gradient and the step."""

    @abc.abstractmethod
    def apply(self, store: Store, rule: Rule) -> None:
        """Change the gradients or the weights."""


class Clip(Edit):
    """Each member's gradient is shortened to its own limit."""

    def __init__(self, limits: Sequence[float], store: Store) -> None:
        self.limits = torch.tensor(limits, dtype=torch.float64).to(store.flat)

    def apply(self, store: Store, rule: Rule) -> None:  # noqa: ARG002
        """As torch's ``clip_grad_norm_``."""
        factors = (self.limits / (store.gradient_norms() + 1e-6)).clamp_(max=1)
        for piece in store.gradients:
            piece.mul_(factors.view(-1, *[1] * (piece.ndim - 1)))


class Decay(Edit):
    """Each member's weights shrink by its own rate."""

    def __init__(self, decays: Sequence[float], store: Store, decoupled: bool) -> None:
        self.decay, self.decoupled = per_parameter(decays, store), decoupled

    def apply(self, store: Store, rule: Rule) -> None:
        """Shrink the weights, or add to the gradient."""
        if self.decoupled:
            store.flat.mul_(1 - rule.rate * self.decay)
        else:
            store.gradient.add_(store.flat * self.decay)


def edits_of(remedies: Sequence[tuple[Remedy, ...]], store: Store) -> list[Edit]:
    """The edits of members whose remedies agree but for their strengths."""
    edits: list[Edit] = []
    for column in zip(*remedies, strict=True):
        first = column[0]
        if isinstance(first, GradientClipping):
            edits.append(
                Clip([r.max_norm for r in column if isinstance(r, GradientClipping)], store)
            )
        elif isinstance(first, WeightDecay):
            edits.append(
                Decay(
                    [r.decay for r in column if isinstance(r, WeightDecay)], store, first.decoupled
                )
            )
    return edits
