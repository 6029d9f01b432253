"""What lies behind the means: margins or losses of all samples, and errors by class."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.core.subject import Subject, Which
from mindgap.report.parts import Classes, Spread
from mindgap.report.samples import class_name

BINS = 30
MOST_IN_CONFUSION = 20  # beyond it the squares are too small to read
TAIL = 0.995  # a handful of extreme losses would press all others into one bin


def spread_of(subject: Subject) -> Spread:
    """Margins of a classification, losses otherwise; the outermost bins hold what lies beyond."""
    quantity = "margin" if subject.task == "classification" else "loss"
    train = _values(subject, quantity, "train")
    test = None if subject.test is None else _values(subject, quantity, "test")
    everything = train if test is None else torch.cat([train, test])
    edges = _edges(everything, clip_low=quantity == "margin")
    return Spread(
        quantity=quantity,
        edges=tuple(edges.tolist()),
        train=_counts(train, edges),
        test=() if test is None else _counts(test, edges),
    )


def _values(subject: Subject, quantity: str, which: Which) -> Tensor:
    values = subject.margins(which) if quantity == "margin" else subject.losses(which)
    return values.detach().double().cpu()


def _edges(values: Tensor, clip_low: bool) -> Tensor:
    ordered = values.sort().values
    last = len(ordered) - 1
    low = float(ordered[int((1 - TAIL) * last)]) if clip_low else float(ordered[0])
    high = float(ordered[int(TAIL * last)])
    if high <= low:
        low, high = low - 0.5, low + 0.5
    return torch.linspace(low, high, BINS + 1, dtype=torch.float64)


def _counts(values: Tensor, edges: Tensor) -> tuple[int, ...]:
    inside = values.clamp(float(edges[0]), float(edges[-1]))
    places = torch.bucketize(inside, edges[1:-1].contiguous(), right=True)
    return tuple(torch.bincount(places, minlength=BINS).tolist())


def classes_of(subject: Subject) -> Classes | None:
    """Errors by true class, of the test data if there are any; none unless the task is a classification."""
    if subject.task != "classification":
        return None
    which: Which = "train" if subject.test is None else "test"
    number, targets = subject.outputs(which).shape[1], subject.targets(which).cpu()
    predictions = subject.predictions(which).cpu()
    return Classes(
        which=which,
        names=tuple(class_name(subject.classes, k) for k in range(number)),
        wrong=tuple(torch.bincount(targets[targets != predictions], minlength=number).tolist()),
        total=tuple(torch.bincount(targets, minlength=number).tolist()),
        confusion=_confusion(targets, predictions, number) if number <= MOST_IN_CONFUSION else (),
    )


def _confusion(targets: Tensor, predictions: Tensor, number: int) -> tuple[tuple[int, ...], ...]:
    counts = torch.bincount(targets * number + predictions, minlength=number * number)
    return tuple(tuple(row) for row in counts.view(number, number).tolist())
