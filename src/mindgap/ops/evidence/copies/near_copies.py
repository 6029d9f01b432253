"""Near copies: shifted, mirrored, cropped, brighter or noisy versions of training samples."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mindgap.core import Subject, Which
from mindgap.ops.evidence.rows import RowKind, principal_axes, rows, standardized

CANDIDATES = 6  # nearest training samples that the nearest one is compared with
AXES = 48  # principal axes: they keep what samples differ in and drop most of added noise
SAMPLES = 3_000  # from which the axes are computed
LARGE = 16  # pixels; smaller images are blurred less
CROP = 14  # the border of a crop that is looked for is one in so many pixels
STEPS = (0, 1, -1, 2, -2)  # by which copies of sequences may be moved
NEXT = 9  # of these shifts are none and by one pixel
# Shifts of images: none, all neighbors, and two pixels along an axis.
MOVES = (
    *((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1)),
    *((0, 2), (0, -2), (2, 0), (-2, 0)),
)


@dataclasses.dataclass(frozen=True)
class Nearest:
    """The nearest training sample of some samples.

    Args:
        rows: The samples, as rows of their split.
        ratio: The distance to the nearest over the median distance to the six nearest.
        nearest: The nearest training sample, as a row.
        equals: Which of the six nearest has the very same target, as a row; -1 if none has.
    """

    rows: Tensor
    ratio: Tensor
    nearest: Tensor
    equals: Tensor


class CopySearch:
    """Finds the nearest training sample, also of shifted, mirrored, cropped and noisy copies.

    A sample is looked at in several views. In each the nearest training samples of a blurred
    version are found, and then compared at full size, shifted by some pixels.

    Args:
        subject: With test data.
    """

    def __init__(self, subject: Subject) -> None:
        train = rows(subject, "train")
        single = math.prod(train.shape) == train.values.shape[1]
        self.kind: RowKind = train.kind if single else "table"
        train_values, test_values = self._values(subject)
        self.values: dict[Which, Tensor] = {"train": train_values, "test": test_values}
        self.targets = {
            which: subject.targets(which).cpu()[rows(subject, which).places].reshape(len(part), -1)
            for which, part in self.values.items()
        }
        random = torch.Generator().manual_seed(0)
        self.sharp = _Projection(self._unit(train_values), random)
        self.soft = _Projection(self._unit(_blurred(train_values, self.kind)), random)

    def nearest(self, which: Which, chosen: Tensor) -> Nearest:
        """Find the nearest training samples; of a training sample never itself.

        Args:
            which: The split.
            chosen: Rows of the split.
        """
        own = chosen if which == "train" else None
        values = self.values[which][chosen]
        seen = [self._seen(view, own) for view in _views(values, self.kind)]
        ratios = torch.stack([ratio for ratio, _, _ in seen], 1)
        firsts = torch.stack([first for _, first, _ in seen], 1)
        found = torch.cat([found for _, _, found in seen], 1)
        same = (self.targets["train"][found] == self.targets[which][chosen][:, None]).all(2)
        equals = torch.where(
            same.any(1), found.gather(1, same.int().argmax(1, keepdim=True))[:, 0], -1
        )
        best = ratios.argmin(1, keepdim=True)
        return Nearest(chosen, ratios.gather(1, best)[:, 0], firsts.gather(1, best)[:, 0], equals)

    def _seen(self, view: Sequence[Tensor], own: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        blurred = self.soft(self._unit(_blurred(view[0], self.kind)))
        found = _closest(blurred, self.soft.base, own)
        apart = torch.full(found.shape, math.inf)
        for moved in view:
            points = self.sharp(self._unit(moved))
            apart = torch.minimum(apart, (points[:, None] - self.sharp.base[found]).norm(dim=2))
        first = apart.argmin(1, keepdim=True)
        ratio = apart.gather(1, first)[:, 0] / apart.median(1).values.clamp_min(1e-12)
        return ratio, found.gather(1, first)[:, 0], found

    def _values(self, subject: Subject) -> tuple[Tensor, Tensor]:
        """Return gray images, and columns of their own scale for tables."""
        if self.kind == "image":
            train, test = (rows(subject, which).inputs.mean(1) for which in ("train", "test"))
            return train, test
        if self.kind == "sequence":
            train, test = (rows(subject, which).inputs for which in ("train", "test"))
            scale = train.flatten(0, 1).std(0).clamp_min(1e-12)
            return train / scale, test / scale
        return standardized(subject)

    def _unit(self, values: Tensor) -> Tensor:
        """Take brightness and contrast out of images."""
        flat = values.flatten(1)
        if self.kind != "image":
            return flat
        flat = flat - flat.mean(1, keepdim=True)
        size: Tensor = flat.norm(dim=1, keepdim=True).clamp_min(1e-6)
        return flat / size


class _Projection:
    """Principal axes of the training samples, and what these are on them."""

    def __init__(self, values: Tensor, random: torch.Generator) -> None:
        self.center = values.mean(0)
        some = torch.randperm(len(values), generator=random)[:SAMPLES]
        count = min(AXES, values.shape[1])
        self.axes = principal_axes(values[some] - self.center, count, random)
        self.base = self(values)

    def __call__(self, values: Tensor) -> Tensor:
        return (values - self.center) @ self.axes


def _views(values: Tensor, kind: RowKind) -> Iterator[Sequence[Tensor]]:
    """Give every way in which a copy may be made, each with small shifts to try."""
    if kind == "image":
        if min(values.shape[1:]) >= LARGE:
            yield [values.roll(move, (1, 2)) for move in MOVES]
        else:  # a pixel is too much of a small image for a shifted copy to be near
            yield from ([values.roll(move, (1, 2))] for move in MOVES[:NEXT])
        yield [values.flip(2)]
        yield [_shrunk(values)]
    elif kind == "sequence":
        for step in STEPS:
            yield [values.roll(step, 1)]
    else:
        yield [values]


def _blurred(values: Tensor, kind: RowKind) -> Tensor:
    """Blur images, so that a shifted copy is still among the nearest."""
    if kind != "image":
        return values
    width = 3 if min(values.shape[1:]) >= LARGE else 2
    return F.avg_pool2d(values[:, None], width, 1 if width == 2 else 2)


def _shrunk(values: Tensor) -> Tensor:
    """Undo a crop that was scaled up again."""
    high, wide = values.shape[1:]
    border = max(1, min(high, wide) // CROP)
    size = (high - 2 * border, wide - 2 * border)
    if min(size) < 1:
        return values
    small = F.interpolate(values[:, None], size=size, mode="bilinear", align_corners=False)
    return F.pad(small, (border,) * 4, mode="replicate")[:, 0]


def _closest(queries: Tensor, base: Tensor, own: Tensor | None) -> Tensor:
    """Return the places of the nearest rows, without the query's own place."""
    squares = base.square().sum(1)
    found = []
    for first, part in zip(range(0, len(queries), 500), queries.split(500), strict=True):
        apart = torch.addmm(squares, part, base.T, alpha=-2)
        if own is not None:
            apart[torch.arange(len(part)), own[first : first + len(part)]] = math.inf
        found.append(apart.topk(min(CANDIDATES, len(base) - 1), largest=False).indices)
    return torch.cat(found)
