"""How often every class or label occurs in training and in test data."""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import Subject, Which, chi_square_tail, hypergeometric_tail

# A class this much rarer than in the test data may have lost its labels to others. No random split
# comes near the second number.
RARER, LEVEL = 0.5, 1e-6


@dataclasses.dataclass(frozen=True)
class Shares:
    """Counts of every class, or of every label that is on.

    Args:
        train: One count per class among the training samples.
        test: One count per class among the test samples.
        train_size: The number of training samples.
        test_size: The number of test samples.
    """

    train: Tensor
    test: Tensor
    train_size: int
    test_size: int

    def p_values(self) -> list[float]:
        """Return an exact two-sided p-value per class: the same share in both splits (Fisher)."""
        total = self.train_size + self.test_size
        found = []
        for own, other in zip(self.train.tolist(), self.test.tolist(), strict=True):
            marked = own + other
            more = hypergeometric_tail(other, self.test_size, marked, total)
            fewer = hypergeometric_tail(own, self.train_size, marked, total)
            found.append(min(1.0, 2 * min(more, fewer)))
        return found

    def homogeneity(self) -> float:
        """Return the p-value of the chi-square test that a random split gave these classes.

        Classes with fewer than ten samples in the smaller split's share are taken together, where
        the limit distribution would be wrong.
        """
        counts = torch.stack([self.train, self.test])
        total = counts.sum()
        least = counts.sum(0) * counts.sum(1).min() / total
        counts = torch.cat([counts[:, least >= 10], counts[:, least < 10].sum(1, keepdim=True)], 1)
        counts = counts[:, counts.sum(0) > 0]
        wanted = counts.sum(1, keepdim=True) * counts.sum(0) / total
        statistic = float(((counts - wanted).square() / wanted).sum())
        return chi_square_tail(statistic, max(counts.shape[1] - 1, 1))

    def losers(self) -> list[int]:
        """Return the classes that may have lost their labels to others.

        They are so much rarer in the training data than in the test data as no random split makes
        them.
        """
        total = self.train_size + self.test_size
        rarer = self.train / self.train_size < RARER * self.test / self.test_size
        return [
            k
            for k in rarer.nonzero().flatten().tolist()
            if hypergeometric_tail(
                int(self.test[k]), self.test_size, int(self.train[k] + self.test[k]), total
            )
            < LEVEL / len(rarer)
        ]

    @property
    def differences(self) -> Tensor:
        """Share among the test samples minus share among the training samples."""
        return self.test / self.test_size - self.train / self.train_size

    def chance(self) -> Tensor:
        """Return the mean size of each difference if both splits have the same shares."""
        pooled = (self.train + self.test) / (self.train_size + self.test_size)
        variance = pooled * (1 - pooled) * (1 / self.train_size + 1 / self.test_size)
        return (variance * 2 / math.pi).sqrt()


def shares(subject: Subject) -> Shares:
    """Count classes or labels of both splits.

    Args:
        subject: A classification, or several labels per sample, with test data.

    >>> data = (torch.zeros(4, 1), torch.tensor([0, 1, 1, 1])), (torch.zeros(2, 1), torch.ones(2))
    >>> found = shares(Subject(torch.nn.Linear(1, 2), "cross_entropy", *data))
    >>> found.train.tolist(), found.test.tolist()
    ([1.0, 3.0], [0.0, 2.0])
    """
    counts = [_counts(subject, which) for which in ("train", "test")]
    width = max(map(len, counts))
    own, other = (torch.nn.functional.pad(count, (0, width - len(count))) for count in counts)
    return Shares(own, other, len(subject.train), len(subject.split("test")))


def _counts(subject: Subject, which: Which) -> Tensor:
    targets = subject.targets(which).detach().cpu()
    if subject.task == "multilabel":
        return (targets.reshape(len(targets), -1) > 0.5).double().sum(0)
    return torch.bincount(targets).double()
