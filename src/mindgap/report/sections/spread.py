"""What lies behind the means: margins or losses of all samples, and errors by class.

The figures of what lies behind the means: classes, confusions, margins and losses.
"""

import math
from typing import Any

import torch
from torch import Tensor

from mindgap.core import Subject, Which, proportion_interval
from mindgap.report.parts import Classes, Spread
from mindgap.report.sections.samples import class_name
from mindgap.report.style import (
    BARE,
    TEST,
    TRAIN,
    Figure,
    axis_title,
    clean,
    figure,
    line,
    named,
    whiskers,
)

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


MOST_CLASSES = 25  # bars whose names can still be read
LONGEST_CLASS = 14  # characters under a bar


def class_errors(classes: Classes) -> Figure:
    """The error of every class with its exact interval; the worst ones where there are many."""
    shown = _shown(classes)
    rates = [classes.wrong[k] / classes.total[k] for k in shown]
    ends = [proportion_interval(classes.wrong[k], classes.total[k]) for k in shown]
    pairs = list(zip(rates, ends, strict=True))
    trace = {
        "type": "bar",
        "x": list(range(len(shown))),
        "y": rates,
        "text": [
            f"{clean(classes.names[k])}: {classes.wrong[k]} of {classes.total[k]} wrong"
            for k in shown
        ],
        "textposition": "none",
        "marker": {"color": TEST if classes.which == "test" else TRAIN},
        "error_y": whiskers(
            [end.high - rate for rate, end in pairs], [rate - end.low for rate, end in pairs]
        ),
        "hovertemplate": "%{text}<extra></extra>",
    }
    x = {
        **named([classes.names[k] for k in shown], LONGEST_CLASS),
        "title": axis_title("true class"),
    }
    y = {
        "title": axis_title("error rate (bars: 95 % interval)"),
        "tickformat": ".0%",
        "rangemode": "tozero",
    }
    return figure([trace], height=320, x=x, y=y, showlegend=False, margin=BARE)


def _shown(classes: Classes) -> list[int]:
    present = [k for k, total in enumerate(classes.total) if total]
    if len(present) <= MOST_CLASSES:
        return present
    return sorted(present, key=lambda k: -classes.wrong[k] / classes.total[k])[:MOST_CLASSES]


def confusion(classes: Classes) -> Figure | None:
    """True against predicted class; the right answers are left out, for they would drown the mistakes."""
    if not classes.confusion:
        return None
    places = list(range(len(classes.names)))
    counts = [
        [None if i == j else count for j, count in enumerate(row)]
        for i, row in enumerate(classes.confusion)
    ]
    names = [clean(name) for name in classes.names]
    trace = {
        "type": "heatmap",
        "z": [[count or None for count in row] for row in counts],
        "x": places,
        "y": places,
        "zmin": 0,
        "zmax": max([count or 0 for row in counts for count in row] + [1]),
        "colorscale": [[0, "#fdeee3"], [1, TEST]],
        "xgap": 2,
        "ygap": 2,
        "showscale": False,
        "texttemplate": "%{z}" if len(places) <= 12 else "",
        "customdata": [[f"{true} taken for {predicted}" for predicted in names] for true in names],
        "hovertemplate": "%{customdata}: %{z}<extra></extra>",
    }
    tick: dict[str, Any] = {
        **named(classes.names, LONGEST_CLASS),
        "range": [-0.5, len(places) - 0.5],
    }
    y = {**tick, "title": axis_title("true class"), "range": [len(places) - 0.5, -0.5]}
    return figure(
        [trace], height=320, x={**tick, "title": axis_title("predicted class")}, y=y, margin=BARE
    )


def spread_lines(spread: Spread) -> Figure:
    """Share of train and test samples in every bin, with the standard error of the share."""
    middles = [
        (low + high) / 2 for low, high in zip(spread.edges[:-1], spread.edges[1:], strict=True)
    ]
    traces = []
    for name, counts, color in (("train", spread.train, TRAIN), ("test", spread.test, TEST)):
        total = sum(counts)
        if total:
            shares = [count / total for count in counts]
            errors = [math.sqrt(share * (1 - share) / total) for share in shares]
            trace = line(name, middles, shares, color)
            trace["line"]["shape"] = "hvh"
            trace["error_y"] = {
                "type": "data",
                "array": errors,
                "color": color,
                "thickness": 1,
                "width": 0,
            }
            traces.append(
                trace | {"hovertemplate": f"{name}: %{{y:.1%}} near %{{x:.3~g}}<extra></extra>"}
            )
    label = "margin (difference of logits)" if spread.quantity == "margin" else "loss of a sample"
    y = {
        "title": axis_title("share of samples (± 1 s.e.)"),
        "tickformat": ".0%",
        "rangemode": "tozero",
    }
    return figure(
        traces,
        height=300,
        x={"title": axis_title(label), "zeroline": True, "zerolinewidth": 2},
        y=y,
    )
