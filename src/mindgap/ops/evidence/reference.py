"""A reference predictor with closed-form leave-one-out: honest for training and test samples.

Ridge regression on random Fourier features of the inputs takes one eigendecomposition and no
training. Its leave-one-out predictions of the training samples and its predictions of the test
samples have seen neither their own targets nor the model. So what differs between the two sides is
a property of the data, however hard they are.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mindgap.core import Subject, Which
from mindgap.ops.evidence.rows import components, rows, spectra

FEATURES = 600  # random Fourier features; 2,000 lower the error by a tenth and cost ten times more
BANDWIDTH = 0.5  # of the median distance of two samples
RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # the best by leave-one-out error is taken
# Mean leverage above which residuals are so small that dividing by one minus the leverage loses them
# to rounding: the fit then seems perfect. The largest ridge is kept in any case.
LEVERAGE = 0.5
BLOCK = 1024  # samples whose leverage is computed at once
FILTERS, PATCH, STRIDE = 120, 6, 3  # random whitened patches of color images


@dataclasses.dataclass(frozen=True)
class Reference:
    """Scores of the reference predictor: one column per class, label or output.

    Args:
        train: Scores of the rows of the training data, leave-one-out if it learned from them.
        test: Scores of the rows of the test data, likewise.
        train_targets: The targets of the same training samples, as the predictor saw them.
        test_targets: The targets of the same test samples.
        classification: Whether the columns are classes.
    """

    train: Tensor
    test: Tensor
    train_targets: Tensor
    test_targets: Tensor
    classification: bool

    def scores(self, which: Which) -> Tensor:
        """The scores of a split."""
        return self.train if which == "train" else self.test

    def targets(self, which: Which) -> Tensor:
        """The targets of a split, one-hot for classes."""
        return self.train_targets if which == "train" else self.test_targets

    def classes(self, which: Which) -> Tensor:
        """The predicted class of every sample."""
        return self.scores(which).argmax(1)

    def errors(self, which: Which) -> Tensor:
        """Whether the predicted class differs from the target; in a regression the squared error."""
        scores, targets = self.scores(which), self.targets(which)
        if self.classification:
            return (scores.argmax(1) != targets.argmax(1)).float()
        return (scores - targets).square().mean(1)

    def margins(self, which: Which) -> Tensor:
        """The score of the predicted class minus the second one."""
        top = self.scores(which).topk(2, 1).values
        return top[:, 0] - top[:, 1]


def reference(subject: Subject, learned: Which = "train") -> Reference:
    """Fit the reference predictor on the training data, once per subject.

    Args:
        subject: With test data.
        learned: The split that it is fitted to. Scores of that split are leave-one-out scores.

    >>> x = torch.linspace(-1, 1, 200)[:, None]
    >>> data = (x[::2], (x[::2, 0] > 0).long()), (x[1::2], (x[1::2, 0] > 0).long())
    >>> found = reference(Subject(torch.nn.Linear(1, 2), "cross_entropy", *data))
    >>> round(float(found.errors("train").mean()), 2), float(found.errors("test").mean())
    (0.01, 0.0)
    """
    return subject.cached(("reference predictor", learned), lambda: _reference(subject, learned))


def _reference(subject: Subject, learned: Which) -> Reference:
    targets, lifted = _targets(subject), _lifted(subject)
    if learned == "train":
        train, test = _ridge(*lifted, targets[0])
    else:
        test, train = _ridge(lifted[1], lifted[0], targets[1])
    return Reference(train, test, *targets, subject.task == "classification")


def _targets(subject: Subject) -> tuple[Tensor, Tensor]:
    found = [
        subject.targets(which).cpu()[rows(subject, which).places] for which in ("train", "test")
    ]
    if subject.task == "classification":
        count = int(max(part.max() for part in found)) + 1
        return F.one_hot(found[0], count).float(), F.one_hot(found[1], count).float()
    train, test = (part.reshape(len(part), -1).float() for part in found)
    return train, test


def _lifted(subject: Subject) -> tuple[Tensor, Tensor]:
    """Return what the ridge sees: Fourier features of components, and features of the kind."""
    parts = [components(subject)]
    extra = _extra(subject)
    if extra is not None and rows(subject, "train").kind == "sequence":
        parts.append(_equal_power(*extra, *parts[0]))
        extra = None
    train, test = (torch.cat(side, 1) for side in zip(*parts, strict=True))
    lifted = _fourier(train, test, FEATURES if extra is None else FEATURES // 2)
    if extra is None:
        return lifted
    return torch.cat([lifted[0], extra[0]], 1), torch.cat([lifted[1], extra[1]], 1)


def _fourier(train: Tensor, test: Tensor, most: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    count = min(most, max(50, len(train) // 3))
    some = train[torch.randperm(len(train), generator=random)[:500]]
    scale = torch.pdist(some).median().clamp_min(1e-6) if len(some) > 1 else torch.ones(())
    directions = torch.randn(train.shape[1], count, generator=random) / (scale * BANDWIDTH)
    phases = torch.rand(count, generator=random) * 2 * math.pi
    return tuple(  # type: ignore[return-value]
        torch.cat([torch.cos(side @ directions + phases), side / scale], 1)
        for side in (train, test)
    )


def _ridge(train: Tensor, test: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return leave-one-out and test predictions of the ridge with the least leave-one-out error.

    The leave-one-out residual of a linear smoother is the residual divided by one minus the
    leverage, so no sample is ever left out in fact.
    """
    mean, center = train.mean(0), targets.mean(0)
    centered = train - mean
    powers, basis = torch.linalg.eigh((centered.T @ centered).double())
    powers, turned = powers.clamp_min(0), centered.double() @ basis
    moments = turned.T @ (targets - center).double()
    best: tuple[float, Tensor, Tensor] | None = None
    for ridge in RIDGES:
        shrunk = 1 / (powers + ridge * len(train) * 0.5)
        leverage = torch.cat([part.square() @ shrunk for part in turned.split(BLOCK)])
        leverage += 1 / len(train)
        if float(leverage.mean()) > LEVERAGE and ridge != RIDGES[-1]:
            continue
        weights = shrunk[:, None] * moments
        rest = (targets - turned @ weights - center) / (1 - leverage).clamp_min(1e-6)[:, None]
        error = float(rest.square().mean())
        if best is None or error < best[0]:
            best = (
                error,
                (targets - rest).float(),
                ((test - mean).double() @ (basis @ weights)).float() + center,
            )
    assert best is not None
    return best[1], best[2]


