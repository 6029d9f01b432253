"""What training curves show: where a loss turned, how it swung, whether it still fell."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import torch

from mindgap.core import Line, Mark, Series, Subject, align

Curves = Sequence[Mapping[str, float]]

SAME = 0.05  # share by which the last recorded loss may differ from that of the present weights
RISE = 0.05  # a loss wobbles by a few percent from epoch to epoch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """Where a loss on unseen data was lowest, before it rose while the training loss fell."""

    which: str
    epoch: int
    lowest: float
    last: float


def series(curves: Curves, name: str) -> tuple[list[float], list[float]]:
    """Return epochs and values of one curve, where it was evaluated and finite.

    Args:
        curves: One dict per epoch.
        name: The name of the curve.

    >>> series([{"epoch": 1, "loss": 0.5}, {"epoch": 2}, {"epoch": 3, "loss": 0.25}], "loss")
    ([1, 3], [0.5, 0.25])
    """
    found = [
        (row.get("epoch", float(k + 1)), row[name]) for k, row in enumerate(curves) if name in row
    ]
    kept = [(epoch, value) for epoch, value in found if math.isfinite(value)]
    return [epoch for epoch, _ in kept], [value for _, value in kept]


def turning_point(curves: Curves) -> Turn | None:
    """Find the lowest validation (else test) loss, if it rose while the training loss fell.

    Args:
        curves: One dict per epoch, with ``train_loss`` and ``validation_loss`` or ``test_loss``.

    >>> rows = [{"train_loss": 3.0 - k, "test_loss": (k - 1.0) ** 2 + 1} for k in range(3)]
    >>> turning_point(rows).epoch
    2
    """
    which = "validation" if series(curves, "validation_loss")[1] else "test"
    epochs, values = series(curves, f"{which}_loss")
    train = dict(zip(*series(curves, "train_loss"), strict=True))
    if len(values) < 3:
        return None
    place = min(range(len(values)), key=values.__getitem__)
    fell = train.get(epochs[-1], math.inf) < train.get(epochs[place], -math.inf)
    if not fell or values[-1] <= (1 + RISE) * values[place]:
        return None
    return Turn(which=which, epoch=int(epochs[place]), lowest=values[place], last=values[-1])


def describes(subject: Subject) -> bool:
    """Tell whether the curves end at the present weights, which may have been edited since.

    Args:
        subject: With training curves.

    >>> data = torch.eye(2), torch.tensor([0, 1])
    >>> edited = Subject(
    ...     torch.nn.Linear(2, 2), "cross_entropy", data, history=({"train_loss": 1e-9},)
    ... )
    >>> describes(edited)
    False
    """
    _, losses = series(subject.history, "train_loss")
    now = subject.mean_loss("train")
    return not losses or abs(now - losses[-1]) <= SAME * max(abs(now), abs(losses[-1]))


def training_losses(curves: Curves) -> tuple[list[float], list[float]]:
    """Return epochs and training losses: those in evaluation mode if recorded, else the running.

    Args:
        curves: One dict per epoch.
    """
    names = ("train_loss", "running_loss", "loss")
    return next((found for name in names if (found := series(curves, name))[1]), ([], []))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course:
    """How the training loss moved in the second half of a run.

    Args:
        ups: The share of epochs after which the loss was higher than before.
        swing: The mean change from epoch to epoch, as a share of the mean loss.
        lowest: The lowest loss of the whole run.
        late_lowest: The lowest loss of the second half.
        last: The last loss.
        first: The first loss.
        epochs: How many epochs were recorded.
    """

    ups: float
    swing: float
    lowest: float
    late_lowest: float
    last: float
    first: float
    epochs: int


def course(curves: Curves) -> Course | None:
    """Describe how the training loss moved; None if fewer than two epochs were recorded.

    Args:
        curves: One dict per epoch.

    >>> found = course([{"train_loss": loss} for loss in (4.0, 2.0, 1.0, 1.5, 1.0, 1.5)])
    >>> found.ups, found.swing, found.lowest
    (0.6666666666666666, 0.4, 1.0)
    """
    _, losses = training_losses(curves)
    if len(losses) < 2:
        return None
    late = losses[(len(losses) - 1) // 2 :]
    moves = [after - before for before, after in itertools.pairwise(late)]
    level = sum(late) / len(late)
    return Course(
        ups=sum(move > 0 for move in moves) / len(moves),
        swing=sum(map(abs, moves)) / len(moves) / max(level, 1e-300),
        lowest=min(losses),
        late_lowest=min(late),
        last=losses[-1],
        first=losses[0],
        epochs=len(losses),
    )


def speed(curves: Curves, epochs: float) -> float | None:
    """Return the fall of the logarithm of the training loss within the last so many epochs.

    Args:
        curves: One dict per epoch.
        epochs: How many; a fraction is interpolated, and a longer span than the run extrapolated.

    >>> speed([{"train_loss": math.exp(-k / 10)} for k in range(9)], 2.5)
    0.25
    """
    places, losses = training_losses(curves)
    if len(losses) < 2 or losses[-1] <= 0 or places[-1] <= places[0]:
        return None
    wanted = places[-1] - epochs
    start = max((k for k, place in enumerate(places[:-1]) if place <= wanted), default=0)
    span = places[-1] - places[start]
    return round(math.log(losses[start] / losses[-1]) * epochs / span, 12)


def baseline_loss(subject: Subject) -> float:
    """Return the training loss of the best constant output: the class shares, or the mean target.

    Args:
        subject: Its loss is used for a regression, the entropy of the shares otherwise.

    >>> labels = torch.tensor([0, 1, 0, 1])
    >>> data = torch.eye(4), labels
    >>> round(baseline_loss(Subject(torch.nn.Linear(4, 2), "cross_entropy", data)), 3)
    0.693
    """
    targets = subject.targets("train")
    if subject.task == "classification":
        shares = torch.bincount(targets.cpu()).double() / len(targets)
        return float(torch.special.entr(shares).sum())
    if subject.task == "multilabel":
        share = targets.double().reshape(len(targets), -1).mean(0)
        return float((torch.special.entr(share) + torch.special.entr(1 - share)).mean())
    aligned = align(subject.outputs("train"), targets)
    constant = aligned.mean(0, keepdim=True).expand_as(aligned)
    return float(subject.loss(constant, aligned).double().mean())


def loss_chart(curves: Curves, title: str, marks: Sequence[Mark] = ()) -> Line:
    """Draw the losses over the epochs.

    Args:
        curves: One dict per epoch.
        title: The title.
        marks: Places to point out.
    """
    names = {
        "train_loss": "training",
        "running_loss": "training, running",
        "validation_loss": "validation",
        "test_loss": "test",
    }
    rows = {word: series(curves, name) for name, word in names.items()}
    if rows["training"][1]:
        rows.pop("training, running")
    return Line(
        title=title,
        x_label="epoch",
        y_label="loss",
        y_scale="log" if _positive(rows) else "",
        marks=marks,
        series=[Series(name=word, x=x, y=y, mode="lines") for word, (x, y) in rows.items() if y],
    )


def _positive(rows: Mapping[str, tuple[list[float], list[float]]]) -> bool:
    return all(value > 0 for _, values in rows.values() for value in values)
