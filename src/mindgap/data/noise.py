"""Wrong labels and noisy targets by an exact amount."""

from dataclasses import replace

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, integer, number, validated
from mindgap.data.dataset import DataSet

KINDS = ("symmetric", "pair", "random")


@validated
def label_noise(
    labels: Tensor,
    fraction: float,
    kind: str = "symmetric",
    classes: int | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Corrupt exactly ``round(fraction · n)`` labels, chosen at random.

    Args:
        labels: Class numbers of shape (n,).
        fraction: Share of the labels to corrupt.
        kind: ``"symmetric"`` moves a chosen label to one of the other classes, uniformly;
            ``"pair"`` to the next class, the last to the first; ``"random"`` draws it from all
            classes, so that by chance it may stay as it was.
        classes: Number of classes; one more than the largest label if None.
        seed: Seed of everything that is drawn.

    Returns:
        The new labels, and the mask of the chosen ones.

    >>> labels, mask = label_noise(torch.tensor([0, 1, 2, 0, 1, 2]), 0.5, "pair")
    >>> labels.tolist(), mask.tolist()
    ([0, 1, 0, 1, 1, 0], [False, False, True, True, False, True])
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


@validated
def gaussian_noise(targets: Tensor, std: float, seed: int = 0) -> Tensor:
    """Add independent Gaussian noise to the targets of a regression.

    Args:
        targets: Targets in floating point.
        std: Standard deviation of the noise.
        seed: Seed of the noise.

    >>> noisy = gaussian_noise(torch.zeros(10_000, 1), 0.5)
    >>> round(float(noisy.std()), 1)
    0.5
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


@validated
def with_label_noise(
    dataset: DataSet, fraction: float, kind: str = "symmetric", seed: int = 0
) -> tuple[DataSet, Tensor]:
    """Corrupt the training labels of a data set, and leave its test part clean.

    Args:
        dataset: A classification.
        fraction: Share of the training labels to corrupt.
        kind: ``"symmetric"``, ``"pair"`` or ``"random"``, as for :func:`label_noise`.
        seed: Seed of everything that is drawn.

    Returns:
        The new data set, and the mask of the corrupted training samples.

    >>> from mindgap.data import digits
    >>> noisy, wrong = with_label_noise(digits(), 0.1)
    >>> int(wrong.sum()), int((noisy.targets != digits().targets).sum())
    (130, 130)
    """
    if dataset.task != "classification":
        raise InputError(
            f"dataset must be a classification, got {dataset.task}. Use gaussian_noise on its "
            "targets."
        )
    classes = len(dataset.classes) if dataset.classes else None
    labels, mask = label_noise(dataset.targets, fraction, kind, classes, seed)
    return replace(dataset, targets=labels), mask


def _steps(kind: str, classes: int, count: int, random: torch.Generator) -> Tensor:
    """Draw by how many classes each chosen label moves, modulo their number."""
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
