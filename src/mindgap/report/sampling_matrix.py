"""The figure of a sampling of three inputs or more: a matrix of planes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mindgap.report.sampling_figures import Cloud, dots, short
from mindgap.report.style import GREY, LINE, Figure, axis_title, clean, figure
from mindgap.sampling.taylor_sampler import TaylorSampler

MOST_INPUTS = 5
SPACE = 0.02  # between two planes, as a share of the whole
SYMBOLS = {"start": "circle", "interest": "square", "given": "diamond"}
BAR = {"thickness": 12, "len": 0.6, "y": 0.7, "title": {"text": "weight", "side": "right", "font": {"size": 12}}}


def matrix(sampler: TaylorSampler, cloud: Cloud, names: Sequence[str]) -> Figure:
    """More inputs: every pair of the first five, points coloured by their weight, new ones as squares."""
    inputs = min(sampler.domain.dimension, MOST_INPUTS)
    pairs = [(row, column) for row in range(1, inputs) for column in range(row)]
    traces: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    for panel, (row, column) in enumerate(pairs):
        mark = str(panel + 1) if panel else ""
        axes |= _axes(sampler, names, inputs, row, column, mark)
        for kind, points in cloud.points.items():
            first = {"showlegend": not panel}
            drawn = _coloured(kind, points[:, column], points[:, row], cloud.weight[kind], scale=not traces)
            traces.append({**drawn, **first, "xaxis": f"x{mark}", "yaxis": f"y{mark}"})
    made = figure(traces, height=150 + 150 * (inputs - 1), x={}, y={}, legend={"orientation": "h", "y": 1.04})
    made["layout"] |= axes
    return made


def _axes(
    sampler: TaylorSampler, names: Sequence[str], inputs: int, row: int, column: int, mark: str
) -> dict[str, Any]:
    """Both axes of a plane; only those at the left and at the bottom are labelled."""
    axis = {"gridcolor": LINE, "linecolor": GREY, "zeroline": False, "ticks": "", "nticks": 4, "automargin": True}
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


def _coloured(kind: str, x: Tensor, y: Tensor, weight: Tensor, *, scale: bool) -> dict[str, Any]:
    drawn = dots(kind, x, y, 5.5)
    if kind in SYMBOLS and bool((weight > 0).any()):
        shade = {"color": short(weight), "colorscale": "Viridis", "cmin": 0, "cmax": 1, "symbol": SYMBOLS[kind]}
        drawn["marker"] |= shade | ({"showscale": True, "colorbar": BAR} if scale else {})
    return drawn
