"""How test inputs were changed, and what undoing it gains: columns of a table, turned images."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import Subject, holm
from mindgap.ops.evidence.inputs import is_single, outputs_on
from mindgap.ops.evidence.passes import errors_of
from mindgap.ops.evidence.permutation import sign_flip_tail
from mindgap.ops.evidence.rows import rows
from mindgap.ops.evidence.two_sample import kolmogorov

SURE = 0.01  # p-value of a column, corrected for the number of columns
CHANCE = 1e-3  # p-value of a gain
SAMPLES = 1_000  # test images that are passed through the model in every way
HALF = 0.5  # of the gap that undoing must gain: symmetries of the data gain less


@dataclasses.dataclass(frozen=True)
class MovedColumns:
    """How every column changed.

    Args:
        moved: Difference of the means, in standard deviations of the training samples.
        wider: Ratio of the standard deviations.
        distances: Distance of Kolmogorov and Smirnov.
        sure: Numbers of the columns that surely changed, the most changed first.
    """

    moved: Tensor
    wider: Tensor
    distances: Tensor
    sure: tuple[int, ...]


def moved_columns(train: Tensor, test: Tensor) -> MovedColumns:
    """Compare the columns of two splits.

    Args:
        train: Training rows, (samples, columns).
        test: Test rows.

    >>> x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    >>> found = moved_columns(x[:200], x[200:] + torch.tensor([0.0, 1.0]))
    >>> found.sure, round(float(found.moved[1]), 1)
    ((1,), 1.0)
    """
    distances, p_values = kolmogorov(train, test)
    spread = _spread(train)
    sure = [k for k, p in enumerate(holm(p_values.tolist())) if p < SURE]
    return MovedColumns(
        (test.mean(0) - train.mean(0)) / spread,
        test.std(0) / spread,
        distances,
        tuple(sorted(sure, key=lambda k: -float(distances[k]))),
    )


def gain_of_putting_back(
    subject: Subject, train: Tensor, test: Tensor, columns: tuple[int, ...]
) -> float:
    """Return what the model gains if moved columns get the mean and deviation of training again.

    The gain is a share of samples, or of the best constant's loss. It is zero if it may be chance.

    Args:
        subject: With a table as inputs.
        train: Numbers of training rows.
        test: Numbers of test rows.
        columns: The columns to put back.
    """
    known, seen = rows(subject, "train").values[train], rows(subject, "test")
    if not columns or not is_single(seen):
        return 0.0
    values, where = seen.values[test].clone(), list(columns)
    scaled = (values[:, where] - values[:, where].mean(0)) / _spread(values[:, where])
    values[:, where] = scaled * known[:, where].std(0) + known[:, where].mean(0)
    targets = subject.targets("test")[seen.places[test].to(subject.targets("test").device)]
    before = subject.outputs("test")[seen.places[test].to(targets.device)]
    after = outputs_on(subject, "test", test, values)
    gains = (errors_of(subject, before, targets) - errors_of(subject, after, targets)).cpu()
    return float(gains.mean()) if sign_flip_tail(gains) < CHANCE else 0.0


def _spread(values: Tensor) -> Tensor:
    spread = values.std(0)
    return torch.where(spread > 1e-12, spread, torch.ones_like(spread))


@dataclasses.dataclass(frozen=True)
class Turned:
    """How test images were changed, and what undoing it gains.

    Args:
        words: What the images are, to follow "The test images are".
        code: An expression that undoes it.
        before: The mean error as they are.
        after: The mean error once it is undone.
    """

    words: str
    code: str
    before: float
    after: float


# Words, the code that undoes it, and the change itself, which is of images (samples, colors, rows,
# columns).
_WAYS: tuple[tuple[str, str, Callable[[Tensor], Tensor]], ...] = (
    ("mirrored left to right", "test_inputs.flip(3)", lambda x: x.flip(3)),
    ("upside down", "test_inputs.flip(2)", lambda x: x.flip(2)),
    ("turned by 180 degrees", "test_inputs.flip(2, 3)", lambda x: x.flip(2, 3)),
    ("transposed: rows are columns", "test_inputs.transpose(2, 3)", lambda x: x.transpose(2, 3)),
    ("turned to the left", "test_inputs.rot90(-1, (2, 3))", lambda x: x.rot90(-1, (2, 3))),
    ("turned to the right", "test_inputs.rot90(1, (2, 3))", lambda x: x.rot90(1, (2, 3))),
    ("of colors in reverse order", "test_inputs.flip(1)", lambda x: x.flip(1)),
)


def turned(subject: Subject) -> Turned | None:
    """Find the way in which most is gained by undoing it, if it explains half of the gap.

    Args:
        subject: With test data.
    """
    split = rows(subject, "test")
    if split.kind != "image" or not is_single(split):
        return None
    chosen = torch.randperm(len(split.values), generator=torch.Generator().manual_seed(0))[:SAMPLES]
    images, places = split.inputs[chosen], split.places[chosen]
    targets = subject.targets("test")[places.to(subject.targets("test").device)]
    before = errors_of(subject, subject.outputs("test")[places], targets).cpu().double()
    found = []
    for words, code, undo in _WAYS:
        changed = undo(images)
        if changed.shape != images.shape or bool((changed == images).all()):
            continue
        outputs = outputs_on(subject, "test", chosen, changed.flatten(1))
        after = errors_of(subject, outputs, targets).cpu().double()
        found.append((float(after.mean()), sign_flip_tail(before - after), words, code))
    if not found:
        return None
    after_mean, chance, words, code = min(found)
    goal = float(errors_of(subject, subject.outputs("train"), subject.targets("train")).mean())
    gained = float(before.mean()) - after_mean
    if len(found) * chance > CHANCE or gained < HALF * (float(before.mean()) - goal):
        return None
    return Turned(words, code, float(before.mean()), after_mean)
