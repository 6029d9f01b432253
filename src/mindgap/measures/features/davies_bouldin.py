"""How well the classes are separated in front of the last layer."""

import torch
from torch import Tensor

from mindgap.core import (
    Bar,
    Estimate,
    InputError,
    Measure,
    Subject,
    Undefined,
    generator,
    jackknife_error,
    jackknife_groups,
)
from mindgap.ops.models.head import find_head, head_features, layer_of
from mindgap.ops.samples import class_name

NUMBERS = 6_000_000  # of the features of all samples: about a second, and some hundred megabytes
FEWEST = 1000  # samples that are taken however wide their features are


class DaviesBouldin(Measure):
    r"""Davies–Bouldin index of the classes, in the features that enter the last linear layer.

    Formula: $\frac{1}{C} \sum_{a} \max_{b \neq a} \frac{s_a + s_b}{\lVert m_a - m_b \rVert}, \quad
    s_a = \frac{1}{n_a} \sum_{y_i = a} \lVert h(x_i) - m_a \rVert$

    Reading: Small means that the samples of a class lie close together and far from other classes.
    With mixup accuracy it won a competition on predicting generalization. Training data that were
    memorized are well separated too, so compare networks of one training error.

    Assumes: A classification with a linear layer at the end; distances are Euclidean. Of more than
    six million numbers a part of the samples is drawn, as ``samples`` and ``of`` tell; the
    standard error is that of the part.

    >>> x = torch.tensor([[0.0, 1.0], [0.0, -1.0], [4.0, 1.0], [4.0, -1.0]])
    >>> data = x, torch.tensor([0, 0, 1, 1])
    >>> float(DaviesBouldin()(Subject(torch.nn.Linear(2, 2), "cross_entropy", data)))
    0.5
    """

    method = ("E10",)
    cites = ("davies1979cluster", "natekar2020representation")
    direction = "lower"
    needs = frozenset({"classification"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )
    cost = "moderate"

    def compute(self, subject: Subject) -> Estimate:
        """Return the index, its standard error over samples, and the part of every class."""
        features, targets, _ = class_features(subject)
        known, labels = targets.unique(return_inverse=True)
        parts = _index(features, labels)
        if not torch.isfinite(parts).all():
            raise Undefined("needs classes whose mean features differ")
        error = jackknife_error(_without_groups(features, labels).mean(1).tolist())
        named = {
            class_name(subject.classes, place): part
            for place, part in zip(known.tolist(), parts.tolist(), strict=True)
        }
        return Estimate(
            value=float(parts.mean()),
            status="estimate",
            standard_error=error,
            terms={
                "classes": len(known),
                "features": features.shape[1],
                "samples": len(features),
                "of": len(subject.train),
            },
            details={"by_class": named, "layer": find_head(subject)},
            charts=(
                Bar.of(
                    named,
                    title="Overlap of each class with its worst neighbor",
                    x_label="class",
                    y_label="(sₐ + s_b) / distance of means",
                ),
            ),
        )


def class_features(subject: Subject) -> tuple[Tensor, Tensor, Tensor]:
    """Return what enters the last linear layer, the class of each row, and the places of the rows.

    They are in double precision, of all samples or, where that are too many numbers, of a part of
    the samples that is drawn at random.
    """
    places = torch.arange(len(subject.train))
    try:
        most = max(FEWEST, NUMBERS // layer_of(subject.model, find_head(subject)).in_features)
        if len(places) > most:
            drawn = torch.randperm(len(places), generator=generator(0))
            places = drawn[:most].sort().values
            subject = subject.part(places)
        features = head_features(subject).detach().flatten(1)
    except InputError as error:
        raise Undefined(str(error)) from error
    return features.cpu().double(), subject.targets("train").cpu(), places


def class_means(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean feature of every class, and the number of its samples."""
    classes = int(labels.max()) + 1
    counts = torch.bincount(labels, minlength=classes).double()
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
    return sums / counts.clamp_min(1)[:, None], counts


def from_means(features: Tensor, labels: Tensor) -> Tensor:
    """Return every feature's distance from its class mean."""
    own = class_means(features, labels)[0][labels]
    return torch.sub(features, own, out=own)


def means_without_groups(features: Tensor, labels: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Return the class means without each group of samples, and the numbers of samples left.

    Args:
        features: One row per sample.
        labels: The class of each, from 0.
        own: The group of each, from 0.
    """
    classes, groups = int(labels.max()) + 1, int(own.max()) + 1
    cell = own * classes + labels
    counts = torch.bincount(cell, minlength=groups * classes).view(groups, classes)
    sums = features.new_zeros(groups * classes, features.shape[1]).index_add_(0, cell, features)
    sums = sums.view(groups, classes, -1)
    left = (counts.sum(0) - counts).double()
    return (sums.sum(0) - sums) / left.clamp_min(1)[..., None], left


def _index(features: Tensor, labels: Tensor) -> Tensor:
    """Return the worst overlap of every class; classes without samples count as zero."""
    means, counts = class_means(features, labels)
    away = from_means(features, labels).norm(dim=1)
    spread = away.new_zeros(len(means)).index_add_(0, labels, away) / counts.clamp_min(1)
    return _worst(means, spread, counts)


def _without_groups(features: Tensor, labels: Tensor) -> Tensor:
    """Return the worst overlaps without each group of samples, one row per group.

    Means hardly move without a group, so that distances from the new ones follow from those from
    the old ones without loss of digits.
    """
    own = jackknife_groups(len(labels))
    old, _ = class_means(features, labels)
    means, left = means_without_groups(features, labels, own)
    spread = torch.zeros_like(left)
    for label in range(len(old)):
        rows = labels == label
        away, moved = features[rows] - old[label], means[:, label] - old[label]
        squares = away.square().sum(1)[:, None] - 2 * away @ moved.T + moved.square().sum(1)
        outside = own[rows][:, None] != torch.arange(len(means))
        spread[:, label] = (squares.clamp_min(0).sqrt() * outside).sum(0)
    return _worst(means, spread / left.clamp_min(1), left)


def _worst(means: Tensor, spread: Tensor, counts: Tensor) -> Tensor:
    # Differences, not the faster matrix product, which loses digits where means are close.
    distances = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")
    overlap = (spread[..., :, None] + spread[..., None, :]) / distances
    absent = (counts == 0)[..., None]
    itself = torch.eye(means.shape[-2], dtype=torch.bool)
    worst: Tensor = overlap.masked_fill(absent | absent.mT | itself, 0).amax(-1)
    return worst
