"""Samples as integers, to find equal ones, and as words and numbers, to show them."""

from collections.abc import Sequence
from itertools import zip_longest

import torch
from torch import Tensor

from mindgap.core import Batch, Inputs, Split, Subject, Which
from mindgap.core.chart.numbers import number
from mindgap.ops.images import as_images

NUMBERS = 2**18  # that are hashed at once, in a few megabytes
MOST_VALUES = 12  # numbers that a reader can still take in


def sample_hashes(split: Split, batch_size: int = 0, like: Split | None = None) -> Tensor:
    """Hash the inputs and target of every sample; different samples almost never collide.

    Values are hashed, not bits: -0.0 is 0.0, and an integer is the equal floating-point number.

    Args:
        split: The samples.
        batch_size: Samples that are hashed at once; the hashes do not depend on it. If 0, as many
            as fit a cache.
        like: Another split to compare with. Its precision is used where it is coarser.

    >>> from mindgap.core import as_split
    >>> fine = as_split((torch.tensor([[0.1]], dtype=torch.float64), torch.tensor([1])))
    >>> coarse = as_split((torch.tensor([[0.1]]), torch.tensor([1])))
    >>> bool(sample_hashes(fine, like=coarse) == sample_hashes(coarse, like=fine))
    True
    """
    others = [] if like is None else _tensors(like.take(torch.arange(1)))
    width = sum(tensor.numel() for tensor in _tensors(split.take(torch.arange(1))))
    batch_size = batch_size or max(1, NUMBERS // max(width, 1))
    return torch.cat(
        [_hash(_rounded(_tensors(batch), others)) for batch in split.batches(batch_size)]
    )


def _tensors(batch: Batch) -> list[Tensor]:
    return [*tensors_of(batch.inputs), batch.target]


def tensors_of(inputs: Inputs) -> list[Tensor]:
    """Return the tensors of a batch's inputs in a fixed order."""
    return [inputs[name] for name in sorted(inputs)] if isinstance(inputs, dict) else list(inputs)


def _rounded(tensors: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    """Return double-precision values, rounded to the others' precision where it is coarser."""
    alike = [
        tensor.to(other.dtype) if _is_coarser(other, tensor) else tensor
        for tensor, other in zip(tensors, others, strict=False)
    ]
    # Adding zero turns -0.0 into 0.0.
    return [t.detach().cpu().double() + 0.0 for t in (*alike, *tensors[len(alike) :])]


def _is_coarser(one: Tensor, other: Tensor) -> bool:
    floating = one.is_floating_point() and other.is_floating_point()
    return floating and torch.finfo(one.dtype).eps > torch.finfo(other.dtype).eps


def _hash(tensors: list[Tensor]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(len(tensors[0]), dtype=torch.int64)
    for tensor in tensors:
        bits = tensor.reshape(len(tensor), -1).view(torch.int64)
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


class _Unlabeled(Split):
    """The samples of a split, all with the same target."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def take(self, index: Tensor) -> Batch:
        return Batch(self.split.take(index).inputs, torch.zeros(len(index)), index)


def input_hashes(subject: Subject, which: Which) -> Tensor:
    """Hash the inputs of every sample, whatever its target; equal inputs have equal hashes.

    Args:
        subject: What is examined.
        which: The split.
    """
    other: Which = "test" if which == "train" else "train"
    like = None if subject.test is None else _Unlabeled(subject.split(other))
    return subject.cached(
        ("hashes of inputs", which),
        lambda: sample_hashes(_Unlabeled(subject.split(which)), like=like),
    )


def has_twin(subject: Subject, which: Which) -> Tensor:
    """Whether another training sample has the same inputs, for every sample of a split.

    Args:
        subject: What is examined.
        which: The split.
    """
    known = input_hashes(subject, "train")
    if which == "test":
        return torch.isin(input_hashes(subject, "test"), known)
    _, inverse, counts = known.unique(return_inverse=True, return_counts=True)
    repeated: Tensor = counts[inverse] > 1
    return repeated
