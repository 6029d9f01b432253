"""Where labels vary: weigh samples by local variance and pick those that a reader should look at.

The pieces that tell where labels vary: plain, and the same after a trip through JSON.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from mindgap.ops.neighbors.points import as_points, places
from mindgap.ops.neighbors.search import Search
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.ops.variance.local import is_classes
from mindgap.report import wording

MANY_SUSPECTS = 0.15  # more wrong labels than this are rarer than features that say little


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heavy:
    """One sample around which labels vary, or whose label nearly no neighbor carries (``suspect``).

    ``around`` says in words which labels its neighbors carry, ``agreement`` which share of them
    carries its own (``None`` unless labels are classes). It is shown as a image, a text or numbers;
    ``prediction`` is the model's.
    """

    index: int
    weight: float
    target: str
    around: str
    agreement: float | None = None
    suspect: bool = False
    prediction: str = ""
    image: str = ""
    text: str = ""
    values: tuple[str, ...] = ()
    more: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plane:
    """The local variance over the plane of two features, with samples on top.

    ``variance`` has a row for each of ``y``. ``margins`` are tables of the same shape that are zero
    on the model's decision boundary: one for two classes, else one a class. ``targets`` number the
    ``labels``, or are values where there are none.
    """

    names: tuple[str, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    variance: tuple[tuple[float, ...], ...]
    points: tuple[tuple[float, ...], ...]
    targets: tuple[float, ...]
    weights: tuple[float, ...]
    labels: tuple[str, ...] = ()
    margins: tuple[tuple[tuple[float, ...], ...], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variance:
    """Where labels vary: the weights that variance weighting would give, and the samples to look at.

    ``samples`` of ``of`` were weighed, by ``k`` neighbors sought in ``features``. ``edges`` and
    ``counts`` are the histogram of the weights, ``marked`` the suspects among them. ``classes``
    says that labels are classes, not values. ``reason`` says why there is nothing.
    """

    samples: int = 0
    of: int = 0
    k: int = 0
    features: str = ""
    largest: float = 0.0
    mean: float = 0.0
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    marked: tuple[int, ...] = ()
    classes: bool = True
    suspects: int = 0
    heaviest: tuple[Heavy, ...] = ()
    doubtful: tuple[Heavy, ...] = ()
    columns: tuple[str, ...] = ()
    plane: Plane | None = None
    reason: str = ""

    @property
    def defined(self) -> bool:
        """Whether there is something to show."""
        return not self.reason

    @property
    def vague(self) -> bool:
        """Whether so many are suspected that the neighbors cannot know better than the labels."""
        return self.suspects > MANY_SUSPECTS * self.samples

    @property
    def suspected(self) -> str:
        """What is odd about a suspect's label."""
        if self.classes:
            return "a label that at most a tenth of the neighbors carry"
        return "a value that lies more than five standard deviations from those around"


BINS = 30
MOST = 24  # images that a page may carry for this
MOST_SUSPECTS = 8  # of them
MOST_LABELS = 4  # kinds of labels told of a neighborhood


@dataclasses.dataclass(frozen=True)
class Weighed:
    """Weights, the variance behind them, and the suspects."""

    weights: Tensor
    variance: Tensor
    suspects: Tensor
    method: str
    recall: float


@dataclasses.dataclass(frozen=True)
class Cloud:
    """Samples to weigh: what neighbors are sought in, labels, and how to tell of them.

    ``say`` puts a label in words; ``show`` fills in what else is known of the samples at some
    places (a image, a text, numbers, a prediction), one dict of fields of :class:`Heavy` each.
    """

    features: Tensor
    labels: Tensor
    say: Callable[[Tensor], str]
    show: Callable[[Tensor], Sequence[dict[str, object]]]


def weigh(weigher: VarianceWeights, features: Tensor, labels: Tensor) -> Weighed:
    """Fit the weights, and find the suspects also where they are to be kept."""
    noise = "mark" if weigher.noise == "keep" else weigher.noise
    fitted = VarianceWeights(**{**weigher.get_params(), "noise": noise}).fit(features, labels)
    assert fitted.suspects_ is not None
    weights, variance, suspects = map(
        torch.from_numpy, (fitted.weights_, fitted.variance_, fitted.suspects_)
    )
    return Weighed(weights, variance, suspects, fitted.method_, fitted.recall_)


