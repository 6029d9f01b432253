"""Samples as integers, to find equal ones, and as words and numbers, to show them."""

from collections.abc import Sequence
from itertools import zip_longest

import torch
from torch import Tensor

from mindgap.core import Inputs, Split, Subject
from mindgap.core.chart.numbers import number
from mindgap.ops.images import as_images

MOST_VALUES = 12  # numbers that a reader can still take in


def overlap(held: Split, train: Split, batch_size: int = 4096) -> float:
    """Compute the share of held-out samples that are, with their target, in the training data.

    Args:
        held: The held-out samples.
        train: The training samples.
        batch_size: Samples that are hashed at once.

    >>> from mindgap.core import as_split
    >>> held = as_split((torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1])))
    >>> overlap(held, as_split((torch.tensor([[2.0], [3.0]]), torch.tensor([1, 1]))))
    0.5
    """
    held_hashes, train_hashes = sample_hashes(held, batch_size), sample_hashes(train, batch_size)
    return float(torch.isin(held_hashes, train_hashes).double().mean())


def sample_hashes(split: Split, batch_size: int = 4096) -> Tensor:
    """Hash the inputs and target of every sample; different samples almost never collide.

    Args:
        split: The samples.
        batch_size: Samples that are hashed at once; the hashes do not depend on it.
    """
    return torch.cat(
        [_hash([*_tensors(batch.inputs), batch.target]) for batch in split.batches(batch_size)]
    )


def _tensors(inputs: tuple[Tensor, ...] | dict[str, Tensor]) -> list[Tensor]:
    return [inputs[name] for name in sorted(inputs)] if isinstance(inputs, dict) else list(inputs)


def _hash(tensors: list[Tensor]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(len(tensors[0]), dtype=torch.int64)
    for tensor in tensors:
        bits = tensor.detach().cpu().double().reshape(len(tensor), -1).view(torch.int64)
        odd = torch.randint(-(2**62), 2**62, (bits.shape[1],), generator=generator) * 2 + 1
        # Doubles of small integers differ in their high bits only: mix them into the low ones. The
        # sum wraps around, which is exact arithmetic modulo 2**64 and independent of the batch.
        mixed = bits ^ (bits >> 29)
        total += (mixed * odd).sum(1)
    return total


def shown_inputs(inputs: Inputs) -> Tensor:
    """Choose the tensor to show if a model takes several: token numbers, or the first.

    >>> shown_inputs({"mask": torch.zeros(1), "input_ids": torch.ones(1)})
    tensor([1.])
    """
    if isinstance(inputs, dict):
        return inputs["input_ids"] if "input_ids" in inputs else next(iter(inputs.values()))
    return inputs[0]


def as_shown(values: Tensor, names: Sequence[str] = ()) -> list[dict[str, str]]:
    """Show every sample as an ``image`` if it has such a shape, else its first numbers.

    Args:
        values: One sample per row.
        names: What the numbers are called.

    >>> as_shown(torch.tensor([[1.5, 2.0], [0.25, 3.0]]), ["age"])
    [{'inputs': 'age 1.5 · 2'}, {'inputs': 'age 0.25 · 3'}]
    """
    images = as_images(values)
    if images:
        return [{"image": image} for image in images]
    return [{"inputs": _row(value, names)} for value in values]


def _row(value: Tensor, names: Sequence[str]) -> str:
    first = value.flatten()[:MOST_VALUES].tolist()
    words = [number(item, 3) if isinstance(item, float) else str(item) for item in first]
    words = [f"{name} {word}".strip() for name, word in zip_longest(names, words, fillvalue="")]
    words = words[: len(first)]
    left = value.numel() - len(first)
    return " · ".join(words) + (f" … {left} more" if left else "")


def in_words(subject: Subject, value: Tensor) -> str:
    """Put a target or prediction in words: the class's name, all labels' names, or numbers."""
    if subject.task == "classification":
        return class_name(subject.classes, int(value))
    if subject.task == "multilabel":
        chosen = value.flatten().nonzero().flatten().tolist()
        return ", ".join(class_name(subject.classes, k) for k in chosen) or "none"
    return ", ".join(number(float(item)) for item in value.flatten()[:MOST_VALUES])


def class_name(classes: tuple[str, ...], index: int) -> str:
    """Return the class's name, or its number if it has none.

    >>> class_name(("cat", "dog"), 1), class_name((), 1)
    ('dog', '1')
    """
    return str(classes[index]) if index < len(classes) else str(index)
