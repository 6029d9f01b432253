"""Figures of a sampling: a curve for one input, a map for two, a matrix of planes for more."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mindgap.report.style import (
    CYCLE,
    GRAY,
    INK,
    MUTED,
    TEST,
    TRAIN,
    Figure,
    axis_title,
    clean,
    figure,
)
from mindgap.sampling.box import Box
from mindgap.sampling.proposal import carried
from mindgap.sampling.taylor_sampler import TaylorSampler

Numbers = list[float | None]
MARKS = {  # color and symbol of the points by why they were chosen
    "given": ("given", GRAY, "diamond"),
    "initial": ("initial design", TRAIN, "circle"),
    "acquisition": ("new", TEST, "circle"),
    "failed": ("failed", INK, "x-thin"),
    "pending": ("pending", MUTED, "circle-open"),
}
HEAT = [[0, "#fbfbfc"], [0.5, "#d8cfe8"], [1, "#7a5ba8"]]  # as the maps of local variance
GRID, CELLS = 401, 61  # places on a line, and on each side of a plane
DIGITS = 5


@dataclasses.dataclass(frozen=True)
class Cloud:
    """Points by kind, and the weights by which known ones attract new ones (at most one)."""

    points: dict[str, Tensor]
    weight: dict[str, Tensor]


def cloud_of(sampler: TaylorSampler, acquisition: Tensor) -> Cloud:
    """Sort the points by what became of them; ``acquisition`` belongs to the known ones."""
    answers, failed = sampler.answers, sampler.failed
    weights = sampler.proposal.weights(acquisition) if len(acquisition) else acquisition
    known = dict(zip(sorted(answers), weights.tolist(), strict=False))
    kinds: dict[str, list[tuple[tuple[float, ...], float]]] = {name: [] for name in MARKS}
    for one in sampler.asked:
        kind = one.why if one.number in answers else "failed" if one.number in failed else "pending"
        kinds[kind if kind in MARKS else "acquisition"].append(
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
) -> Figure:
    """Draw values over one input (left axis) and the acquisition function (right axis)."""
    order = sampler.points[:, 0].argsort()
    x = short(sampler.points[order, 0])
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": clean(name, 30),
            "x": x,
            "y": short(sampler.values[order, k]),
            "line": {"color": (INK, *CYCLE[2:])[k % 5], "width": 1.6},
            "marker": {"size": 4.5},
            "hovertemplate": f"{clean(name, 30)}: %{{y:.4~g}} at %{{x:.4~g}}<extra></extra>",
        }
        for k, name in enumerate(outputs if len(order) else ())
    ]
    for name, (places, heights), dash in densities(sampler, acquisition):
        mark = {"color": "#7a5ba8", "width": 1.8, "dash": dash}
        hover = f"{name}: %{{y:.3~g}}<extra></extra>"
        trace = {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": places,
            "y": heights,
            "line": mark,
        }
        traces.append({**trace, "yaxis": "y2", "hovertemplate": hover})
    traces += [_rug(row, kind, points) for row, (kind, points) in enumerate(cloud.points.items())]
    low, high = (float(end[0]) for end in sampler.domain.bounds)
    edge = 0.02 * (high - low)
    rows = len(cloud.points)
    foot = 0.055 * rows
    labels = [MARKS[kind][0] for kind in cloud.points]
    quiet = {"showgrid": False, "zeroline": False}
    strip = {
        "domain": [0, foot],
        "tickvals": list(range(rows)),
        "ticktext": labels,
        "range": [rows - 0.4, -0.6],
    }
    return figure(
        traces,
        height=470,
        x={
            "title": axis_title(clean(names[0])),
            "range": [low - edge, high + edge],
            "anchor": "y3",
        },
        y={"title": axis_title(clean(", ".join(outputs), 60)), "domain": [foot + 0.05, 1]},
        yaxis2={
            "title": axis_title("share of the largest"),
            "overlaying": "y",
            "side": "right",
            "range": [0, 1.05],
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "tickfont": {"color": "#7a5ba8"},
            "automargin": True,
            **quiet,
        },
        yaxis3={**strip, **quiet, "ticks": "", "automargin": True, "fixedrange": True},
    )


def densities(
    sampler: TaylorSampler, acquisition: Tensor
) -> list[tuple[str, tuple[Numbers, Numbers], str]]:
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
    found = [(name, heights, "dot")]
    if sampler.proposal.kind == "mixture":
        first = ~sampler.found().new  # the points that the first draw was made from
        first = first if bool(first.any()) else torch.ones_like(first)
        mixture = sampler.proposal.mixture(
            sampler.points[first], sampler.proposal.weights(acquisition[first]), sampler.seed
        )
        found.append(("mixture density", mixture.log_density(grid).exp(), "solid"))
    x = short(grid[:, 0])
    return [
        (name, (x, short(row / row.max() if row.max() > 0 else row)), dash)
        for name, row, dash in found
    ]


def heat_map(
    sampler: TaylorSampler, cloud: Cloud, acquisition: Tensor, names: Sequence[str]
) -> Figure:
    """Two inputs: the weight that points are drawn by over the plane, and all points."""
    (left, bottom), (right, top) = (end.tolist() for end in sampler.domain.bounds)
    whole = isinstance(
        sampler.domain, Box
    )  # elsewhere the border shows the cells, so they are finer
    cells = CELLS if whole else 2 * CELLS
    x, y = (
        torch.linspace(low, high, cells, dtype=torch.float64)
        for low, high in ((left, right), (bottom, top))
    )
    traces: list[dict[str, Any]] = []
    if len(acquisition):
        places = torch.cartesian_prod(y, x).flip(1)
        weights = carried(
            sampler.proposal.weights(acquisition), sampler.points, places, sampler.domain
        )
        weights[~sampler.domain.contains(places)] = torch.nan
        rows = [short(row) for row in weights.view(cells, cells)]
        bar = {"thickness": 12, "title": {"text": "weight", "side": "right", "font": {"size": 12}}}
        heat = {
            "type": "heatmap",
            "x": short(x),
            "y": short(y),
            "z": rows,
            "zmin": 0,
            "zmax": 1,
            "colorscale": HEAT,
        }
        heat["zsmooth"] = "best" if whole else False
        hover = "weight %{z:.3~g}<extra></extra>"
        traces.append({**heat, "colorbar": bar, "hoverongaps": False, "hovertemplate": hover})
    traces += [dots(kind, points[:, 0], points[:, 1], 7) for kind, points in cloud.points.items()]
    quiet = {"showgrid": False, "zeroline": False}
    edges = (0.02 * (right - left), 0.02 * (top - bottom))
    across = {
        "title": axis_title(clean(names[0])),
        "range": [left - edges[0], right + edges[0]],
        **quiet,
    }
    upward = {
        "title": axis_title(clean(names[1])),
        "range": [bottom - edges[1], top + edges[1]],
        **quiet,
    }
    return figure(traces, height=520, x=across, y=upward)


def short(values: Tensor) -> Numbers:
    """Return numbers with the digits that a drawing needs; what is not a number is a gap."""
    return [None if value != value else float(f"{value:.{DIGITS}g}") for value in values.tolist()]


def _rug(row: int, kind: str, points: Tensor) -> dict[str, Any]:
    name, color, _ = MARKS[kind]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "showlegend": False,
        "x": short(points[:, 0]),
        "y": [row] * len(points),
        "yaxis": "y3",
        "marker": {"symbol": "line-ns", "size": 13, "line": {"color": color, "width": 1.5}},
        "hovertemplate": f"{name} point at %{{x:.5~g}}<extra></extra>",
    }


def dots(kind: str, x: Tensor, y: Tensor, size: float) -> dict[str, Any]:
    """Points of a kind over two inputs."""
    name, color, symbol = MARKS[kind]
    edge = {"color": color if "thin" in symbol or "open" in symbol else "#ffffff", "width": 1.2}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": short(x),
        "y": short(y),
        "marker": {"color": color, "symbol": symbol, "size": size, "opacity": 0.9, "line": edge},
        "hovertemplate": f"{name}: %{{x:.4~g}}, %{{y:.4~g}}<extra></extra>",
    }
