"""The features of a trained network's head on train, validation and test data."""

from __future__ import annotations

import dataclasses

from torch import Tensor, nn

from mindgap.core.subject import Subject
from mindgap.ops.head import find_head, head_features, layer_of

Rows = tuple[Tensor, Tensor]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadParts:
    """Features and classes: to train heads on, to choose settings on, and to judge on once; and the trained head."""

    train: Rows
    validation: Rows
    test: Rows
    head: nn.Linear

    @property
    def classes(self) -> int:
        """Number of outputs of the head."""
        return self.head.out_features


def head_parts(model: nn.Module, train: Rows, validation: Rows, test: Rows, head: str = "") -> HeadParts:
    """Pass the data of a classification through a network once, up to its last linear layer.

    >>> import torch
    >>> square = torch.eye(2), torch.tensor([0, 1])
    >>> head_parts(nn.Sequential(nn.ReLU(), nn.Linear(2, 3)), square, square, square).classes
    3
    """
    subjects = [Subject(model, "cross_entropy", rows, check_determinism=False) for rows in (train, validation, test)]
    name = find_head(subjects[0], head)
    first, second, third = ((head_features(subject, name=name), subject.targets("train")) for subject in subjects)
    return HeadParts(train=first, validation=second, test=third, head=layer_of(model, name))
