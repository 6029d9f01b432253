"""Charts as typed plain data: they say what to show, and a renderer decides how it looks.

``parts`` holds what charts are made of, ``base`` what they share, ``kinds`` the seven kinds,
``text`` their form for a terminal, and ``numbers`` how numbers are written.
"""

from mindgap.core.chart.base import Chart
from mindgap.core.chart.kinds import Bar, Gallery, Heatmap, Histogram, Line, Scatter, Surface
from mindgap.core.chart.parts import Contour, Mark, Points, Sample, Series, Ticks

__all__ = [
    "Bar",
    "Chart",
    "Contour",
    "Gallery",
    "Heatmap",
    "Histogram",
    "Line",
    "Mark",
    "Points",
    "Sample",
    "Scatter",
    "Series",
    "Surface",
    "Ticks",
]
