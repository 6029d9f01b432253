"""The page of `mindgap sample`: the points, why they were chosen, what failed, the settings.

The figure of a sampling of three inputs or more: a matrix of planes.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mindgap._version import __version__
from mindgap.core import write_whole
from mindgap.report import html, wording
from mindgap.report.pages.sampling_figures import (
    MARKS,
    Cloud,
    cloud_of,
    curve,
    dots,
    heat_map,
    short,
)
from mindgap.report.style import GRAY, LINE, Drawn, Figure, axis_title, clean, figure
from mindgap.sampling.taylor_sampler import TaylorSampler

MOST_INPUTS = 5
SPACE = 0.02  # between two planes, as a share of the whole
SYMBOLS = {"initial": "circle", "acquisition": "square", "given": "diamond"}
BAR = {
    "thickness": 12,
    "len": 0.6,
    "y": 0.7,
    "title": {"text": "weight", "side": "right", "font": {"size": 12}},
}


def matrix(sampler: TaylorSampler, cloud: Cloud, names: Sequence[str]) -> Figure:
    """Draw every pair of the first five inputs, points colored by weight, new ones as squares."""
    inputs = min(sampler.domain.dimension, MOST_INPUTS)
    pairs = [(row, column) for row in range(1, inputs) for column in range(row)]
    traces: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    for panel, (row, column) in enumerate(pairs):
        mark = str(panel + 1) if panel else ""
        axes |= _axes(sampler, names, inputs, row, column, mark)
        for kind, points in cloud.points.items():
            first = {"showlegend": not panel}
            drawn = _colored(
                kind, points[:, column], points[:, row], cloud.weight[kind], scale=not traces
            )
            traces.append({**drawn, **first, "xaxis": f"x{mark}", "yaxis": f"y{mark}"})
    made = figure(
        traces, height=150 + 150 * (inputs - 1), x={}, y={}, legend={"orientation": "h", "y": 1.04}
    )
    made["layout"] |= axes
    return made


def _axes(
    sampler: TaylorSampler, names: Sequence[str], inputs: int, row: int, column: int, mark: str
) -> dict[str, Any]:
    """Return both axes of a plane; only those at the left and at the bottom are labeled."""
    axis = {
        "gridcolor": LINE,
        "linecolor": GRAY,
        "zeroline": False,
        "ticks": "",
        "nticks": 4,
        "automargin": True,
    }
    size = 1 / (inputs - 1)
    left, top = column * size, 1 - (row - 1) * size
    ends = [_ends(sampler, place) for place in (column, row)]
    across = {**axis, "domain": [left, left + size - SPACE], "anchor": f"y{mark}", "range": ends[0]}
    upward = {**axis, "domain": [top - size + SPACE, top], "anchor": f"x{mark}", "range": ends[1]}
    return {
        f"xaxis{mark}": across | _titled(names[column], shown=row == inputs - 1),
        f"yaxis{mark}": upward | _titled(names[row], shown=column == 0),
    }


def _ends(sampler: TaylorSampler, place: int) -> list[float]:
    low, high = (float(end[place]) for end in sampler.domain.bounds)
    return [low - 0.04 * (high - low), high + 0.04 * (high - low)]


def _titled(name: str, *, shown: bool) -> dict[str, Any]:
    return {"showticklabels": shown} | ({"title": axis_title(clean(name, 24))} if shown else {})


def _colored(kind: str, x: Tensor, y: Tensor, weight: Tensor, *, scale: bool) -> dict[str, Any]:
    drawn = dots(kind, x, y, 5.5)
    if kind in SYMBOLS and bool((weight > 0).any()):
        shade = {
            "color": short(weight),
            "colorscale": "Viridis",
            "cmin": 0,
            "cmax": 1,
            "symbol": SYMBOLS[kind],
        }
        drawn["marker"] |= shade | ({"showscale": True, "colorbar": BAR} if scale else {})
    return drawn


ACQUISITION = {
    "derivative": "the Taylor metric Df of order {order} by automatic differentiation, noise of variance {epsilon}",
    "differences": "the Taylor metric Df of order {order} by central differences, noise of variance {epsilon}",
    "sampled": "the variance of the function under noise of variance {epsilon}, from {draws} calls per point",
    "neighbors": "the variance of the known values among the {neighbors} nearest points, the point itself included",
}
PROPOSAL = {
    "pool": "uniform candidates, drawn by the acquisition values of the known points around them",
    "exact": "uniform candidates, drawn by their own acquisition values",
    "mixture": "a Gaussian mixture of {components} components, fitted to the known points by their acquisition values",
}
DESIGN = {
    "sobol": "a Sobol sequence",
    "grid": "a grid",
    "uniform": "uniform",
    "latin-hypercube": "a Latin hypercube",
}


def sampling_page(
    sampler: TaylorSampler,
    path: str | os.PathLike[str],
    *,
    names: Sequence[str] = (),
    outputs: Sequence[str] = (),
    source: str = "",
) -> Path:
    """Write a page about all points of a sampler to one HTML file that needs nothing else."""
    return write_whole(path, sampling_html(sampler, names=names, outputs=outputs, source=source))


def sampling_html(
    sampler: TaylorSampler,
    *,
    names: Sequence[str] = (),
    outputs: Sequence[str] = (),
    source: str = "",
) -> str:
    """Return the page as text.

    Args:
        sampler: The sampler, with its points and values.
        names: What the inputs are called.
        outputs: What the values are called.
        source: What was sampled.
    """
    names = list(names) or [f"x{k}" for k in range(sampler.domain.dimension)]
    outputs = list(outputs) or [f"y{k}" for k in range(sampler.width or 1)]
    return html.render(
        "sampling.html",
        source=source or "Taylor based sampling",
        known=len(sampler.answers),
        failed=len(sampler.failed),
        inputs=sampler.domain.dimension,
        charts=_charts(sampler, names, outputs),
        counts=counts(sampler),
        reasons=Counter(sampler.failed.values()).most_common(12),
        settings=settings_in_words(sampler, names),
        version=__version__,
    )


def counts(sampler: TaylorSampler) -> list[tuple[str, int, int, int, int]]:
    """Count the points of every kind: all, those with a value, failed, and pending."""
    answers, failed = sampler.answers, sampler.failed
    rows = []
    for why, (name, _, _) in MARKS.items():
        mine = [one.number for one in sampler.asked if one.why == why]
        known, lost = sum(key in answers for key in mine), sum(key in failed for key in mine)
        if mine:
            rows.append((name, len(mine), known, lost, len(mine) - known - lost))
    return rows


def _charts(sampler: TaylorSampler, names: Sequence[str], outputs: Sequence[str]) -> list[Drawn]:
    """Return the image that fits the number of inputs; none while nothing was asked."""
    if not sampler.asked:
        return []
    acquisition = _acquisition(sampler)
    cloud = cloud_of(sampler, acquisition)
    inputs = sampler.domain.dimension
    new = sum(one.why == "acquisition" for one in sampler.asked)
    gathered = f"{wording.count(len(sampler.asked), 'point')}, {new} new."
    drawn = {1: _curve, 2: _map}.get(inputs, _matrix)
    return [drawn(sampler, cloud, acquisition, names, outputs, gathered)]


def _acquisition(sampler: TaylorSampler) -> Tensor:
    """Return the acquisition values of the known points, if they can be computed."""
    if sampler.function is None and sampler.acquisition.calls:
        return torch.empty(0, dtype=torch.float64)
    return sampler.acquisition_values().detach()


def _curve(
    sampler: TaylorSampler,
    cloud: Cloud,
    acquisition: Tensor,
    names: Sequence[str],
    outputs: Sequence[str],
    gathered: str,
) -> Drawn:
    drawn = (
        "the solid line is the mixture fitted to the initial design, from which the first new "
        "points come; "
        if "mixture" in sampler.proposal.kind
        else ""
    )
    return Drawn(
        key="points",
        title="Where the points are",
        caption=f"Black: the known values. Violet: {drawn}the dotted line is the acquisition "
        "function as it is known now, as a share of its largest value. Below: every point, by why "
        "it was chosen.",
        alt=f"The known values over {names[0]}, the acquisition function, and the points on the axis: {gathered}",
        figure=curve(sampler, cloud, acquisition, names, outputs),
        wide=True,
    )


def _map(
    sampler: TaylorSampler,
    cloud: Cloud,
    acquisition: Tensor,
    names: Sequence[str],
    _: Sequence[str],
    gathered: str,
) -> Drawn:
    return Drawn(
        key="points",
        title="Where the points are",
        caption="Color: how strongly a place attracts new points, as it is known now: acquisition "
        "values, capped and tempered, interpolated between the known points; the largest is one.",
        alt=f"Map of {names[0]} and {names[1]} with acquisition values as color and the points on top: {gathered}",
        figure=heat_map(sampler, cloud, acquisition, names),
        wide=True,
    )


def _matrix(
    sampler: TaylorSampler,
    cloud: Cloud,
    _: Tensor,
    names: Sequence[str],
    __: Sequence[str],
    gathered: str,
) -> Drawn:
    shown = (
        f" The first {MOST_INPUTS} of {len(names)} inputs are shown."
        if len(names) > MOST_INPUTS
        else ""
    )
    return Drawn(
        key="points",
        title="Where the points are",
        caption="Every pair of inputs; new points are squares. Color: how strongly a point attracts new ones, as it "
        f"is known now (acquisition values, capped and tempered; the largest is one).{shown}",
        alt=f"Scatter plots of every pair of inputs, colored by acquisition value: {gathered}",
        figure=matrix(sampler, cloud, names),
        wide=True,
    )


def settings_in_words(sampler: TaylorSampler, names: Sequence[str]) -> dict[str, str]:
    """Return every setting as a reader would say it."""
    low, high = (end.tolist() for end in sampler.domain.bounds)
    ends = [
        f"{name} from {wording.number(a)} to {wording.number(b)}"
        for name, a, b in zip(names, low, high, strict=True)
    ]
    shape = type(sampler.domain).__name__.lower()
    acquisition, proposal = sampler.acquisition, sampler.proposal
    neighbors = acquisition.neighbors or 2 * sampler.domain.dimension + 1
    fields = {
        "order": acquisition.order,
        "epsilon": wording.number(acquisition.epsilon),
        "draws": acquisition.draws,
    }
    capped = (
        "" if proposal.cap == 1 else f", capped at its {wording.percent(proposal.cap)} quantile"
    )
    tempered = "as it stands" if proposal.temper == 1 else f"to the power {proposal.temper:g}"
    uniform = (
        f"; {wording.percent(proposal.uniform_share)} of the points are uniform"
        if proposal.uniform_share
        else ""
    )
    return {
        "Domain": ("" if shape == "box" else f"{shape}: ")
        + ", ".join(ends[:8])
        + (" …" if len(ends) > 8 else ""),
        "Initial design": f"{wording.count(sampler.initial, 'point')}, {DESIGN[sampler.initial_design]}"
        if sampler.initial
        else "none",
        "Acquisition function": ACQUISITION[acquisition.kind].format(**fields, neighbors=neighbors),
        "Drawn from": PROPOSAL[proposal.kind].format(components=proposal.components or "up to six"),
        "Acquisition values count": f"{tempered}{capped}{uniform}",
        "Seed": str(sampler.seed),
        **({"Session": str(sampler.session)} if sampler.session else {}),
    }
