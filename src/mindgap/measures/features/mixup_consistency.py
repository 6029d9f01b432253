"""How often mixtures of two samples of a class are given to that class."""

import math

import torch
from torch import Tensor

from mindgap.core import (
    Estimate,
    Interval,
    Measure,
    Subject,
    Undefined,
    evaluating,
    generator,
    option,
)
from mindgap.core.chart import Bar, Mark
from mindgap.core.stats.proportions import proportion_interval
from mindgap.ops.evidence.passes import affordable, limited
from mindgap.ops.paths.subject import inputs_of
from mindgap.ops.samples import class_name


class MixupConsistency(Measure):
    r"""Share of mixtures of two training samples of one class that are given to that class.

    Formula: $P\left( \arg\max_k f_k(\lambda x_i + (1-\lambda) x_j) = a \mid y_i = y_j = a \right)$

    Reading: Near 1 the network extends a class to what lies between its samples. Far below the
    training accuracy it has learned the samples one by one. One of two factors of the winner of a
    competition on predicting generalization.

    Assumes: A classification with inputs of real numbers, of which mixtures make sense. All pairs
    of a class are mixed if there are few, and random ones otherwise.

    >>> data = torch.tensor([[0.0], [1.0], [4.0], [5.0]]), torch.tensor([0, 0, 1, 1])
    >>> net = torch.nn.Linear(1, 2)
    >>> with torch.no_grad():
    ...     _ = net.weight.copy_(torch.tensor([[-1.0], [1.0]]))
    ...     _ = net.bias.copy_(torch.tensor([2.0, -2.0]))
    >>> float(MixupConsistency()(Subject(net, "cross_entropy", data)))
    1.0
    """

    method = ("E10",)
    cites = ("natekar2020representation", "zhang2018mixup")
    direction = "higher"
    needs = frozenset({"classification"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )

    share: float = option(0.5, help="weight λ of the first sample of a pair", above=0, below=1)
    pairs: int = option(4000, help="most pairs that are mixed", low=1)
    seed: int = option(0, help="seed of the pairs, if not all are mixed", low=0)
    level: float = option(0.95, help="confidence level of the interval", above=0, below=1)
    work: float = limited()

    def compute(self, subject: Subject) -> Estimate:
        """Return the share, by class as well, and the training accuracy to compare it with."""
        targets = subject.targets("train").cpu()
        most = affordable(subject, self.pairs, work=self.work)
        first, second, every = _pairs(targets, most, self.seed)
        if not len(first):
            raise Undefined("needs a class with two samples")
        right = self._mixed(subject, first, second) == targets[first]
        hits, count = int(right.sum()), len(right)
        named = _by_class(subject, targets[first], right)
        accuracy = 1 - subject.mean_error("train")
        return Estimate(
            value=hits / count,
            status="exact" if every else "estimate",
            interval=None if every else self._interval(hits, count),
            standard_error=None if every else math.sqrt(hits / count * (1 - hits / count) / count),
            terms={"pairs": count, "training_accuracy": accuracy},
            details={"by_class": named},
            charts=(
                Bar.of(
                    named,
                    title="Mixtures that are given to their class",
                    x_label="class",
                    y_label="share of mixtures",
                    percent=True,
                    marks=(Mark(name="training accuracy", y=accuracy),),
                ),
            ),
        )

    def _interval(self, hits: int, count: int) -> Interval:
        return proportion_interval(hits, count, self.level)

    def _mixed(self, subject: Subject, first: Tensor, second: Tensor) -> Tensor:
        """Return the class that the model gives to every mixture."""
        found, size = list[Tensor](), subject.batch_size
        with evaluating(subject.model):
            for one, other in zip(first.split(size), second.split(size), strict=True):
                left, right = (inputs_of(subject, "train", places) for places in (one, other))
                mixed = torch.lerp(right, left, self.share)
                found.append(subject.forward((mixed,)).argmax(1).cpu())
        return torch.cat(found)


def _pairs(targets: Tensor, most: int, seed: int) -> tuple[Tensor, Tensor, bool]:
    """Return both places of every pair, and whether these are all pairs there are."""
    counts = torch.bincount(targets)
    if int((counts * (counts - 1)).sum()) // 2 <= most:
        same = (targets[:, None] == targets).triu(1)
        first, second = same.nonzero(as_tuple=True)
        return first, second, True
    order = targets.argsort(stable=True)
    starts, random = counts.cumsum(0) - counts, generator(seed)
    chosen = torch.randint(len(targets), (most,), generator=random)
    own = targets[chosen]
    # Another member of the class, at a distance from 1 to n−1 around its circle.
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))[chosen]
    step = 1 + (torch.rand(most, generator=random) * (counts[own] - 1)).long()
    partner = order[starts[own] + (rank - starts[own] + step) % counts[own]]
    kept = counts[own] > 1
    return chosen[kept], partner[kept], False


def _by_class(subject: Subject, labels: Tensor, right: Tensor) -> dict[str, float]:
    counts = torch.bincount(labels)
    hits = torch.bincount(labels, weights=right.double(), minlength=len(counts))
    return {
        class_name(subject.classes, place): float(hits[place] / counts[place])
        for place in counts.nonzero()[:, 0].tolist()
    }
