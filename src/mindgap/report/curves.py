"""What the training curves show."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

RISE = 0.05  # a loss wobbles by a few per cent from epoch to epoch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """Where a loss on unseen data was lowest, before it rose while the train loss fell."""

    which: str
    epoch: int
    lowest: float
    last: float


def series(curves: Sequence[Mapping[str, float]], name: str) -> tuple[list[float], list[float]]:
    """Epochs and values of one curve, without the epochs in which it was not evaluated or not finite."""
    found = [(row.get("epoch", float(k + 1)), row[name]) for k, row in enumerate(curves) if name in row]
    kept = [(epoch, value) for epoch, value in found if math.isfinite(value)]
    return [epoch for epoch, _ in kept], [value for _, value in kept]


def turning_point(curves: Sequence[Mapping[str, float]]) -> Turn | None:
    """The epoch of the lowest validation (else test) loss, if it has clearly risen since and the train loss fell."""
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
