"""A subject with its weights from before training: what a measure says if nothing was learned."""

import copy
from collections.abc import Iterator

from mindgap.core import Batch, Subject, Undefined, Which

WORK = 2**30  # samples times weights of one pass: some seconds


class Untrained(Subject):
    """A subject as it was before training; passes over many samples are refused.

    Measures that look at the weights alone still have a value then.
    """

    def batches(self, which: Which = "train") -> Iterator[Batch]:
        """Read all samples in their fixed order, if a pass takes seconds only."""
        weights = sum(weight.numel() for weight in self.model.parameters())
        if len(self.split(which)) * weights > WORK:
            raise Undefined("a pass over all samples with the initial weights takes too long")
        return super().batches(which)


def untrained(subject: Subject) -> Subject | None:
    """Return the subject with its initial weights, or None if they are unknown.

    Args:
        subject: Its model is not changed, and its history is left out.

    >>> import torch
    >>> from torch import nn
    >>> model, data = nn.Linear(1, 1, bias=False), (torch.ones(2, 1), torch.ones(2, 1))
    >>> before = {"weight": torch.zeros(1, 1)}
    >>> float(untrained(Subject(model, "mse", data, initial=before)).outputs().sum())
    0.0
    """
    if subject.initial is None:
        return None
    model = copy.deepcopy(subject.model)
    model.load_state_dict(subject.initial)
    return Untrained(
        model,
        subject.loss,
        subject.train,
        subject.test,
        initial=subject.initial,
        task=subject.task,
        name=subject.name,
        classes=subject.classes,
        seed=subject.seed,
        batch_size=subject.batch_size,
        check_determinism=False,
    )
