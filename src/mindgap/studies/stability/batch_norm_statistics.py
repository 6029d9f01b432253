"""Batch normalization in training and in evaluation: batch size, momentum and batch-mates."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn

from mindgap.core import (
    Claim,
    Line,
    Recipe,
    Record,
    Series,
    Study,
    Subject,
    Table,
    Trial,
    generator,
    mean_interval,
    option,
)
from mindgap.core.purity import preserved
from mindgap.measures.stability.batch_norm_discrepancy import BatchNormDiscrepancy
from mindgap.studies.conditioning.networks import convolutional, images
from mindgap.training.fit import fit

SIZES, RHOS = (2, 8, 32, 128), (0.5, 0.9, 0.99, 0.999)


class BatchNormStatistics(Study):
    r"""Batch normalization with stored against batch statistics, over batch size and momentum.

    Formula: $\hat\mu \leftarrow \rho \hat\mu + (1 - \rho) \mu_B$, so that $\rho = 0.9$ is torch's
    momentum 0.1

    Reading: In training a sample's output depends on the others of its batch: the smaller the batch,
    the more. In evaluation it depends on the stored averages, which are noisy if ρ is small and
    have not arrived after 1/(1 − ρ) steps if it is large. Both are small only for large batches
    and a momentum in between.

    Assumes: A network of three convolutions on the 8×8 digits, trained by Adam for about the same
    number of steps whatever the batch size.

    >>> len(BatchNormStatistics(seeds=1).trials())
    16
    """

    method = ("S3",)
    cites = ("ioffe2015batch",)
    reproduces = ("stability: Batch normalization",)

    seeds: int = option(2, help="trained networks per batch size and momentum", low=1)
    steps: int = option(150, help="steps of training, rounded up to whole epochs", low=1)
    samples: int = option(512, help="training samples", low=4)
    mates: int = option(30, help="batches that a sample is put into", low=2)
    sizes: int = option(4, help="how many batch sizes: 2, 8, 32, …", low=1, high=4)

    def trials(self) -> Sequence[Trial]:
        """One trial per batch size, momentum and seed."""
        return [
            Trial(parameters={"batch_size": size, "rho": rho}, seed=seed)
            for size in SIZES[: self.sizes]
            for rho in RHOS
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train one network, and compare both modes on the training and test data."""
        train, test = images()
        train = (train[0][: self.samples], train[1][: self.samples])
        size = trial["batch_size"]
        recipe = Recipe(
            model=lambda: _network(1 - trial["rho"]),
            train=train,
            test=test,
            batch_size=size,
            epochs=math.ceil(self.steps * size / len(train[0])),
            learning_rate=2e-3,
        )
        subject = fit(recipe, seed=trial.seed, evaluate_every=0).subject()
        whole = BatchNormDiscrepancy()(subject)
        chart = whole.charts[0]
        assert isinstance(chart, Line)
        curve = dict(zip(chart.series[0].x, chart.series[0].y, strict=True))
        nearest = min(curve, key=lambda each: abs(math.log(float(each) / size)))
        return {
            "stored": whole.value,
            "batch": curve[nearest],
            "loss": whole.terms["loss"],
            "loss_with_batch_statistics": whole.terms["loss_with_batch_statistics"],
            "test_error": subject.mean_error("test"),
            **_with_mates(subject, test[0], size, self.mates, trial.seed),
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per batch size and momentum: means over seeds."""
        groups: dict[tuple[int, float], list[Record]] = {}
        for trial, record in records:
            groups.setdefault((trial["batch_size"], trial["rho"]), []).append(record)
        keys = (
            "stored",
            "batch",
            "loss",
            "loss_with_batch_statistics",
            "spread",
            "flips",
            "test_error",
        )
        return Table(
            title="Batch normalization: stored statistics against those of a batch",
            columns=(
                *("batch size", "ρ", "stored statistics off by", "95 % interval"),
                *("batch statistics off by", "loss, stored", "loss, own statistics"),
                *("output's spread over batch-mates", "predictions that change", "test error"),
            ),
            rows=tuple(
                (
                    *(size, rho, _mean(found, "stored"), _interval(found)),
                    *(_mean(found, key) for key in keys[1:]),
                )
                for (size, rho), found in groups.items()
            ),
            notes=(
                "'Stored statistics off by': distance of the outputs with the statistics of all "
                "training samples as one batch from those with stored ones, in standard deviations "
                "of the outputs; next to it the same with batches of the training's size.",
                "'Spread over batch-mates': standard deviation of the outputs of one test sample "
                "over batches of the training's size with it, in standard deviations over "
                "samples; and how often its predicted class is not the most frequent one.",
                "ρ is the share of the old average that a step keeps: 0.9 is torch's default, "
                "momentum=0.1. Training does not depend on it; only the stored averages do.",
            ),
            claims=_claims(records),
            charts=(
                _chart(groups, "stored", "Stored statistics off by"),
                _chart(groups, "spread", "Spread of one sample's outputs over batch-mates"),
            ),
        )

    def tiny(self) -> Self:
        """Use one batch size, few steps and few batches."""
        return self.replace(seeds=1, steps=2, samples=32, mates=3, sizes=1)


def _claims(records: Sequence[tuple[Trial, Record]]) -> tuple[Claim, ...]:
    """Judge by the spread of one sample's outputs over the rest of its batch, run by run."""
    by: dict[tuple[float, int], dict[int, float]] = {}
    for trial, record in records:
        by.setdefault((trial["rho"], trial.seed), {})[trial["batch_size"]] = record["spread"]
    falls = [
        all(one[small] > one[large] for small, large in pairwise(sorted(one)))
        for one in by.values()
        if len(one) > 1
    ]
    some = sum(spread > 0 for one in by.values() for spread in one.values())
    told = [Claim.counted("In training, outputs depend on the whole batch.", some, len(records))]
    if falls:
        told.append(
            Claim.counted("The larger the batch, the less they do.", sum(falls), len(falls))
        )
    return tuple(told)


def _network(momentum: float) -> nn.Module:
    model = convolutional("batch", layers=3, width=12)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = momentum
    return model


def _with_mates(subject: Subject, test: Tensor, size: int, mates: int, seed: int) -> Record:
    """Put test samples into batches with random others, in training mode."""
    random, model, chosen = generator(seed), subject.model, test[:20]
    rows = list[Tensor]()
    with preserved(model), torch.no_grad():
        model.train()
        for _ in range(mates):
            others = test[torch.randint(20, len(test), (len(chosen), size - 1), generator=random)]
            batches = (
                torch.cat([one[None], mate]) for one, mate in zip(chosen, others, strict=True)
            )
            rows.append(torch.cat([model(batch)[:1] for batch in batches]))
    outputs = torch.stack(rows)
    classes = outputs.argmax(2)
    usual = classes.mode(0).values
    return {
        "spread": float(outputs.std(0).mean() / outputs.mean(0).std(0).mean()),
        "flips": float((classes != usual).double().mean()),
    }


def _mean(records: Sequence[Record], key: str) -> float:
    return math.fsum(record[key] for record in records) / len(records)


def _interval(records: Sequence[Record]) -> str:
    values = [record["stored"] for record in records]
    return str(mean_interval(values)) if len(values) > 1 else "—"


def _chart(groups: dict[tuple[int, float], list[Record]], key: str, title: str) -> Line:
    rhos = sorted({rho for _, rho in groups})
    series = [
        Series(
            name=f"ρ = {rho:g}",
            x=[size for size, other in groups if other == rho],
            y=[_mean(found, key) for (_, other), found in groups.items() if other == rho],
        )
        for rho in rhos
    ]
    return Line(
        title=title,
        x_label="batch size",
        y_label="standard deviations of the outputs",
        x_scale="log",
        y_scale="log",
        series=series,
    )
