"""A still image of a surface, as SVG: what pages show without scripts or without WebGL."""

import dataclasses
import functools
import html
import itertools
import math
from collections.abc import Sequence

from markupsafe import Markup

from mindgap.core import Mark, Surface
from mindgap.core.chart.numbers import finite
from mindgap.report.figures.surface import (
    EYE,
    FLOOR_SCALE,
    SCALE,
    TALL,
    Scale,
    height_at,
    levels,
    path_color,
    visible,
)
from mindgap.report.style import CYCLE, FONT, GRAY, INK, MUTED

WIDTH, HEIGHT = 760, 520
MOST = 48  # cells each way that a image of this size can show
Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class View:
    """Parallel projection of the box onto the image, seen from where the live chart begins."""

    chart: Surface

    @functools.cached_property
    def _levels(self) -> tuple[float, float, float]:
        return levels(self.chart)

    def __call__(self, x: float, y: float, z: float) -> Point:
        """Where a point of the chart falls in the image."""
        across, away, up = self._turned(x, y, z)
        tilt = math.atan2(EYE["z"], math.hypot(EYE["x"], EYE["y"]))
        size = 320.0
        return WIDTH / 2 + size * across, HEIGHT / 2 - size * (
            up * math.cos(tilt) + away * math.sin(tilt)
        )

    def away(self, x: float, y: float, z: float) -> float:
        """Say how far behind the middle a point lies; what is far must be drawn first."""
        return self._turned(x, y, z)[1]

    def _turned(self, x: float, y: float, z: float) -> tuple[float, float, float]:
        _, high, base = self._levels
        side, front = (
            _unit(value, getattr(self.chart, name)[0], getattr(self.chart, name)[-1])
            for name, value in (("x", x), ("y", y))
        )
        angle = math.atan2(EYE["y"], EYE["x"])
        away = -(side * math.cos(angle) + front * math.sin(angle))
        across = -side * math.sin(angle) + front * math.cos(angle)
        return across, away, TALL * _unit(z, base, high)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One face of the image."""

    away: float
    outline: str
    color: str


def surface_still(chart: Surface) -> Markup:
    """Return the surface, its floor and its marks as one SVG element."""
    view, (_, high, base) = View(chart), levels(chart)
    cells = _cells(chart, "floor", FLOOR_SCALE, view, base) if chart.floor else []
    cells += sorted(
        _cells(chart, "color" if chart.color else "z", SCALE, view),
        key=lambda cell: -cell.away,
    )
    shapes = [
        f'<path d="{cell.outline}" fill="{cell.color}" stroke="{cell.color}"/>' for cell in cells
    ]
    for place, mark in enumerate(chart.marks):
        shapes += _mark(chart, mark, place, view, base, high)
    shapes += [
        f'<path d="{_path(points, closed=False)}" stroke="{path_color(chart, k)}" '
        'stroke-width="2.5" fill="none"/>'
        for k, points in _tracks(chart, view)
    ]
    frame = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" aria-hidden="true" xmlns="http://www.w3.org/2000/svg">'
    words = f'<g font-family="{html.escape(FONT)}" font-size="13" fill="{MUTED}">'
    drawn = f'<g stroke-width=".6" stroke-linejoin="round">{"".join(shapes)}</g>'
    return Markup(f"{frame}{words}{drawn}{_labels(chart, view, base)}</g></svg>")  # noqa: S704  (ours, words escaped)


def _cells(
    chart: Surface, key: str, scale: Scale, view: View, flat: float | None = None
) -> list[Cell]:
    """Return the faces whose corners are known and not all above the top, or lie at ``flat``."""
    (low, high), top = visible(chart, key), levels(chart)[1]
    rows, columns = (
        list(itertools.pairwise(_some(len(getattr(chart, name))))) for name in ("y", "x")
    )
    found = []
    for (a, b), (c, d) in itertools.product(rows, columns):
        corners = [(a, c), (a, d), (b, d), (b, c)]
        heights = finite([[chart.z[i][j] if flat is None else flat for i, j in corners]])
        tints = finite([[getattr(chart, key)[i][j] for i, j in corners]])
        if len(heights) + len(tints) < 8 or min(heights) > top:
            continue
        points = [
            (chart.x[j], chart.y[i], min(z, top))
            for (i, j), z in zip(corners, heights, strict=True)
        ]
        away, share = (
            sum(view.away(*point) for point in points),
            (sum(tints) / 4 - low) / ((high - low) or 1.0),
        )
        found.append(Cell(away, _path([view(*point) for point in points]), _tint(share, scale)))
    return found


def _mark(
    chart: Surface, mark: Mark, place: int, view: View, base: float, high: float
) -> list[str]:
    """Return a line from the floor to the top, a dot on the surface, and the name above."""
    color = html.escape(str(mark.color or CYCLE[place % len(CYCLE)]))
    (x, y), (_, end) = view(*mark.spot, high), view(*mark.spot, base)
    dot = view(*mark.spot, min(height_at(chart, mark), high))
    name, above = html.escape(mark.name), y - 8 - 16 * place
    halo = 'stroke="#fff" stroke-width="4" paint-order="stroke"'  # to be read on any color
    return [
        f'<path d="M{x:.1f} {y:.1f}V{end:.1f}" stroke="{color}" stroke-width="3" fill="none"/>',
        f'<circle cx="{dot[0]:.1f}" cy="{dot[1]:.1f}" r="4.5" fill="{color}" stroke="#fff" stroke-width="1.2"/>',
        f'<text x="{x:.0f}" y="{above:.0f}" text-anchor="middle" {halo} fill="{INK}">{name}</text>',
    ]


def _tracks(chart: Surface, view: View) -> list[tuple[int, list[Point]]]:
    """Return the parts of every path that lie in the box, with the place of the path."""
    found, high = list[tuple[int, list[Point]]](), levels(chart)[1]
    for place, row in enumerate(chart.paths):
        part = list[Point]()
        for x, y, z in zip(row.x, row.y, row.values, strict=True):
            if x is None or y is None or z is None or not z <= high:
                part = []
                continue
            if not part:
                found.append((place, part))
            part.append(view(x, y, z))
    return found


def _labels(chart: Surface, view: View, base: float) -> str:
    """Return both axes along the front edges of the floor, with their ends."""
    (x0, x1), (y0, y1) = (
        (getattr(chart, name)[0], getattr(chart, name)[-1]) for name in ("x", "y")
    )
    corner, right, left = view(x0, y0, base), view(x1, y0, base), view(x0, y1, base)
    parts = [
        f'<path d="{_path([left, corner, right], closed=False)}" fill="none" stroke="{GRAY}"/>'
    ]
    for end, name, first, last in ((right, "x", x0, x1), (left, "y", y0, y1)):
        way, shift = ("start", 14) if end[0] > corner[0] else ("end", -14)
        x, y = (corner[0] + end[0]) / 2 + shift, (corner[1] + end[1]) / 2 + 22
        title = html.escape(
            f"{getattr(chart, f'{name}_label') or name} from {first:.3g} to {last:.3g}"
        )
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{way}">{title}</text>')
    return "".join(parts)


def _some(count: int) -> list[int]:
    step = max(1, math.ceil((count - 1) / MOST))
    return [*range(0, count - 1, step), count - 1]


def _unit(value: float, low: float, high: float) -> float:
    return (value - low) / ((high - low) or 1.0) - 0.5


def _path(points: Sequence[Point], closed: bool = True) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + ("Z" if closed else "")


def _tint(share: float, scale: Scale) -> str:
    """Return the color at a place of a scale, between its two stops."""
    upper = next(k for k in range(1, len(scale)) if share <= scale[k][0] or k == len(scale) - 1)
    (start, first), (end, last) = scale[upper - 1], scale[upper]
    part = min(max((share - start) / (end - start), 0.0), 1.0)
    mixed = (
        round((1 - part) * int(first[k : k + 2], 16) + part * int(last[k : k + 2], 16))
        for k in (1, 3, 5)
    )
    return "#" + "".join(f"{value:02x}" for value in mixed)
