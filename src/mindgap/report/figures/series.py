"""Bars with whiskers and notes, and histograms."""

import dataclasses
import math
import textwrap
from typing import Any

from mindgap.core import Bar, Histogram, Mark, Series
from mindgap.core.chart.numbers import finite, known
from mindgap.report.style import (
    BARE,
    COLORS,
    GRAYS,
    VEIL,
    Figure,
    axis,
    axis_title,
    clean,
    color_of,
    colors_of,
    figure,
    legend_line,
    line,
    lines_across,
    named,
    whiskers,
)

HATCH = {"size": 7, "solidity": 0.3}
MOST_LETTERS = 110  # of all names together, that fit under bars side by side
LONGEST_NAME, ON_PAPER = 14, 80  # characters under a bar, and under all bars across a printed page
FLAT = 0.02  # of the highest bin, four pixels of a chart; lower bins cannot be read
LETTER = 0.023  # width of a letter of a note, as a share of a lying chart


def bar_figure(chart: Bar) -> Figure:
    """Draw bars; they lie if asked to, or if their names are too long to stand side by side."""
    lying = chart.horizontal
    if lying is None:
        lying = sum(map(len, chart.names)) > MOST_LETTERS
    traces = [_bars(chart, row, k, lying) for k, row in enumerate(chart.series)]
    longest = 28 if lying else max(LONGEST_NAME, ON_PAPER // max(len(chart.names), 1))
    names = {
        **named(chart.names, longest),
        "title": axis_title(chart.x_label),
    }
    if not lying:  # a narrow screen has room for names only if they stand upright
        names |= {"ticktext": [_wrapped(name, longest) for name in chart.names]}
        names |= {"autotickangles": [0, 90]}
    values = axis(chart.y_label, chart.y_scale, chart.percent)
    values |= {"range": [0, chart.top]} if chart.top is not None else {}
    ends = [_note(chart, place, lying) for place in range(len(chart.notes))]
    several = len(chart.series) > 1
    told = [mark for mark in chart.marks if several and mark.name]
    return figure(
        [*traces, *(legend_line(mark) for mark in told)],
        height=_lying_height(chart) if lying else (380 if several else 320),
        x=values if lying else names,
        y={**names, "autorange": "reversed", "tickfont": {"size": 12}} if lying else values,
        barmode="stack" if chart.stacked else "group",
        showlegend=several,
        shapes=lines_across([_placed(mark, lying, mark in told) for mark in chart.marks]),
        annotations=ends,
        **({} if several else {"margin": BARE}),
    )


def _wrapped(name: str, longest: int) -> str:
    """Return a name in up to three lines, broken between words."""
    lines = textwrap.wrap(name, longest, break_long_words=False, max_lines=3, placeholder=" …")
    return "<br>".join(clean(line, longest) for line in lines)


def _placed(mark: Mark, lying: bool, told: bool) -> Mark:
    """Return the mark where it is drawn; without its name if the legend tells it."""
    name = "" if told else mark.name
    return Mark(name=name, color=mark.color, **{"x" if lying else "y": mark.y})


def _lying_height(chart: Bar) -> int:
    """Few bars are thick; many are thin, so that they fit on a screen."""
    groups = 1 if chart.stacked else len(chart.series)
    thick = 26 if len(chart.names) * groups <= 12 else 16
    return 90 + len(chart.names) * (8 + thick * groups)


def _bars(chart: Bar, row: Series, place: int, lying: bool) -> dict[str, Any]:
    along, across = ("y", "x") if lying else ("x", "y")
    digits = ".2~%" if chart.percent else ".4~g"
    head = f"{clean(row.name)}, " if row.name else ""
    trace: dict[str, Any] = {
        "type": "bar",
        "orientation": "h" if lying else "v",
        "name": clean(row.name),
        along: _places(chart, row),
        across: list(row.y),
        "text": [clean(str(name)) for name in row.x],
        "textposition": "none",
        "marker": _bar_marker(chart, row, place),
        "hovertemplate": f"{head}%{{text}}: %{{{across}:{digits}}}<extra></extra>",
    }
    if row.low:
        above, below = _arms(row)
        trace[f"error_{across}"] = whiskers(above, below)
    return trace | ({"width": 0.6} if chart.stacked or len(chart.series) == 1 else {})


def _places(chart: Bar, row: Series) -> list[int]:
    """Number the bars of a series; as categories, equal names would fall together."""
    if len({tuple(other.x) for other in chart.series}) == 1:
        return list(range(len(row.x)))
    return [chart.names.index(str(name)) for name in row.x]


def _bar_marker(chart: Bar, row: Series, place: int) -> dict[str, Any]:
    plain = colors_of([other.name for other in chart.series])[place]
    alone = len(chart.series) == 1
    colors = [COLORS.get(str(name).lower(), plain) if alone else plain for name in row.x]
    if not chart.muted:
        return {"color": colors}
    quiet = [str(name) in chart.muted for name in row.x]
    gray = GRAYS[place % len(GRAYS)]
    pairs = zip(colors, quiet, strict=True)
    return {
        "color": [gray if muted else color for color, muted in pairs],
        "pattern": {"shape": ["/" if muted else "" for muted in quiet], **HATCH},
    }


def _arms(row: Series) -> tuple[list[float | None], list[float | None]]:
    """Say how far the whiskers reach above and below; none where an end is unknown or infinite."""
    ends = [
        (max(high - y, 0.0), max(y - low, 0.0))
        if known(y) and known(low) and known(high)
        else (None, None)
        for y, low, high in zip(row.y, row.low, row.high, strict=True)
    ]
    return [above for above, _ in ends], [below for _, below in ends]


def _note(chart: Bar, place: int, lying: bool) -> dict[str, Any]:
    """Return the text at the end of a bar, or inside the chart where the bar is cut off."""
    found = finite([[row.y[place] for row in chart.series if place < len(row.y)]])
    end = sum(found) if chart.stacked else max(found, default=0.0)
    text = {"text": clean(chart.notes[place]), "showarrow": False, "font": {"size": 12}}
    if not lying:
        return {**text, "x": place, "y": end, "yanchor": "bottom"}
    room = LETTER * len(chart.notes[place])
    if chart.top is not None and end > (1 - room) * chart.top:
        ground = {"bgcolor": VEIL}
        return {**text, "y": place, "x": chart.top, "xanchor": "right", "xshift": -6, **ground}
    return {**text, "y": place, "x": end, "xanchor": "left", "xshift": 6}


def histogram_figure(chart: Histogram) -> Figure:
    """Draw shares as outlines, or counts as bars, the later group in front.

    Where the chart leaves it open, one bin far above the others makes the scale logarithmic.
    """
    several = len(chart.counts) > 1
    ends = [chart.edges[0], chart.edges[-1]]
    if not chart.y_scale and _towers(chart):
        label = f"{chart.y_label or ('share' if chart.shares else 'samples')}, log scale"
        chart = dataclasses.replace(chart, y_scale="log", y_label=label)
    y = axis(chart.y_label, chart.y_scale, percent=chart.shares)
    if chart.y_scale == "log" and chart.shares:
        y |= {"dtick": 1, "tickformat": "~%", "range": _range_of_shares(chart)}
    elif chart.y_scale == "log":
        largest = max([1, *(count for counts in chart.counts.values() for count in counts)])
        y |= {"dtick": 1, "range": [math.log10(0.7), math.log10(1.4 * largest)]}
    else:
        y |= {"rangemode": "tozero"}
    drawn = _outline if chart.shares else _filled
    return figure(
        [drawn(chart, name, k) for k, name in enumerate(chart.counts)],
        height=300,
        x={**axis(chart.x_label), "range": ends, "zeroline": True, "zerolinewidth": 2},
        y=y,
        barmode="overlay",
        bargap=0,
        shapes=lines_across(chart.marks),
        showlegend=several,
        **({} if several else {"margin": BARE}),
    )


def _towers(chart: Histogram) -> bool:
    """Tell whether one bin is so high that half of the others would be flat on the ground."""
    heights = sorted(
        count / (sum(counts) if chart.shares else 1)
        for counts in chart.counts.values()
        for count in counts
        if count
    )
    return bool(heights) and heights[len(heights) // 2] < FLAT * heights[-1]


def _range_of_shares(chart: Histogram) -> list[float]:
    """Return the powers of ten between which the shares of all groups lie."""
    shares = [count / sum(counts) for counts in chart.counts.values() for count in counts if count]
    return [math.log10(0.7 * min(shares, default=0.1)), math.log10(1.4 * max(shares, default=1.0))]


def _middles(chart: Histogram) -> list[float]:
    return [(a + b) / 2 for a, b in zip(chart.edges[:-1], chart.edges[1:], strict=True)]


def _outline(chart: Histogram, name: str, place: int) -> dict[str, Any]:
    """Shares of a group as steps, with the standard error of every share."""
    counts, color = chart.counts[name], color_of(name, place)
    total = sum(counts) or 1
    empty = None if chart.y_scale == "log" else 0.0  # a log axis has no zero
    shares = [count / total or empty for count in counts]
    errors = [math.sqrt((share or 0.0) * (1 - (share or 0.0)) / total) for share in shares]
    trace = line(name, _middles(chart), shares, color)
    trace["line"]["shape"] = "hvh"
    arms = {"type": "data", "array": errors, "color": color, "thickness": 1, "width": 0}
    hover = f"{clean(name)}: %{{y:.1%}} near %{{x:.3~g}}<extra></extra>"
    return trace | {"error_y": arms, "hovertemplate": hover}


def _filled(chart: Histogram, name: str, place: int) -> dict[str, Any]:
    """Draw counts as bars without gaps; empty bins are left out, for a log axis has no zero."""
    return {
        "type": "bar",
        "name": clean(name),
        "x": _middles(chart),
        "y": [count or None for count in chart.counts[name]],
        "width": [b - a for a, b in zip(chart.edges[:-1], chart.edges[1:], strict=True)],
        "marker": {"color": color_of(name, place)},
        "hovertemplate": f"{clean(name)}: %{{y}} near %{{x:.3~g}}<extra></extra>",
    }
