"""Inputs by column or channel, and what the model makes of changed ones."""

import math

import torch
from torch import Tensor

from mindgap.core import Subject, Which, evaluating
from mindgap.ops.evidence.rows import Rows, rows


def is_single(split: Rows) -> bool:
    """Tell whether the rows are one tensor of numbers, which can be changed and passed again."""
    return split.kind != "tokens" and math.prod(split.shape) == split.values.shape[1]


def channels(split: Rows) -> Tensor:
    """Return the values by what shares a scale: (samples, channels, values of a channel).

    A channel is a color of an image, a feature of a sequence, or a column of a table.

    Args:
        split: Rows of a split.

    >>> images = Rows(torch.arange(2), torch.zeros(2, 12), (3, 2, 2), "image")
    >>> channels(images).shape
    torch.Size([2, 3, 4])
    """
    if is_single(split) and split.kind == "image":
        return split.inputs.flatten(2)
    if is_single(split) and split.kind == "sequence":
        return split.inputs.flatten(2).transpose(1, 2)
    return split.values[:, :, None]


def unchanneled(values: Tensor, split: Rows) -> Tensor:
    """Return what :func:`channels` gave in the shape of the rows' values."""
    if is_single(split) and split.kind == "sequence":
        values = values.transpose(1, 2)
    return values.reshape(len(values), -1)


def channel_name(split: Rows, index: int) -> str:
    """Name a channel as a user would count it, from zero as in the tensor."""
    kinds = {"image": "channel", "sequence": "feature"}
    return f"{kinds.get(split.kind, 'input')} {index}"


def outputs_on(subject: Subject, which: Which, chosen: Tensor, values: Tensor) -> Tensor:
    """Return the outputs of the model on changed inputs of some samples.

    Args:
        subject: Whose inputs are a single tensor of numbers.
        which: The split that the samples come from.
        chosen: Numbers of their rows.
        values: Their changed rows.
    """
    split = rows(subject, which)
    inputs = subject.split(which).take(split.places[chosen[:1]]).inputs
    name = next(iter(inputs)) if isinstance(inputs, dict) else None
    parts = values.reshape(len(values), *split.shape).split(subject.batch_size)
    with evaluating(subject.model):
        return torch.cat(
            [subject.forward((part,) if name is None else {name: part}) for part in parts]
        ).detach()