def look(cloud: Cloud, weigher: VarianceWeights, weighed: Weighed, count: int = MOST) -> Variance:
    """The histogram of the weights, the heaviest samples and the suspects."""
    heavy, doubtful = _chosen(weighed, min(count, MOST))
    rows = _rows(cloud, weigher, weighed, torch.cat([heavy, doubtful]))
    edges, counts, marked = _histogram(weighed)
    return Variance(
        samples=len(weighed.weights),
        of=len(weighed.weights),
        k=weigher.k,
        largest=float(weighed.weights.max()),
        mean=float(weighed.weights.mean()),
        edges=edges,
        counts=counts,
        marked=marked,
        classes=is_classes(cloud.labels, weigher.task),
        suspects=int(weighed.suspects.sum()),
        heaviest=tuple(rows[: len(heavy)]),
        doubtful=tuple(rows[len(heavy) :]),
    )


def _chosen(weighed: Weighed, count: int) -> tuple[Tensor, Tensor]:
    """The heaviest, and of the suspects those whose neighbors are most at one; ties in the samples' order."""
    order = weighed.weights.argsort(descending=True, stable=True)
    order = order[weighed.variance[order] > 0]
    calm = weighed.variance.argsort(stable=True)
    doubtful = calm[weighed.suspects[calm]]
    reserved = min(int((~torch.isin(doubtful, order[:count])).sum()), MOST_SUSPECTS, count // 3)
    heavy = order[: count - reserved]
    return heavy, doubtful[~torch.isin(doubtful, heavy)][:reserved]


def _histogram(weighed: Weighed) -> tuple[tuple[float, ...], tuple[int, ...], tuple[int, ...]]:
    weights = weighed.weights.numpy()
    low, high = float(weights.min()), float(weights.max())
    counts, edges = np.histogram(weights, BINS, (low, high if high > low else low + 1))
    marked = np.histogram(weights[weighed.suspects.numpy()], edges)[0]
    return tuple(edges.tolist()), tuple(counts.tolist()), tuple(marked.tolist())


def _rows(cloud: Cloud, weigher: VarianceWeights, weighed: Weighed, chosen: Tensor) -> list[Heavy]:
    classes = is_classes(cloud.labels, weigher.task)
    rows = []
    shown = cloud.show(chosen) if len(chosen) else []
    for place, fields, near in zip(
        chosen.tolist(), shown, _around(cloud, weigher, chosen), strict=True
    ):
        own, others = cloud.labels[place], cloud.labels[near]
        known = {
            "index": place,
            "weight": float(weighed.weights[place]),
            "target": cloud.say(own),
            "around": _told(others, weigher.task == "regression", cloud.say),
            "agreement": float((others == own).double().mean())
            if classes and len(others)
            else None,
            "suspect": bool(weighed.suspects[place]),
        }
        rows.append(Heavy(**{**known, **fields}))
    return rows


def _around(cloud: Cloud, weigher: VarianceWeights, chosen: Tensor) -> list[Tensor]:
    """The neighbors of the chosen samples, themselves aside; ties at the k-th distance are all listed."""
    if not len(chosen):
        return []
    points = as_points(
        cloud.features, cloud.labels, metric=weigher.metric, standardize=weigher.standardize
    )
    wanted, found = points.table.owner[chosen], dict[int, Tensor]()
    for near in Search(points, weigher.k, "exact").blocks(wanted.unique()):
        for k, point in enumerate(near.rows.tolist()):
            mates = near.index[near.start[k] : near.start[k + 1]]
            found[point] = points.table.member[places(points.table.start, mates)]
    pairs = zip(chosen.tolist(), wanted.tolist(), strict=True)
    return [found[point][found[point] != place] for place, point in pairs]


def _told(labels: Tensor, values: bool, say: Callable[[Tensor], str]) -> str:
    """The neighbors' labels in words: how many of which, or mean and range."""
    if values and labels[:1].numel() == 1:
        numbers = labels.double()
        ends = [
            wording.number(float(end)) for end in (numbers.mean(), numbers.min(), numbers.max())
        ]
        return f"mean {ends[0]}, from {ends[1]} to {ends[2]}"
    kinds, counts = labels.unique(dim=0, return_counts=True)
    first = counts.argsort(descending=True, stable=True)[:MOST_LABELS]
    more = (
        [f"others{wording.SPACE}({len(labels) - int(counts[first].sum())})"]
        if len(kinds) > MOST_LABELS
        else []
    )
    return ", ".join([*(f"{say(kinds[k])}{wording.SPACE}({int(counts[k])})" for k in first), *more])
