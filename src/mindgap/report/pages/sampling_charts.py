"""Charts of a sampling: a curve for one input, a map for two, a matrix of planes for more."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.core import Chart, Heatmap, Line, Points, Scatter, Series, Ticks
from mindgap.core.chart.parts import Symbol
from mindgap.report import wording
from mindgap.sampling.box import Box
from mindgap.sampling.proposal import carried
from mindgap.sampling.taylor_sampler import TaylorSampler

Numbers = list[float | None]
KINDS: dict[str, tuple[str, Symbol]] = {  # name and symbol of the points by why they were chosen
    "given": ("given", "diamond"),
    "initial": ("initial design", "circle"),
    "acquisition": ("new", "square"),
    "failed": ("failed", "cross"),
    "pending": ("pending", "ring"),
}
TITLE = "Where the points are"
MOST_INPUTS = 5
GRID, CELLS = 401, 61  # places on a line, and on each side of a plane
DIGITS = 5


@dataclasses.dataclass(frozen=True)
class Cloud:
    """Points by kind, and the weights by which known ones attract new ones (at most one)."""

    points: dict[str, Tensor]
    weight: dict[str, Tensor]


def sampling_charts(
    sampler: TaylorSampler, acquisition: Tensor, names: Sequence[str], outputs: Sequence[str]
) -> tuple[Chart, ...]:
    """Return the chart that fits the number of inputs; none while nothing was asked.

    Args:
        sampler: The sampler, with its points and values.
        acquisition: The acquisition values of the known points, or none.
        names: What the inputs are called.
        outputs: What the values are called.
    """
    if not sampler.asked:
        return ()
    cloud = cloud_of(sampler, acquisition)
    if sampler.domain.dimension == 1:
        return (curve(sampler, cloud, acquisition, names, outputs),)
    if sampler.domain.dimension == 2:
        return (heat_map(sampler, cloud, acquisition, names),)
    return (matrix(cloud, names),)


def acquisition_of(sampler: TaylorSampler) -> Tensor:
    """Return the acquisition values of the known points; none if they cannot be computed."""
    if not sampler.asked or (sampler.function is None and sampler.acquisition.calls):
        return torch.empty(0, dtype=torch.float64)
    return sampler.acquisition_values().detach()


def cloud_of(sampler: TaylorSampler, acquisition: Tensor) -> Cloud:
    """Sort the points by what became of them; ``acquisition`` belongs to the known ones."""
    answers, failed = sampler.answers, sampler.failed
    weights = sampler.proposal.weights(acquisition) if len(acquisition) else acquisition
    known = dict(zip(sorted(answers), weights.tolist(), strict=False))
    kinds: dict[str, list[tuple[tuple[float, ...], float]]] = {name: [] for name in KINDS}
    for one in sampler.asked:
        kind = one.why if one.number in answers else "failed" if one.number in failed else "pending"
        kinds[kind if kind in KINDS else "acquisition"].append(
            (one.point, known.get(one.number, 0.0))
        )
    rows = {name: found for name, found in kinds.items() if found}
    return Cloud(
        {
            name: torch.tensor([point for point, _ in found], dtype=torch.float64)
            for name, found in rows.items()
        },
        {
            name: torch.tensor([value for _, value in found], dtype=torch.float64)
            for name, found in rows.items()
        },
    )


def curve(
    sampler: TaylorSampler,
    cloud: Cloud,
    acquisition: Tensor,
    names: Sequence[str],
    outputs: Sequence[str],
) -> Line:
    """Show values over one input, the acquisition function, and the points by kind."""
    order = sampler.points[:, 0].argsort()
    x = _places(sampler.points[order, 0])
    mixture = (
        "the mixture fitted to the initial design, from which the first new points come, and "
        if sampler.proposal.kind == "mixture"
        else ""
    )
    return Line(
        title=TITLE,
        caption=f"Left axis: the known values. Right axis: {mixture}the acquisition function as it "
        "is known now, as a share of its largest value. Below: every point, by why it was chosen.",
        x_label=names[0],
        y_label=", ".join(outputs),
        series=[
            Series(name=name, x=x, y=short(sampler.values[order, k]))
            for k, name in enumerate(outputs if len(order) else ())
        ],
        right=densities(sampler, acquisition),
        right_label="share of the largest",
        ticks=[
            Ticks(name=KINDS[kind][0], x=_places(points[:, 0]))
            for kind, points in cloud.points.items()
        ],
    )


def densities(sampler: TaylorSampler, acquisition: Tensor) -> list[Series]:
    """Return the acquisition function over one input, and the mixture if used, scaled to one."""
    if not len(acquisition):
        return []
    low, high = (float(end[0]) for end in sampler.domain.bounds)
    grid = torch.linspace(low, high, GRID, dtype=torch.float64)[:, None]
    if sampler.function is not None and sampler.acquisition.kind == "derivative":
        heights, name = (
            sampler.acquisition.anywhere(sampler.function, grid, sampler.seed).detach(),
            "acquisition (Df)",
        )
    else:
        heights, name = carried(acquisition, sampler.points, grid, sampler.domain), "acquisition"
    found = [(name, heights)]
    if sampler.proposal.kind == "mixture":
        first = ~sampler.found().new  # the points that the first draw was made from
        first = first if bool(first.any()) else torch.ones_like(first)
        mixture = sampler.proposal.mixture(
            sampler.points[first], sampler.proposal.weights(acquisition[first]), sampler.seed
        )
        found.append(("mixture density", mixture.log_density(grid).exp()))
    x = _places(grid[:, 0])
    return [
        Series(name=name, x=x, y=short(row / row.max() if row.max() > 0 else row), mode="lines")
        for name, row in found
    ]


def heat_map(
    sampler: TaylorSampler, cloud: Cloud, acquisition: Tensor, names: Sequence[str]
) -> Heatmap:
    """Show the weight that points are drawn by over the plane of two inputs, and all points."""
    lows, highs = (end.tolist() for end in sampler.domain.bounds)
    # Where the domain is no box, its border shows the cells, so they are finer.
    cells = CELLS if isinstance(sampler.domain, Box) else 2 * CELLS
    x, y = (
        torch.linspace(low, high, cells, dtype=torch.float64)
        for low, high in zip(lows, highs, strict=True)
    )
    rows: list[Numbers] = []
    if len(acquisition):
        places = torch.cartesian_prod(y, x).flip(1)
        weights = carried(
            sampler.proposal.weights(acquisition), sampler.points, places, sampler.domain
        )
        weights[~sampler.domain.contains(places)] = torch.nan
        rows = [short(row) for row in weights.view(cells, cells)]
    return Heatmap(
        title=TITLE,
        caption="Color: how strongly a place attracts new points, as it is known now: acquisition "
        "values, capped and tempered, interpolated between the known points; the largest is one.",
        x_label=names[0],
        y_label=names[1],
        x=x.tolist(),
        y=y.tolist(),
        z=rows,
        z_label="weight",
        points=[
            Points(name=name, symbol=symbol, x=short(points[:, 0]), y=short(points[:, 1]))
            for kind, points in cloud.points.items()
            for name, symbol in [KINDS[kind]]
        ],
    )


def matrix(cloud: Cloud, names: Sequence[str]) -> Scatter:
    """Show every pair of the first five inputs, known points colored by their weight."""
    inputs = min(len(names), MOST_INPUTS)
    left_out = f" The first {inputs} of {len(names)} inputs are shown."
    groups = []
    for kind, points in cloud.points.items():
        (name, symbol), weights = KINDS[kind], cloud.weight[kind]
        x, y, *more = (short(points[:, k]) for k in range(inputs))
        values = short(weights) if bool((weights > 0).any()) else ()
        groups.append(Points(name=name, symbol=symbol, x=x, y=y, more=more, values=values))
    colored = any(row.values for row in groups)
    told = (
        " Color: how strongly a point attracts new ones, as it is known now (acquisition values, "
        "capped and tempered; the largest is one)."
    )
    return Scatter(
        title=TITLE,
        caption=f"Every pair of {wording.count(inputs, 'input')}; new points are squares."
        f"{told if colored else ''}{left_out if inputs < len(names) else ''}",
        x_label=names[0],
        y_label=names[1],
        more_labels=names[2:inputs],
        value_label="weight" if colored else "",
        points=groups,
    )


def _places(values: Tensor) -> list[float]:
    """Return coordinates, all of them known, with the digits that a drawing needs."""
    return [value for value in short(values) if value is not None]


def short(values: Tensor) -> Numbers:
    """Return numbers with the digits that a drawing needs; what is not a number is a gap."""
    return [None if value != value else float(f"{value:.{DIGITS}g}") for value in values.tolist()]
