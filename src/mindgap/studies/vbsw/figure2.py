"""Figure 2 of Novello et al. 2020: are images with large weights hard or mislabeled?"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from torch import Tensor, nn

from mindgap.core import (
    Claim,
    Gallery,
    Recipe,
    Record,
    Sample,
    Study,
    Subject,
    Table,
    Trial,
    holm,
    option,
    paired,
)
from mindgap.data import DataSet, cifar10, label_noise, mnist, stratified_split
from mindgap.nets import LeNet5, ResNet20
from mindgap.ops.images import as_images
from mindgap.ops.models.head import head_features
from mindgap.ops.variance.local import local_variance
from mindgap.training.fit import fit

LOADERS = {"mnist": mnist, "cifar10": cifar10}
NETS: Mapping[str, Callable[[], nn.Module]] = {
    "mnist": LeNet5,
    "cifar10": functools.partial(ResNet20, width=8),
}
POOL = {"mnist": 60_000, "cifar10": 50_000}  # images that the splits are drawn from
NEIGHBORS = 20
SHOWN = 24
NOISE = 0.02  # share of labels made wrong, and share of samples with the largest weights
QUESTIONS = {
    "hard": "mistaken by another network",
    "own": "wrong labels, own features",
    "other": "wrong labels, other features",
}
WAYS = {"heaviest": "largest variance", "least agreement": "least agreement"}


class VbswFigure2(Study):
    r"""Figure 2 of Novello et al. 2020: images of MNIST and CIFAR-10 with the largest weights.

    Formula: $w_i = 1 + (m - 1) \frac{v_i}{\max_j v_j}, \qquad v_i = \frac{1}{k-1} \sum_{j \in
    S_k(i)} \lVert y_j - \bar y_i \rVert^2$

    Reading: The paper shows such images and finds them "either unusual or difficult to classify,
    even for a human". Two numbers test this. First: how often does another network, trained on
    other samples, misclassify the 2 % with the largest weights, compared with all samples? Second:
    if 2 % of the labels are made wrong, which share of the 2 % with the largest weights is
    mislabeled? Chance is 2 %. The table makes the same selection by how many neighbors agree with a
    sample's label, the criterion of ``noise="cap"``. A single wrong label inside a class barely
    changes the local variance, although no neighbor agrees with it.

    Assumes: A LeNet-5 on 5,000 images of MNIST and a ResNet-20 of half the width on 3,000 images of
    CIFAR-10, trained with Adam for a few epochs. They are far from the state of the art, so more
    images are hard for them than for a full network. k = 20.

    >>> len(VbswFigure2().trials())
    8
    """

    method = ("V9", "V10")
    cites = ("novello2020variance", "nadeau2003inference")
    reproduces = ("vbsw: Figure 2",)

    splits: int = option(4, help="splits of each data set into two disjoint parts", low=2)
    mnist_samples: int = option(
        5000, help="training images per network on MNIST", low=100, high=30_000
    )
    cifar_samples: int = option(
        3000, help="training images per network on CIFAR-10", low=100, high=25_000
    )
    mnist_epochs: int = option(6, help="epochs on MNIST", low=1)
    cifar_epochs: int = option(5, help="epochs on CIFAR-10", low=1)

    def trials(self) -> Sequence[Trial]:
        """One trial per data set and split."""
        return [
            Trial(parameters={"data": name}, seed=split)
            for name in LOADERS
            for split in range(self.splits)
        ]

    def run(self, trial: Trial) -> Record:
        """Train on one part, on the other part, and on the first part with wrong labels."""
        small = trial["data"] == "mnist"
        size = self.mnist_samples if small else self.cifar_samples
        data = LOADERS[trial["data"]](size=2 * size, test_size=100, seed=trial.seed)
        first, second = (
            data.select(part) for part in stratified_split(data.targets, (size, size), trial.seed)
        )
        labels, wrong = label_noise(first.targets, NOISE, classes=10, seed=trial.seed)
        train = functools.partial(
            self._trained, trial, self.mnist_epochs if small else self.cifar_epochs
        )
        own, other, noisy = (
            train(first, first.targets),
            train(second, second.targets),
            train(first, labels),
        )
        weights = local_variance(head_features(own), first.targets, k=NEIGHBORS).variance
        stranger = Subject(other.model, "cross_entropy", (first.inputs, first.targets))
        hard = stranger.errors().double()
        heavy = heaviest(weights, round(NOISE * size))
        record: dict[str, Any] = {
            "hard": {"heaviest": float(hard[heavy].mean()), "all": float(hard.mean())},
            "own": _found(head_features(noisy), labels, wrong),
            "other": _found(head_features(stranger), labels, wrong),
            "train_error": own.mean_error(),
        }
        if trial.seed == 0:
            record["pictures"] = _images(first, weights, stranger.predictions())
        return record

    def _trained(self, trial: Trial, epochs: int, data: DataSet, labels: Tensor) -> Subject:
        recipe = Recipe(
            model=NETS[trial["data"]], train=(data.inputs, labels), epochs=epochs, batch_size=64
        )
        return fit(recipe, seed=trial.seed, evaluate_every=0).subject()

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per data set, question and selection, compared with all samples; and images."""
        rows: list[tuple[Any, ...]] = []
        for name, size in (("mnist", self.mnist_samples), ("cifar10", self.cifar_samples)):
            found = [record for trial, record in records if trial["data"] == name]
            rows += _rows(name, found, size / (POOL[name] - size))
        imaged = [(trial, record["pictures"]) for trial, record in records if "pictures" in record]
        return Table(
            title="VBSW, Figure 2: are the samples with the largest weights hard or mislabeled?",
            columns=(
                *("data", "share, %", "2 % with", "all samples", "these"),
                *("difference", "low", "high", "p (Holm)"),
            ),
            rows=tuple(rows),
            notes=_notes(records),
            claims=tuple(
                Claim.shown(
                    f"The samples of {row[0]} with the largest weights are hard to classify.",
                    row[5] > 0 and row[8] < 0.05,
                )
                for row in rows
                if row[1] == QUESTIONS["hard"]
            ),
            charts=tuple(_gallery(trial["data"], images) for trial, images in imaged),
        )

    def tiny(self) -> Self:
        """Use two splits of a few images and one epoch."""
        return self.replace(
            splits=2, mnist_samples=200, cifar_samples=100, mnist_epochs=1, cifar_epochs=1
        )


