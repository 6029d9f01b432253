"""Would uniform points have done as well? One model learns from each, and is tested on others."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mindgap.core import Interval, generator, validated
from mindgap.core.chart.numbers import number, percent
from mindgap.core.stats import paired

FOLDS, REPEATS = 5, 5
LEAST_UNIFORM, LEAST_NEW = 10, 4  # points; with fewer an interval says nothing
MOST = 120  # points that the model of an arm learns from: its cost grows with their cube
WIDTHS = (0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 2.0)  # of the kernel, in sides of the domain's box
# Half of the points that could be exchanged are, other ones in every split, so that splits show the
# luck of a set of points. What they still share takes a part of a split's variance that does not
# shrink with their number. It is calibrated: where both kinds of points were uniform, an interval
# left out one in a twentieth of 100 comparisons of four functions (study uniform-question has others).
EXCHANGED, SHARED = 0.5, 0.09
RIDGES = (1e-8, 1e-4, 1e-2)
# Errors are compared by their ratio, which splits with a large error do not rule. This one, a
# thousandth of the values' standard deviation, is as good as none.
SMALLEST = 1e-3
MODEL = "a kernel ridge regression"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """What new points gain over as many uniform ones, for one model and at equal size.

    Errors are root mean squared errors on uniform points, as a share of the standard deviation of
    the values; of all splits the geometric mean.

    Args:
        sampled: Error of the model that learned from new points.
        uniform: Error of the model that learned from uniform points in their place.
        interval: 95 % interval of the first divided by the second.
        size: Number of points that each model learned from.
        exchanged: How many of them are new in one arm and uniform in the other.
        tested: Number of uniform points that the errors are measured on, each left out in turn.
        extra: Evaluations that were spent on the comparison alone; 0 if none were.
        reason: Why nothing can be said; empty if something can.

    >>> found = Comparison(sampled=0.1, uniform=0.2, interval=Interval(low=0.3, high=0.8), extra=20)
    >>> found.word, found.sentences[0]
    ('better', 'Uniform points would have done worse.')
    """

    sampled: float = math.nan
    uniform: float = math.nan
    interval: Interval | None = None
    size: int = 0
    exchanged: int = 0
    tested: int = 0
    extra: int = 0
    reason: str = ""

    @property
    def ratio(self) -> float:
        """The first error divided by the second; errors near zero count as equal."""
        return (self.sampled + SMALLEST) / (self.uniform + SMALLEST)

    @property
    def word(self) -> str:
        """``"better"``, ``"worse"``, ``"unclear"`` or ``"unknown"``.

        Without extra evaluations the test points are those by whose values the new points were
        chosen. That favors the new ones, so a gain proves nothing there.
        """
        if self.interval is None or (self.interval.high < 1 and not self.extra):
            return "unknown"
        if self.interval.high < 1:
            return "better"
        return "worse" if self.interval.low > 1 else "unclear"

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer, what it rests on, and what it does not say."""
        if self.interval is None:
            return (
                f"Whether uniform points would have done as well cannot be said: {self.reason}.",
            )
        ratio, low, high = (
            number(one, 2) for one in (self.ratio, self.interval.low, self.interval.high)
        )
        rests = (
            f"Learned from {self.size} points each, of which {self.exchanged} were exchanged, {MODEL} "
            f"errs by {percent(self.sampled)} of the values' standard deviation with new points and "
            f"by {percent(self.uniform)} with uniform ones, on {self.tested} uniform points, each "
            f"left out in turn (ratio {ratio}{self._added}, 95 % interval {low} to {high})."
        )
        return (ANSWERS[self.word], rests, FRESH if self.extra else STALE)

    @property
    def _added(self) -> str:
        """Tell of what is added to both errors where that moves their ratio."""
        shown = percent(SMALLEST)
        return f", {shown} added to both" if self.sampled + self.uniform < 20 * SMALLEST else ""

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        found = {**dataclasses.asdict(self), "ratio": self.ratio}
        errors = {name: None if math.isnan(found[name]) else found[name] for name in ERRORS}
        return {"word": self.word, **found, **errors, "sentences": list(self.sentences)}


ERRORS = ("sampled", "uniform", "ratio")
ANSWERS = {
    "better": "Uniform points would have done worse.",
    "worse": "Uniform points would have done better.",
    "unclear": "No difference to uniform points is shown.",
    "unknown": "Whether uniform points would have done as well cannot be said from these points.",
}
FRESH = "Another model, such as a network, may profit more or less."
STALE = (
    "The test points are those of the initial design, by whose values the new ones were chosen. "
    "This favors the new ones, so it can show a loss but no gain; --compare N shows both, for N "
    "uniform evaluations more."
)
Table = tuple[Tensor, Tensor]


