"""The style of all figures: colors, fonts, axes and the few shapes that they are made of."""

import dataclasses
import html
import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from mindgap.core import Mark, Sample
from mindgap.core.chart.parts import Scale

Figure = dict[str, Any]

# Okabe and Ito's colors: told apart by every kind of color vision, and in gray.
TRAIN, TEST, GREEN, AMBER, SKY, PINK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#56B4E9",
    "#CC79A7",
)
CYCLE = (TRAIN, TEST, GREEN, AMBER, PINK, SKY)
INK, MUTED, LINE, GRAY = "#1f2733", "#5b6472", "#e6e9ee", "#b9c0cb"
VIOLET = "#7a5ba8"  # no color of the first groups
COLORS = {
    "train": TRAIN,
    "training data": TRAIN,
    "test": TEST,
    "test data": TEST,
    "suspects": TEST,
    "training error": TRAIN,
    "test error": TEST,
    "validation": GREEN,
    "certificate": GREEN,
    "gap": AMBER,
    "complexity term": SKY,
    "error on the bound data": TRAIN,
    "monte carlo part": AMBER,
    "complexity term without kl": SKY,
    "complexity term of the kl": PINK,
    "given": GRAY,
    "initial design": TRAIN,
    "new": TEST,
    "failed": INK,
    "pending": MUTED,
}
PAPER = "#ffffff"
GRAYS = ("#9aa3b0", "#d5dae1")  # of bars that do not count
PALE_VIOLET, PALE_ORANGE, PALE_BLUE, PALE_RED = "#d8cfe8", "#fdeee3", "#92c5de", "#f4a582"
NEARLY_WHITE, MIDDLE = "#fbfbfc", "#f7f7f7"
VEIL = "rgba(255,255,255,0.85)"  # behind words that lie on bars
# In the dark theme: paper and ink change places, and the dark ones of the colors become lighter.
DARK = {
    PAPER: "#171c24",
    VEIL: "rgba(23,28,36,0.85)",
    INK: "#e4e8ee",
    MUTED: "#a5afbd",
    LINE: "#2d3541",
    GRAY: "#596473",
    TRAIN.lower(): "#4aa8e8",
    TEST.lower(): "#f2803a",
    GREEN.lower(): "#2fc498",
    SKY.lower(): "#b9e0f7",
    VIOLET: "#b49ade",
    **dict(zip(GRAYS, ("#6d7786", "#414b58"), strict=True)),
    PALE_VIOLET: "#4d4270",
    PALE_ORANGE: "#3a2619",
    PALE_BLUE: "#2f6288",
    PALE_RED: "#8f4434",
    NEARLY_WHITE: "#1b212a",
    MIDDLE: "#262e39",
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
BARE = {"l": 8, "r": 16, "t": 8, "b": 8}  # margins of a figure without a legend
QUIET = {"ticks": "", "showgrid": False, "zeroline": False}  # an axis of names
LONGEST_TITLE = 40  # characters of a line of an axis title
LONGEST_NAME = 28  # characters of a label; longer ones would leave no room for the bars


def clean(text: str, longest: int = 200) -> str:
    """Shorten a user's words and make them harmless: Plotly reads some markup in labels."""
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[-(longest // 2) + 1 :]}"
    return html.escape(text, quote=False)


def figure(
    data: Sequence[Mapping[str, Any]],
    *,
    height: int,
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    **more: Any,
) -> Figure:
    """Data in the style of all figures."""
    common = {
        "gridcolor": LINE,
        "zerolinecolor": GRAY,
        "linecolor": GRAY,
        "ticks": "outside",
        "tickcolor": GRAY,
        "automargin": True,
    }
    layout = {
        "height": height,
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": INK},
        "margin": {"l": 8, "r": 16, "t": 36, "b": 8},
        "hoverlabel": {"font": {"family": FONT}},
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "xaxis": {**common, **x},
        "yaxis": {**common, **y},
        **more,
    }
    return {"data": [dict(trace) for trace in data], "layout": layout}


def axis_title(text: str) -> dict[str, Any]:
    """Return a quiet axis title, in lines that fit a narrow screen."""
    lines = textwrap.wrap(text, LONGEST_TITLE, break_long_words=False)
    return {"text": "<br>".join(lines), "font": {"size": 12, "color": MUTED}, "standoff": 8}


def line(
    name: str, x: Sequence[Any], y: Sequence[Any], color: str, dash: str = "solid"
) -> dict[str, Any]:
    """Return a curve; a single point becomes a dot."""
    mode = "lines" if len(x) > 1 else "markers"
    hover = f"{clean(name)}, %{{x}}: %{{y:.4~g}}<extra></extra>"
    return {
        "type": "scatter",
        "mode": mode,
        "name": clean(name),
        "x": list(x),
        "y": list(y),
        "line": {"color": color, "width": 2, "dash": dash},
        "marker": {"color": color},
        "hovertemplate": hover,
    }


def band(x: Sequence[Any], y: Sequence[Any], color: str, name: str) -> dict[str, Any]:
    """Return a closed outline, filled faintly."""
    red, green, blue = (int(color[k : k + 2], 16) for k in (1, 3, 5))
    fill = f"rgba({red},{green},{blue},0.14)"
    return {
        "type": "scatter",
        "x": list(x),
        "y": list(y),
        "fill": "toself",
        "fillcolor": fill,
        "line": {"width": 0},
        "mode": "lines",
        "hoverinfo": "skip",
        "name": name,
    }


def whiskers(above: Sequence[float | None], below: Sequence[float | None]) -> dict[str, Any]:
    """Error bars of unequal arms."""
    return {
        "type": "data",
        "symmetric": False,
        "array": list(above),
        "arrayminus": list(below),
        "color": INK,
        "thickness": 1.4,
        "width": 5,
    }


def upright(x: float, *, dash: str = "dash", color: str = INK, **more: Any) -> dict[str, Any]:
    """Return a vertical line from the bottom to the top."""
    ends = {"x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1}
    return {"type": "line", **ends, "line": {"color": color, "width": 1.3, "dash": dash}, **more}


def named(names: Sequence[str], longest: int = LONGEST_NAME) -> dict[str, Any]:
    """Ticks 0, 1, 2 … that carry names; as categories, equal names would fall together."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": [clean(name, longest) for name in names],
        **QUIET,
    }


def axis(label: str, scale: Scale = "", percent: bool = False) -> dict[str, Any]:
    """Make an axis; powers of ten are written as such, not as µ or n."""
    made: dict[str, Any] = {"title": axis_title(clean(label))}
    if scale == "log":
        # With more ticks, those of all digits overlap where the axis has less than two decades.
        made |= {"type": "log", "exponentformat": "power", "nticks": 5}
    elif scale:
        made |= {"type": scale}
    return made | ({"tickformat": ".1~%", "rangemode": "tozero"} if percent else {})


def legend_line(mark: Mark) -> dict[str, Any]:
    """Return an entry of the legend for a mark whose name would cover others on the chart."""
    style = {"color": mark.color or MUTED, "width": 1.3, "dash": "dot"}
    nowhere = {"type": "scatter", "mode": "lines", "x": [None], "y": [None]}
    return {**nowhere, "name": clean(mark.name), "line": style}


def lines_across(marks: Sequence[Mark]) -> list[dict[str, Any]]:
    """Draw marks as lines across the chart, with their names."""
    return [_across(mark) for mark in marks]


def _across(mark: Mark) -> dict[str, Any]:
    color = mark.color or MUTED
    text = {"text": clean(mark.name), "font": {"size": 11, "color": MUTED}, "textangle": 0}
    if mark.x is not None:
        place = {"textposition": "end", "xanchor": "left", "yanchor": "top"}
        return upright(mark.x, dash="dot", color=color, label={**text, **place})
    ends = {"y0": mark.y, "y1": mark.y, "xref": "paper", "x0": 0, "x1": 1}
    place = {"textposition": "start", "xanchor": "left", "yanchor": "bottom"}
    style = {"color": color, "width": 1.3, "dash": "dot"}
    return {"type": "line", **ends, "line": style, "label": {**text, **place}}


def color_of(name: str, place: int) -> str:
    """Choose a color: the same thing has the same color on every chart."""
    return COLORS.get(name.lower(), CYCLE[place % len(CYCLE)])


def colors_of(names: Sequence[str]) -> list[str]:
    """Choose the colors of a chart: by :func:`color_of`, but none that belongs to another name.

    Args:
        names: All that is drawn, in its order.

    >>> colors_of(["test", "ridge"]) == [color_of("test", 0), color_of("", 0)]
    True
    """
    places = [color_of(name, place) for place, name in enumerate(names)]
    owned = {COLORS[name.lower()] for name in names if name.lower() in COLORS}
    spare = iter([color for color in CYCLE if color not in places])
    return [
        next(spare, color) if color in owned and name.lower() not in COLORS else color
        for name, color in zip(names, places, strict=True)
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """A chart as a page shows it: a figure, or the samples of a gallery."""

    key: str
    title: str
    caption: str
    alt: str
    figure: Figure | None
    samples: tuple[Sample, ...] = ()
    cells: tuple[tuple[str, str, tuple[Sample, ...]], ...] = ()  # samples behind a matrix
    wide: bool = False
    still: Markup | None = None  # an image for pages without scripts or WebGL
    head: tuple[str, ...] = ()  # of its numbers as a table
    rows: tuple[tuple[str, ...], ...] = ()
    left: str = ""

    @property
    def height(self) -> int:
        """Pixels to keep free, so that the page does not jump when the figure is drawn."""
        return 0 if self.figure is None else int(self.figure["layout"]["height"])

    @property
    def data(self) -> Markup:
        """The figure as JSON that cannot end the script element around it."""
        text = json.dumps(_finite(self.figure), allow_nan=False, separators=(",", ":"))
        return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
