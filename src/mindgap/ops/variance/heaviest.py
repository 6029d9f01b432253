"""Weigh samples by local variance, and pick those that a reader should look at, as charts."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from mindgap.core import Chart, Gallery, Heatmap, Histogram, Sample
from mindgap.core.chart.numbers import SPACE, number, percent
from mindgap.ops.neighbors.points import as_points, entries
from mindgap.ops.neighbors.search import Search
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.ops.variance.local import is_classes

BINS = 30
MOST = 24  # images that a report may carry for this
MOST_SUSPECTS = 8  # on a page; the CSV file and the JSON hold all
MOST_LABELS = 4  # kinds of labels told of a neighborhood
MANY_SUSPECTS = 0.15  # more wrong labels than this are rarer than features that say little


@dataclasses.dataclass(frozen=True)
class Weighed:
    """Weights, the variance behind them, the suspects, and how the neighbors were found."""

    weights: Tensor
    variance: Tensor
    suspects: Tensor
    method: str
    recall: float


@dataclasses.dataclass(frozen=True)
class Cloud:
    """Samples to weigh.

    Args:
        features: One row per sample, in which neighbors are searched.
        labels: Classes or values.
        say: Puts a label in words.
        show: For samples at some places, what else is known: an ``image``, or names and texts.
        index: The samples' numbers in the user's data; their places if None.
    """

    features: Tensor
    labels: Tensor
    say: Callable[[Tensor], str]
    show: Callable[[Tensor], Sequence[Mapping[str, str]]]
    index: Tensor | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heavy:
    """A sample around which labels vary, or whose label almost no neighbor carries.

    ``around`` says which labels its neighbors carry, ``agreement`` which share of them carries its
    own (None unless labels are classes); a ``suspect`` has almost none. ``shown`` holds its image, or names and texts.
    """

    index: int
    weight: float
    target: str
    around: str
    agreement: float | None
    suspect: bool
    shown: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """Where labels vary: the weights in numbers, and the samples to look at.

    ``varied`` counts the samples whose neighbors do not all carry one label.
    """

    samples: int
    varied: int
    k: int
    mean: float
    largest: float
    suspects: int
    classes: bool
    heaviest: tuple[Heavy, ...]
    doubtful: tuple[Heavy, ...]
    histogram: Histogram
    plane: Heatmap | None = None

    @property
    def charts(self) -> tuple[Chart, ...]:
        """The weights, the plane of two features, the heaviest samples and the suspects."""
        found = (
            self.histogram,
            self.plane,
            _heaviest(self) if self.heaviest else None,
            _doubtful(self) if self.doubtful else None,
        )
        return tuple(chart for chart in found if chart is not None)


def weigh(weigher: VarianceWeights, features: Tensor, labels: Tensor) -> Weighed:
    """Fit the weights, and find the suspects also where they are to be kept."""
    noise = "mark" if weigher.noise == "keep" else weigher.noise
    fitted = VarianceWeights(**{**weigher.get_params(), "noise": noise}).fit(features, labels)
    assert fitted.suspects_ is not None
    weights, variance, suspects = map(
        torch.from_numpy, (fitted.weights_, fitted.variance_, fitted.suspects_)
    )
    return Weighed(weights, variance, suspects, fitted.method_, fitted.recall_)


def look(
    cloud: Cloud,
    weigher: VarianceWeights,
    weighed: Weighed,
    count: int = 10,
    suspects: int = MOST_SUSPECTS,
) -> Look:
    """Pick the heaviest samples and the first suspects.

    Args:
        cloud: The samples.
        weigher: How they were weighed.
        weighed: Their weights.
        count: How many of the heaviest to show.
        suspects: How many suspects to show that are not among them.
    """
    heavy, doubtful = heaviest_places(weighed, count), _suspect_places(weighed)
    doubtful = doubtful[~torch.isin(doubtful, heavy)][:suspects]
    rows = _rows(cloud, weigher, weighed, torch.cat([heavy, doubtful]))
    classes = is_classes(cloud.labels, weigher.task)
    return Look(
        samples=len(weighed.weights),
        varied=int((weighed.variance > 0).sum()),
        k=weigher.k,
        mean=float(weighed.weights.mean()),
        largest=float(weighed.weights.max()),
        suspects=int(weighed.suspects.sum()),
        classes=classes,
        heaviest=tuple(rows[: len(heavy)]),
        doubtful=tuple(rows[len(heavy) :]),
        histogram=_histogram(weighed, classes),
    )


def shared_out(weighed: Weighed, count: int) -> tuple[int, int]:
    """Share the room for so many samples out between the heaviest and other suspects.

    Args:
        weighed: The weights.
        count: How many to show in all.
    """
    doubtful, heavy = _suspect_places(weighed), heaviest_places(weighed, count)
    others = int((~torch.isin(doubtful, heavy)).sum())
    suspects = min(others, MOST_SUSPECTS, count // 3)
    return count - suspects, suspects


def heaviest_places(weighed: Weighed, count: int) -> Tensor:
    """Return the places of the heaviest samples around which labels vary; ties in order."""
    order = weighed.weights.argsort(descending=True, stable=True)
    return order[weighed.variance[order] > 0][:count]


def _suspect_places(weighed: Weighed) -> Tensor:
    """Return the places of all suspects, those first whose neighbors agree most."""
    calm = weighed.variance.argsort(stable=True)
    return calm[weighed.suspects[calm]]


def all_suspects(cloud: Cloud, weigher: VarianceWeights, weighed: Weighed) -> list[Heavy]:
    """Return all suspects without their images, those first whose neighbors agree most.

    Args:
        cloud: The samples.
        weigher: How they were weighed.
        weighed: Their weights.
    """
    bare = dataclasses.replace(cloud, show=lambda places: [{} for _ in places])
    return _rows(bare, weigher, weighed, _suspect_places(weighed))


def _histogram(weighed: Weighed, classes: bool) -> Histogram:
    weights = weighed.weights.numpy()
    low, high = float(weights.min()), float(weights.max())
    counts, edges = np.histogram(weights, BINS, (low, high if high > low else low + 1))
    marked = np.histogram(weights[weighed.suspects.numpy()], edges)[0]
    found = {"samples": counts.tolist()}
    found |= {"suspects": marked.tolist()} if marked.sum() else {}
    ends = f"from {number(low, 3)} to {number(high, 3)}, mean {number(float(weights.mean()), 3)}"
    told = _suspicion(int(marked.sum()), len(weights), classes)
    return Histogram(
        title="Weights of all samples",
        caption=f"Weights {ends}. {told}",
        x_label="weight",
        y_label="samples (log scale)",
        edges=edges.tolist(),
        counts=found,
        y_scale="log",
    )


def _suspicion(count: int, samples: int, classes: bool) -> str:
    """Say how many samples carry an odd label, and what is odd about it."""
    odd = (
        "a label that at most a tenth of the neighbors carry"
        if classes
        else "a value that lies more than five standard deviations from those around it"
    )
    if not count:
        return f"No sample carries {odd}."
    noun, verb = ("suspect", "carries") if count == 1 else ("suspects", "carry")
    return f"{count:,} {noun} of {samples:,} samples {verb} {odd}."


def _rows(cloud: Cloud, weigher: VarianceWeights, weighed: Weighed, chosen: Tensor) -> list[Heavy]:
    classes = is_classes(cloud.labels, weigher.task)
    shown = cloud.show(chosen) if len(chosen) else []
    rows = []
    for place, told, near in zip(
        chosen.tolist(), shown, _around(cloud, weigher, chosen), strict=True
    ):
        own, others = cloud.labels[place], cloud.labels[near]
        agreed = float((others == own).double().mean()) if classes and len(others) else None
        rows.append(
            Heavy(
                index=place if cloud.index is None else int(cloud.index[place]),
                weight=float(weighed.weights[place]),
                target=cloud.say(own),
                around=_told(others, weigher.task == "regression", cloud.say),
                agreement=agreed,
                suspect=bool(weighed.suspects[place]),
                shown=told,
            )
        )
    return rows


def _around(cloud: Cloud, weigher: VarianceWeights, chosen: Tensor) -> list[Tensor]:
    """Find the neighbors of the chosen samples, with all that tie at the k-th distance."""
    if not len(chosen):
        return []
    points = as_points(
        cloud.features, cloud.labels, metric=weigher.metric, standardize=weigher.standardize
    )
    wanted, found = points.table.owner[chosen], dict[int, Tensor]()
    for near in Search(points, weigher.k, "exact").blocks(wanted.unique()):
        for k, point in enumerate(near.rows.tolist()):
            mates = near.index[near.start[k] : near.start[k + 1]]
            found[point] = points.table.member[entries(points.table.start, mates)]
    pairs = zip(chosen.tolist(), wanted.tolist(), strict=True)
    return [found[point][found[point] != place] for place, point in pairs]


def _told(labels: Tensor, values: bool, say: Callable[[Tensor], str]) -> str:
    """Return the neighbors' labels in words: how many of which, or mean and range."""
    if values and labels[:1].numel() == 1:
        numbers = labels.double()
        mean, low, high = (float(end) for end in (numbers.mean(), numbers.min(), numbers.max()))
        return f"mean {number(mean)}, from {number(low)} to {number(high)}"
    kinds, counts = labels.unique(dim=0, return_counts=True)
    first = counts.argsort(descending=True, stable=True)[:MOST_LABELS]
    left = len(labels) - int(counts[first].sum())
    more = [f"others{SPACE}({left})"] if len(kinds) > MOST_LABELS else []
    return ", ".join([*(f"{say(kinds[k])}{SPACE}({int(counts[k])})" for k in first), *more])


