"""Bounds in balls around samples: smaller constants, and larger certified radii."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mindgap.core import Chart, InputError, Mark, Points, Scatter, Subject, Which, generator
from mindgap.ops.attacks.scene import attackable
from mindgap.ops.lipschitz.levels import read_levels
from mindgap.ops.lipschitz.local import local_radius, local_upper
from mindgap.ops.lipschitz.lower import slopes_of
from mindgap.ops.lipschitz.upper import Upper


@dataclasses.dataclass(frozen=True)
class Nearby:
    """What is certain around one sample.

    Args:
        sample: Its place in the split.
        ball: The Euclidean radius of the ball.
        slope: The slope at the sample itself: the constant in the ball is at least this.
        constant: The constant in the ball is at most this.
        fixed: The share of activations that have one slope in the ball.
        wide: The certified radius by the global constant; None if the task is no classification.
        radius: The certified radius by the ball, if that is larger.
    """

    sample: int
    ball: float
    slope: float
    constant: float
    fixed: float
    wide: float | None = None
    radius: float | None = None


def around_samples(
    subject: Subject,
    which: Which,
    places: Tensor,
    certified: Tensor | None,
    upper: Upper,
    count: int,
    ball: float | None,
    seed: int,
    advance: Callable[[], None],
) -> tuple[Nearby, ...]:
    """Bound the constant in balls around some samples.

    Args:
        subject: The model and its data.
        which: The split.
        places: The samples to draw from.
        certified: Their radii by the global constant; None if the task is no classification.
        upper: The global bound.
        count: How many samples to draw, of those that have a radius if no ball is given.
        ball: The radius of all balls; None to search the best for each sample.
        seed: Seed of the draw.
        advance: Called after every sample.
    """
    if upper.method != "tight":
        raise InputError(
            "Local bounds need a network that can be bounded at once, got one that cannot: "
            f"{upper.reason}. Set local to 0."
        )
    if ball is None and certified is None:
        raise InputError(
            "A task without classes needs the radius of the balls, got none. Set ball."
        )
    fit = torch.arange(len(places))
    if ball is None and certified is not None:
        fit = fit[certified > 0]
    drawn = fit[torch.randperm(len(fit), generator=generator(seed))[:count]].sort().values
    inputs = attackable(subject, which, places[drawn])
    levels, found = read_levels(subject.model, inputs[0]) if len(drawn) else None, list[Nearby]()
    steep = slopes_of(subject.model, inputs).tolist() if len(drawn) else []
    targets = subject.targets(which).cpu()
    for k, point, slope in zip(drawn.tolist(), inputs, steep, strict=True):
        assert levels is not None
        sample = int(places[k])
        if certified is None:
            assert ball is not None
            local = local_upper(levels, point, ball)
            one = Nearby(sample, ball, slope, min(local.upper, upper.upper), local.fixed)
        else:
            wide = float(certified[k])
            near = local_radius(levels, point, int(targets[sample]), start=wide, ball=ball)
            constant = min(near.local.upper, upper.upper)
            fixed = near.local.fixed
            one = Nearby(sample, near.ball, slope, constant, fixed, wide, near.radius)
        found.append(one)
        advance()
    return tuple(found)


def nearby_charts(rows: Sequence[Nearby], upper: float) -> tuple[Chart, ...]:
    """Draw the constants over the radius of the balls, and the radii next to those without balls.

    Args:
        rows: What was found.
        upper: The global bound.
    """
    balls = [row.ball for row in rows]
    constants = Scatter(
        title="The constant in balls around samples",
        x_label="Euclidean radius of the ball",
        y_label="constant",
        points=[
            Points(name="certified in the ball", x=balls, y=[row.constant for row in rows]),
            Points(
                name="slope at the sample",
                x=balls,
                y=[row.slope for row in rows],
                symbol="diamond",
            ),
        ],
        marks=[Mark(name="global", y=upper)],
        caption="The constant in each ball lies between its two points. The line is the bound for all inputs.",
    )
    known = [row for row in rows if row.wide and row.radius]
    if not known:
        return (constants,)
    gains = Scatter(
        title="What balls add to certified radii",
        x_label="radius by the global constant",
        y_label="times as large by the ball",
        points=[
            Points(
                name="samples",
                x=[row.wide for row in known],
                y=[row.radius / row.wide for row in known if row.radius and row.wide],
            )
        ],
        marks=[Mark(name="no gain", y=1.0)],
    )
    return constants, gains


def nearby_sentence(rows: Sequence[Nearby]) -> str:
    """Say how large the constants are, and how much larger the radii.

    Args:
        rows: What was found.
    """
    constant = statistics.median_high(row.constant for row in rows)
    words = f"In half of {len(rows)} balls around samples the constant is at most {constant:.4g}"
    gains = [row.radius / row.wide for row in rows if row.radius and row.wide]
    if gains:
        gain = math.floor(100 * statistics.median_low(gains)) / 100
        words += (
            f". Half of their certified radii are at least {gain:g} times as large as without balls"
        )
    return f"{words}."
