"""Images that were prepared in another way: mirrored, turned, or with colors in another order."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import Subject
from mindgap.ops.evidence.inputs import is_single, outputs_on
from mindgap.ops.evidence.passes import errors_of
from mindgap.ops.evidence.permutation import sign_flip_tail
from mindgap.ops.evidence.rows import rows

SAMPLES = 1_000  # test images that are passed through the model in every way
CHANCE = 1e-3  # p-value of a gain, corrected for the number of ways
HALF = (
    0.5  # of the difference to the training error that must be gained: chance symmetries gain less
)


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
