"""The renderer: every chart becomes a Plotly figure or a gallery, in one style."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mindgap.core import Bar, Chart, Gallery, Heatmap, Histogram, Line, Sample, Scatter, Surface
from mindgap.report.figures.lines import line_figure
from mindgap.report.figures.maps import heatmap_figure, scatter_figure
from mindgap.report.figures.pairs import pairs_figure
from mindgap.report.figures.series import bar_figure, histogram_figure
from mindgap.report.figures.still import surface_still
from mindgap.report.figures.surface import surface_figure
from mindgap.report.figures.table import numbers_of
from mindgap.report.style import Drawn, Figure

FIGURES: Mapping[type[Chart], Callable[[Any], Figure]] = {
    Bar: bar_figure,
    Heatmap: heatmap_figure,
    Histogram: histogram_figure,
    Line: line_figure,
    Scatter: scatter_figure,
    Surface: surface_figure,
}
INTERVALS = "Bands and whiskers are intervals."
TURN = (
    "Drag or use the arrow keys to turn it, the wheel or + and − to zoom, 0 to go back. "
    "Point at a place to read its values."
)


def draw(chart: Chart, key: str) -> Drawn:
    """Return a chart as a page shows it.

    Args:
        chart: What to show.
        key: A name that is unique on the page.

    >>> from mindgap.core import Series
    >>> drawn = draw(Line(title="Loss", series=[Series(name="test", x=[1, 2], y=[0.9, 0.4])]), "a")
    >>> drawn.title, drawn.alt
    ('Loss', 'Loss. Line chart: test from 0.4 to 0.9.')
    """
    head, rows, left = numbers_of(chart)
    return Drawn(
        key=key,
        title=chart.title,
        caption=chart.caption or _caption(chart),
        alt=chart.description,
        figure=None if isinstance(chart, Gallery) else figure_of(chart),
        samples=tuple(chart.samples) if isinstance(chart, Gallery) else (),
        wide=chart.wide,
        still=surface_still(chart) if isinstance(chart, Surface) else None,
        cells=_cells(chart) if isinstance(chart, Heatmap) else (),
        head=head,
        rows=rows,
        left=left,
    )


def _cells(chart: Heatmap) -> tuple[tuple[str, str, tuple[Sample, ...]], ...]:
    """Return the samples of every cell, with its place and its names in words."""
    places = list(dict.fromkeys(tuple(sample.cell) for sample in chart.samples))
    return tuple(
        (
            f"{row},{column}",
            f"{chart.y_label} {chart.y[row]}, {chart.x_label} {chart.x[column]}",
            tuple(sample for sample in chart.samples if tuple(sample.cell) == (row, column)),
        )
        for row, column in places
    )


def draw_all(charts: Iterable[Chart], prefix: str) -> list[Drawn]:
    """Charts as a page shows them, numbered after a prefix."""
    return [draw(chart, f"{prefix}-{place}") for place, chart in enumerate(charts)]


def figure_of(chart: Chart) -> Figure:
    """Return the data and the layout of a chart for Plotly."""
    if isinstance(chart, Scatter) and chart.more_labels:
        return pairs_figure(chart)
    return FIGURES[type(chart)](chart)


def notebook(chart: Chart) -> str:
    """Return a chart for a notebook's cell: a page of its own inside a frame."""
    from mindgap.report.html import framed, render

    drawn = draw(chart, "chart")
    return framed(render("chart.html", chart=drawn), height=(drawn.height or 400) + 130)


def _caption(chart: Chart) -> str:
    if isinstance(chart, Surface):
        return TURN
    rows = chart.series if isinstance(chart, Line | Bar) else ()
    return INTERVALS if any(row.low for row in rows) else ""