def _extra(subject: Subject) -> tuple[Tensor, Tensor] | None:
    """Return features that principal components of this kind of input lack, or None."""
    train, test = rows(subject, "train"), rows(subject, "test")
    single = math.prod(train.shape) == train.values.shape[1]
    if train.kind == "sequence" and single and train.shape[0] >= 8:
        return spectra(train.inputs), spectra(test.inputs)
    large = train.kind == "image" and min(train.shape[1:]) >= 3 * PATCH
    if not (large and single and train.shape[0] == 3):
        return None
    return _patch_features(train.inputs, test.inputs)


def _equal_power(
    train: Tensor, test: Tensor, train_like: Tensor, test_like: Tensor
) -> tuple[Tensor, Tensor]:
    """Standardize features and give them the total variance of others."""
    pool, like = torch.cat([train, test]), torch.cat([train_like, test_like])
    spread = pool.std(0)
    scaled = (pool - pool.mean(0)) / torch.where(spread > 1e-9, spread, torch.ones_like(spread))
    scaled *= (like.var(0).sum() / scaled.var(0).sum().clamp_min(1e-9)).sqrt()
    return scaled[: len(train)], scaled[len(train) :]


def _patch_features(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Answers of random whitened patches of the images, pooled 2 × 2 (after Coates and Ng, 2012)."""
    random = torch.Generator().manual_seed(0)
    some = train[torch.randperm(len(train), generator=random)[:400]]
    patches = F.unfold(some, PATCH, stride=5).transpose(1, 2).flatten(0, 1)
    patches = patches - patches.mean(1, keepdim=True)
    size = patches.norm(dim=1, keepdim=True)
    patches = patches / (size + 0.1 * size.mean())
    powers, basis = torch.linalg.eigh(patches.T @ patches / len(patches))
    whiten = basis * (powers.clamp_min(0) + 0.1 * powers.mean()).rsqrt() @ basis.T
    filters = (patches @ whiten)[torch.randperm(len(patches), generator=random)[:FILTERS]]
    filters = filters / filters.norm(dim=1, keepdim=True).clamp_min(1e-3) @ whiten
    answers = [
        torch.cat([_answers(part, filters, size.mean()) for part in side.split(500)])
        for side in (train, test)
    ]
    pool = torch.cat(answers)
    center, spread = pool.mean(0), pool.std(0) + 1e-6
    return (answers[0] - center) / spread / 8, (answers[1] - center) / spread / 8


def _answers(images: Tensor, filters: Tensor, size: Tensor) -> Tensor:
    patches = F.unfold(images, PATCH, stride=STRIDE)
    high = (images.shape[2] - PATCH) // STRIDE + 1
    patches = patches - patches.mean(1, keepdim=True)
    patches = patches / (patches.norm(dim=1, keepdim=True) + 0.1 * size)
    raw = torch.einsum("fd,ndp->nfp", filters, patches)
    # A threshold of a constant, not of this batch: an answer must not depend on its neighbors.
    threshold = 0.25
    both = torch.cat([(raw - threshold).clamp_min(0), (-raw - threshold).clamp_min(0)], 1)
    return F.adaptive_avg_pool2d(both.unflatten(2, (high, -1)), 2).flatten(1)
