"""Wrong labels and noisy targets, on purpose and by exactly the asked amount."""

from dataclasses import replace

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, integer, number
from mindgap.data.dataset import DataSet

KINDS = ("symmetric", "pair", "random")


def label_noise(
    labels: Tensor,
    fraction: float,
    kind: str = "symmetric",
    classes: int | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Corrupt exactly ``round(fraction · n)`` labels, chosen at random; return the labels and the mask of the chosen.

    Kinds: ``"symmetric"`` moves a chosen label to one of the other classes, uniformly; ``"pair"``
    to the next class (the last to the first); ``"random"`` draws it anew among all classes, so that
    by chance it may stay what it was.

    >>> labels, mask = label_noise(torch.tensor([0, 1, 2, 0, 1, 2]), 0.5, "pair")
    >>> (
    ...     int(mask.sum()),
    ...     bool((labels[mask] == (torch.tensor([0, 1, 2, 0, 1, 2])[mask] + 1) % 3).all()),
    ... )
    (3, True)
    """
    number("fraction", fraction, 0, 1)
    choice("kind", kind, KINDS)
    count = _classes(labels, classes)
    random = generator(seed)
    chosen = torch.randperm(len(labels), generator=random)[: round(fraction * len(labels))]
    noisy, mask = labels.clone(), torch.zeros(len(labels), dtype=torch.bool)
    mask[chosen] = True
    noisy[chosen] = (
        labels[chosen] + _steps(kind, count, len(chosen), random).to(labels.dtype)
    ) % count
    return noisy, mask


def gaussian_noise(targets: Tensor, std: float, seed: int = 0) -> Tensor:
    """Add independent normal noise of standard deviation ``std`` to regression targets.

    >>> gaussian_noise(torch.zeros(2, 1), 0.0)
    tensor([[0.],
            [0.]])
    """
    number("std", std)
    if not targets.is_floating_point():
        raise InputError(
            f"targets must be floating point numbers, got {targets.dtype}. Use label_noise for "
            "classes."
        )
    return targets + std * torch.randn(
        targets.shape, generator=generator(seed), dtype=targets.dtype
    )


def with_label_noise(
    dataset: DataSet, fraction: float, kind: str = "symmetric", seed: int = 0
) -> tuple[DataSet, Tensor]:
    """Corrupt the training labels of a data set and leave its test part clean; also return the mask."""
    if dataset.task != "classification":
        raise InputError(
            f"dataset must be a classification, got {dataset.task}. Use gaussian_noise on its "
            "targets."
        )
    classes = len(dataset.classes) if dataset.classes else None
    labels, mask = label_noise(dataset.targets, fraction, kind, classes, seed)
    return replace(dataset, targets=labels), mask


def _steps(kind: str, classes: int, count: int, random: torch.Generator) -> Tensor:
    """How many classes each chosen label moves on, modulo their number."""
    if kind == "pair":
        return torch.ones(count, dtype=torch.int64)
    return torch.randint(1 if kind == "symmetric" else 0, classes, (count,), generator=random)


def _classes(labels: Tensor, classes: int | None) -> int:
    if (
        labels.ndim != 1
        or labels.is_floating_point()
        or labels.dtype == torch.bool
        or len(labels) == 0
    ):
        raise InputError(
            f"labels must be class numbers of shape (n,) with n > 0, got {labels.dtype} of shape "
            f"{tuple(labels.shape)}. Use gaussian_noise for regression."
        )
    largest = int(labels.max())
    if int(labels.min()) < 0:
        raise InputError(
            f"labels must be class numbers of at least 0, got {int(labels.min())}. Renumber the "
            "classes."
        )
    return integer("classes", largest + 1 if classes is None else classes, max(2, largest + 1))
