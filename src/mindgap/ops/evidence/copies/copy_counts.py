"""How many near copies test samples have in the training data, against what is natural there."""

import dataclasses

import torch
from torch import Tensor

from mindgap.core import Subject, Which, hypergeometric_tail
from mindgap.ops.evidence.copies.near_copies import Nearest
from mindgap.ops.evidence.permutation import excess
from mindgap.ops.evidence.rows import rows
from mindgap.ops.overlap import CHANCE_SAMPLES, shared_samples

# How near is near: the distance to the nearest over the median distance to the six nearest.
LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
EQUAL_TARGETS, TINY_CHANGES = 0.0, -1.0  # what the level says of two other criteria
TESTS = len(LEVELS) + 2  # of which the smallest p-value is taken
PARTS = 5  # of the targets of a regression, in which samples are compared


@dataclasses.dataclass(frozen=True, kw_only=True)
class CopyCount:
    """How many near copies there are by one criterion.

    Args:
        level: The ratio below which a sample is a near copy; or one of the two other criteria.
        hits: The number of test samples that are near copies.
        tried: The number of test samples that were looked at.
        base: The share of training samples that are such copies of each other.
        p_value: The chance of so many hits if test samples are like training samples, over all
            criteria.
    """

    level: float
    hits: int
    tried: int
    base: float
    p_value: float

    @property
    def share(self) -> float:
        """The share of test samples that are near copies."""
        return self.hits / self.tried


def copy_counts(subject: Subject, found: dict[Which, Nearest]) -> list[CopyCount]:
    """Count near copies by every criterion, among samples of the same class.

    In a class with few training samples the second neighbor is far away, and the nearest one looks
    like a copy. So test samples are compared with training samples of their class only.

    Args:
        subject: With test data.
        found: The nearest training samples of some samples of both splits.
    """
    both = [found["test"], found["train"]]
    near = torch.cat([part.ratio for part in both])[:, None] < torch.tensor(LEVELS)
    levels = list(LEVELS)
    if subject.task == "regression":
        equal = torch.cat([part.equals >= 0 for part in both])
        near, levels = torch.cat([near, equal[:, None]], 1), [*levels, EQUAL_TARGETS]
    test = torch.arange(len(near)) < len(both[0].rows)
    tried, others = int(test.sum()), int((~test).sum())
    extra = excess(near.double(), test, _strata(subject, found))
    # The excess over a draw from both splits is a part of that over the training samples alone.
    bases = near[test].double().mean(0) - extra.difference * (tried + others) / (tried * others)
    counts = [
        CopyCount(
            level=level,
            hits=int(near[test, k].sum()),
            tried=tried,
            base=max(0.0, float(bases[k])),
            p_value=min(1.0, TESTS * p_value),
        )
        for k, (level, p_value) in enumerate(zip(levels, extra.p_values(), strict=True))
    ]
    return [*counts, *_tiny(subject)]


def _strata(subject: Subject, found: dict[Which, Nearest]) -> Tensor:
    targets = torch.cat(
        [
            subject.targets(which).cpu()[rows(subject, which).places[found[which].rows]]
            for which in ("test", "train")
        ]
    )
    if subject.task == "classification":
        return targets
    first = targets.reshape(len(targets), -1)[:, 0].double()
    return torch.bucketize(first, torch.quantile(first, torch.arange(1, PARTS).double() / PARTS))


def _tiny(subject: Subject) -> list[CopyCount]:
    """Count copies that differ by rounding or in a single feature."""
    found = shared_samples(subject)
    hits, tried = int(found.near.sum()), len(found.near)
    if not hits:
        return []
    others = min(found.train_samples, CHANCE_SAMPLES)
    both = hits + round(found.close * others)
    p_value = min(1.0, TESTS * hypergeometric_tail(hits, tried, both, tried + others))
    return [
        CopyCount(level=TINY_CHANGES, hits=hits, tried=tried, base=found.close, p_value=p_value)
    ]