@validated
def against_uniform(
    initial: Table,
    new: Table,
    fresh: Table | None,
    bounds: Sequence[Tensor],
    seed: int = 0,
) -> Comparison:
    r"""Compare new points with uniform ones in their place, at equal size.

    Formula: $\Delta = \frac{1}{J} \sum_{j=1}^J \ln \frac{e(S_j \cup A_j)}{e(S_j \cup U_j)}$, $|A_j| =
    |U_j|$

    Reading: In split j both models learn from the same points S and are tested on the same uniform
    ones, which none of them has seen. One learns from some of the new points A, the other from as
    many uniform ones U. Below zero, a ratio below one, says that the new points are worth more.
    The model chooses its kernel: a Gaussian of one width learns nothing from points that are dense
    where the values are steep, as rougher kernels do.

    Assumes: With ``fresh`` points, which are independent of all that was chosen. Without them the
    initial design is divided into U, S and test points; see ``Comparison``. The interval is
    that of a resampled t-test, whose correction for shared points is calibrated.

    Args:
        initial: Points and values of the initial design.
        new: Points and values that the acquisition function chose.
        fresh: Uniform points, with their values, that nothing was chosen by; None if there are none.
        bounds: Lowest and highest corner of the domain's box.
        seed: Seed of the splits.

    >>> x = torch.linspace(0, 1, 40, dtype=torch.float64)[:, None]
    >>> found = against_uniform((x[::2], x[::2]), (x[1::2], x[1::2]), None, (x[0], x[-1]))
    >>> found.word, found.tested, found.extra
    ('unclear', 20, 0)
    """
    pool = initial if fresh is None else fresh
    if reason := _missing(pool, new):
        return Comparison(reason=reason, extra=0 if fresh is None else len(fresh[0]))
    first, chosen, uniform_ones = (
        _scaled(table, bounds, pool[1]) for table in (initial, new, pool)
    )
    errors, size, exchanged = list[list[float]](), 0, 0
    divided = _splits(first, chosen, uniform_ones, fresh is not None, generator(seed))
    for shared, ours, theirs, test in divided:
        size, exchanged = len(shared[0]) + len(ours[0]), len(ours[0])
        errors.append(
            [math.log(regression_error(shared, own, test) + SMALLEST) for own in (ours, theirs)]
        )
    sampled, uniform = zip(*errors, strict=True)
    tested = len(pool[0])
    found = paired(sampled, uniform, overlap=SHARED).interval
    return Comparison(
        sampled=_typical(sampled),
        uniform=_typical(uniform),
        interval=Interval(low=math.exp(found.low), high=math.exp(found.high), level=found.level),
        size=size,
        exchanged=exchanged,
        tested=tested,
        extra=0 if fresh is None else tested,
    )


def _typical(logarithms: Sequence[float]) -> float:
    return max(0.0, math.exp(sum(logarithms) / len(logarithms)) - SMALLEST)


def _missing(pool: Table, new: Table) -> str:
    """Say what there is too little of; empty if there is enough."""
    for name, table, least in (("uniform", pool, LEAST_UNIFORM), ("new", new, LEAST_NEW)):
        if len(table[0]) < least:
            return f"it takes {least} {name} points with values, and there are {len(table[0])}"
    return "" if bool(pool[1].var(0).sum() > 0) else "all uniform points have the same value"


def _scaled(table: Table, bounds: Sequence[Tensor], values: Tensor) -> Table:
    """Return points in units of the box, and values in units of their spread among others."""
    low, high = bounds
    varied = values.var(0) > 0
    spread = values[:, varied].std(0) * math.sqrt(int(varied.sum()))
    return (table[0] - low) / (high - low), table[1][:, varied] / spread


def _splits(
    initial: Table, new: Table, pool: Table, fresh: bool, random: torch.Generator
) -> Iterator[tuple[Table, Table, Table, Table]]:
    """Yield what both models learn from, what one each learns from, and the test points."""
    count = len(pool[0])
    for _ in range(REPEATS):
        order = torch.randperm(count, generator=random)
        for fold in range(FOLDS):
            test = order[fold::FOLDS]
            rest = order[~torch.isin(order, test)]
            some = len(rest) if fresh else len(rest) // 2
            size = min(round(EXCHANGED * min(len(new[0]), some)), MOST // 2)
            ours = torch.randperm(len(new[0]), generator=random)[:size]
            theirs = rest[torch.randperm(len(rest), generator=random)]
            shared = (
                _taken(initial, torch.randperm(len(initial[0]), generator=random)[: MOST // 2])
                if fresh
                else _taken(pool, theirs[size:][: MOST // 2])
            )
            yield shared, _taken(new, ours), _taken(pool, theirs[:size]), _taken(pool, test)


def _taken(table: Table, places: Tensor) -> Table:
    return table[0][places], table[1][places]


def regression_error(shared: Table, own: Table, test: Table) -> float:
    """Learn from both tables, and return the root of the mean squared error on the test points.

    Answers stay within the values that were learned, since one wild guess would drown all others.

    Args:
        shared: Points and values to learn from.
        own: More of them.
        test: Points and values to answer for.
    """
    points, values = (torch.cat(parts) for parts in zip(shared, own, strict=True))
    answers = _learned(points, values, test[0]).clamp(values.amin(0), values.amax(0))
    return float((answers - test[1]).square().sum(1).mean().sqrt())


def _learned(points: Tensor, values: Tensor, places: Tensor) -> Tensor:
    """Fit a kernel ridge regression, its kernel and ridge by leave-one-out, and predict."""
    middle, sides = values.mean(0), points.shape[1] ** 0.5
    widths = torch.tensor(WIDTHS, dtype=points.dtype) * sides
    ridges = torch.tensor(RIDGES, dtype=points.dtype)
    kernels = _kernels(points, points, widths)[:, None]
    inverse = torch.linalg.inv(kernels + ridges[:, None, None] * torch.eye(len(points)))
    weights = inverse @ (values - middle)
    left_out = weights / inverse.diagonal(dim1=-2, dim2=-1)[..., None]
    best = int(left_out.square().sum((-1, -2)).nan_to_num(math.inf).argmin())
    kernel, ridge = divmod(best, len(RIDGES))
    found: Tensor = _kernels(places, points, widths)[kernel] @ weights[kernel, ridge] + middle
    return found


def _kernels(first: Tensor, second: Tensor, widths: Tensor) -> Tensor:
    """Return the Gaussian kernel and those of Matérn for 3/2 and 1/2, each of all widths."""
    apart = torch.cdist(first, second) / widths[:, None, None]
    rough = math.sqrt(3) * apart
    kinds = (-0.5 * apart.square()).exp(), (1 + rough) * (-rough).exp(), (-apart).exp()
    return torch.cat(kinds)
