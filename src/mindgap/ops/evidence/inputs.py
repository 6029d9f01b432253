"""Inputs by column or channel, and what the model makes of changed ones."""

import math
from typing import Any

import torch
from torch import Tensor

from mindgap.core import Heatmap, Subject, Which, evaluating
from mindgap.ops.evidence.passes import errors_of
from mindgap.ops.evidence.rows import Rows, rows

SHUFFLED = 2_000  # samples that are passed through the model with changed inputs


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


def input_name(split: Rows, index: int) -> str:
    """Name a single input as a user would count it.

    Args:
        split: A table, sequences or images.
        index: The number of its column.

    >>> input_name(Rows(torch.arange(1), torch.zeros(1, 12), (1, 3, 4), "image"), 7)
    'the pixel at row 1, column 3'
    """
    if split.kind == "image":
        row, column = divmod(index % math.prod(split.shape[1:]), split.shape[2])
        return f"the pixel at row {row}, column {column}"
    if split.kind == "sequence":
        step, feature = divmod(index, math.prod(split.shape[1:]))
        return f"feature {feature} at step {step}"
    return f"input {index}"


def shuffled_error(subject: Subject, inputs: Tensor) -> tuple[float, float]:
    """Return the mean error before and after some inputs are shuffled among training samples.

    Args:
        subject: Whose inputs are a single tensor of numbers.
        inputs: Numbers of the columns.
    """
    split = rows(subject, "train")
    chosen, order = shuffling(split)
    values = split.values[chosen].clone()
    values[:, inputs] = values[order][:, inputs]
    return errors_with(subject, chosen, values)


def shuffling(split: Rows) -> tuple[Tensor, Tensor]:
    """Choose samples for an experiment, and an order to shuffle them by."""
    random = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(split.values), generator=random)[:SHUFFLED]
    return chosen, torch.randperm(len(chosen), generator=random)


def errors_with(subject: Subject, chosen: Tensor, values: Tensor) -> tuple[float, float]:
    """Return the mean error of some training samples, as they are and with changed inputs.

    Args:
        subject: Whose inputs are a single tensor of numbers.
        chosen: Numbers of their rows.
        values: Their changed rows.
    """
    places = rows(subject, "train").places[chosen]
    targets = subject.targets("train")[places]
    before = errors_of(subject, subject.outputs("train")[places], targets)
    after = errors_of(subject, outputs_on(subject, "train", chosen, values), targets)
    return float(before.mean()), float(after.mean())


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


def input_map(split: Rows, values: Tensor, **fields: Any) -> Heatmap:
    """Draw a number per input where the input is: row and column, or step and feature.

    Args:
        split: Images or sequences.
        values: One number per input; of several channels of an image the largest in size is drawn.
        **fields: Other fields of the chart.

    >>> images = Rows(torch.arange(1), torch.zeros(1, 4), (1, 2, 2), "image")
    >>> print(input_map(images, torch.tensor([1.0, 0, 0, 0]), title="Corner"))
    Corner
      0  █░
      1  ░░
      from 0 to 1
    """
    shaped = values.view(split.shape)
    sequence = split.kind == "sequence"
    seen = shaped.flatten(1).T if sequence else _largest(shaped)
    return Heatmap(
        x=list(range(seen.shape[1])),
        # As names, not numbers: the first row of an image is drawn at the top.
        y=[str(k) for k in range(len(seen))],
        z=seen.tolist(),
        x_label="step" if sequence else "column",
        y_label="feature" if sequence else "row",
        **fields,
    )


def _largest(shaped: Tensor) -> Tensor:
    return shaped.gather(0, shaped.abs().argmax(0, keepdim=True))[0]