def heaviest(scores: Tensor, count: int) -> Tensor:
    """Return the indices of the largest scores; ties keep their order.

    Args:
        scores: One score per sample.
        count: Number of indices.

    >>> import torch
    >>> heaviest(torch.tensor([1.0, 3.0, 3.0, 2.0]), 2).tolist()
    [1, 2]
    """
    return scores.argsort(descending=True, stable=True)[:count]


def _found(features: Tensor, labels: Tensor, wrong: Tensor) -> dict[str, float]:
    """Return the share of wrong labels among samples selected by variance or disagreement."""
    found = local_variance(features, labels, k=NEIGHBORS, agreement=True)
    assert found.agreement is not None
    count = int(wrong.sum())
    scores = {"heaviest": found.variance, "least agreement": -found.agreement}
    shares = {
        name: float(wrong[heaviest(score, count)].double().mean()) for name, score in scores.items()
    }
    return {**shares, "all": float(wrong.double().mean())}


def _rows(name: str, records: Sequence[Record], overlap: float) -> list[tuple[Any, ...]]:
    if len(records) < 2:
        return []
    cases = [
        (question, way) for question in QUESTIONS for way in WAYS if way in records[0][question]
    ]
    percent = {
        (q, way): [100 * record[q][way] for record in records]
        for q, _ in cases
        for way in records[0][q]
    }
    tests = [
        paired(percent[question, way], percent[question, "all"], overlap=overlap)
        for question, way in cases
    ]
    rows: list[tuple[Any, ...]] = []
    for (question, way), test, p in zip(
        cases, tests, holm([test.p_value for test in tests]), strict=True
    ):
        means = [
            sum(found) / len(found) for found in (percent[question, "all"], percent[question, way])
        ]
        ends = (test.difference, test.interval.low, test.interval.high)
        rows.append((name, QUESTIONS[question], WAYS[way], *means, *ends, p))
    return rows


def _notes(records: Sequence[tuple[Trial, Record]]) -> tuple[str, ...]:
    errors = {
        name: [100 * record["train_error"] for trial, record in records if trial["data"] == name]
        for name in LOADERS
    }
    known = [f"{name} {sum(found) / len(found):.1f} %" for name, found in errors.items() if found]
    return (
        f"Mean training error of the networks: {', '.join(known)}.",
        "By chance the share of wrong labels equals that among all samples. Own features come from "
        "the network that was trained on these labels; other features come from a network that has "
        "seen none of the samples.",
        "Differences are paired over splits, with 95 % intervals of the corrected resampled t-test, "
        "because splits share images. The p-values are corrected by Holm within a data set.",
        "The images come from the first split, largest variance first. Captions give the label and "
        "the prediction of a network that has not seen the image.",
    )


def _images(data: DataSet, weights: Tensor, predictions: Tensor) -> list[dict[str, Any]]:
    chosen = heaviest(weights, SHOWN)
    names = data.classes or tuple(map(str, range(10)))
    addresses = as_images(data.inputs[chosen])
    return [
        {
            "address": address,
            "caption": f"{names[int(data.targets[k])]} → {names[int(predictions[k])]}",
        }
        for address, k in zip(addresses, chosen.tolist(), strict=True)
    ]


def _gallery(name: str, images: Sequence[Mapping[str, Any]]) -> Gallery:
    title = f"{name}: the {len(images)} images with the largest weights (label → prediction)"
    samples = [Sample(image=row["address"], caption=row["caption"]) for row in images]
    return Gallery(title=title, samples=samples)