def _heaviest(found: Look) -> Gallery:
    if found.classes:
        told = (
            "Labels of several kinds lie around them; in brackets, how many of each. A sample that "
            "looks as its label says lies at a boundary. Correct the label of one that does not "
            "before you give it weight."
        )
    else:
        told = (
            "The labels around them differ most. If a value looks wrong next to the inputs, "
            "correct it before you give it weight."
        )
    return Gallery(
        title=f"The {len(found.heaviest)} heaviest",
        caption=told,
        samples=[_sample(heavy) for heavy in found.heaviest],
    )


def _doubtful(found: Look) -> Gallery:
    vague = (
        " So many mean that neighbors say little about labels in these features, not that the "
        "labels are wrong."
        if found.suspects > MANY_SUSPECTS * found.samples
        else ""
    )
    return Gallery(
        title="Suspects",
        caption=(
            f"{_suspicion(found.suspects, found.samples, found.classes)}{vague} These are the ones "
            "whose neighbors agree most with each other. Such a sample may weigh little itself."
        ),
        samples=[_sample(heavy) for heavy in found.doubtful],
    )


def _sample(heavy: Heavy) -> Sample:
    """Under an image the label and what was predicted; otherwise one fact per column."""
    shown = dict(heavy.shown)
    image, prediction = shown.pop("image", ""), shown.pop("prediction", "")
    agree = {} if heavy.agreement is None else {"agree": percent(heavy.agreement)}
    facts = {"no.": str(heavy.index), "weight": number(heavy.weight, 3)}
    flag = "suspect" if heavy.suspect else ""
    if image:
        told = f"{heavy.target} → {prediction}" if prediction else heavy.target
        return Sample(
            image=image,
            caption=told,
            facts={**facts, "labels around it": heavy.around, **agree},
            flag=flag,
        )
    said = {"label": heavy.target} | ({"prediction": prediction} if prediction else {})
    return Sample(
        facts={**facts, **said, "labels around it": heavy.around, **agree, **shown}, flag=flag
    )
