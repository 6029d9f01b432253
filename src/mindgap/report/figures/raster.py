"""Still images as PNG: the few SVG elements that our stills use, drawn on a grid of pixels."""

import itertools
import re
from xml.etree import ElementTree as ET

import numpy as np
import torch
from numpy.typing import NDArray

from mindgap.ops.images import png

FINE = 3  # samples per pixel in each direction, which are averaged
CHARACTER = (6, 1.1)  # columns from one letter to the next, and pixels per dot of a letter
# Five columns of seven dots per character from the space to the tilde, lowest bit on top.
FONT = bytes.fromhex(
    "000000000000005f00000007000700147f147f14242a7f2a12231308646236495620500008070300001c224100"
    "0041221c002a1c7f1c2a08083e080800807030000808080808000060600020100804023e5149453e00427f4000"
    "72494949462141494d331814127f1027454545393c4a49493141211109073649494936464949291e0000140000"
    "004034000000081422411414141414004122140802015909063e415d594e7c1211127c7f494949363e41414122"
    "7f4141413e7f494949417f090909013e414151737f0808087f00417f41002040413f017f081422417f40404040"
    "7f021c027f7f0408107f3e4141413e7f090909063e4151215e7f09192946264949493203017f01033f4040403f"
    "1f2040201f3f4038403f631408146303047804036159494d43007f4141410204081020004141417f0402010204"
    "4040404040000307080020545478407f284444383844444428384444287f385454541800087e090218a4a49c78"
    "7f0804047800447d40002040403d007f1028440000417f40007c047804787c080404783844444438fc18242418"
    "18242418fc7c08040408485454542404043f44243c4040207c1c2040201c3c4030403c44281028444c9090907c"
    "4464544c440008364100000077000000413608000201020402"
)
Pixels = NDArray[np.float64]
Point = tuple[float, float]


def png_of(svg: str) -> bytes:
    """Draw an SVG element of lines, polygons, circles and words as a PNG file.

    Args:
        svg: One element with a view box, as :func:`mindgap.report.figures.still.surface_still`
            makes it.

    >>> png_of('<svg viewBox="0 0 4 4"><path d="M0 0L4 0L4 4Z" fill="#ff0000"/></svg>')[1:4]
    b'PNG'
    """
    root = ET.fromstring(svg)  # noqa: S314  (made by ourselves)
    width, height = (int(float(size)) for size in root.attrib["viewBox"].split()[2:])
    canvas = np.full((height * FINE, width * FINE, 3), 255.0)
    _draw(canvas, root, {"fill": "#000000", "stroke": "none", "stroke-width": "1"})
    small = canvas.reshape(height, FINE, width, FINE, 3).mean((1, 3)).round().astype(np.uint8)
    return png(torch.from_numpy(small).permute(2, 0, 1))


def _draw(canvas: Pixels, element: ET.Element, inherited: dict[str, str]) -> None:
    style = {
        **inherited,
        **{name: element.attrib[name] for name in inherited if name in element.attrib},
    }
    kind = element.tag.rpartition("}")[2]
    if kind == "path":
        _path(canvas, element.attrib["d"], style)
    elif kind == "circle":
        center = float(element.attrib["cx"]), float(element.attrib["cy"])
        _stroke(canvas, center, center, 2 * float(element.attrib["r"]), _color(style["fill"]))
    elif kind == "text":
        _text(canvas, element, style)
    for child in element:
        _draw(canvas, child, style)


def _path(canvas: Pixels, data: str, style: dict[str, str]) -> None:
    points, closed = _points(data), data.endswith("Z")
    if style["fill"] != "none" and len(points) > 2:
        _polygon(canvas, np.array(points), _color(style["fill"]))
    if style["stroke"] != "none":
        ends = [*points, points[0]] if closed else points
        for start, end in itertools.pairwise(ends):
            _stroke(canvas, start, end, float(style["stroke-width"]), _color(style["stroke"]))


def _points(data: str) -> list[Point]:
    """Read moves and lines to (M, L), and vertical lines (V)."""
    found = list[Point]()
    for letter, numbers in re.findall(r"([MLV])([^MLVZ]*)", data):
        values = [float(number) for number in numbers.split()]
        found.append((found[-1][0], values[0]) if letter == "V" else (values[0], values[1]))
    return found


def _color(text: str) -> NDArray[np.float64]:
    found = re.fullmatch(r"#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})", text)
    digits = found[1] if found else "000000"
    whole = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    return np.array([int(whole[k : k + 2], 16) for k in (0, 2, 4)], dtype=float)


def _window(canvas: Pixels, low: Pixels, high: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    """Return the part of the canvas between two corners, and where its samples are."""
    (left, top), (right, bottom) = (
        np.clip(edge, 0, canvas.shape[1::-1]).astype(int)
        for edge in (np.floor(low * FINE), np.ceil(high * FINE) + 1)
    )
    rows, columns = np.mgrid[top:bottom, left:right]
    return canvas[top:bottom, left:right], (columns + 0.5) / FINE, (rows + 0.5) / FINE


def _polygon(canvas: Pixels, points: Pixels, color: Pixels) -> None:
    """Fill by the even-odd rule: count the edges to the right of every sample."""
    part, x, y = _window(canvas, points.min(0), points.max(0))
    inside = np.zeros(x.shape, dtype=bool)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, 0), strict=True):
        if y0 != y1:
            crosses = (y0 <= y) != (y1 <= y)
            inside ^= crosses & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    part[inside] = color


def _stroke(canvas: Pixels, start: Point, end: Point, width: float, color: Pixels) -> None:
    """Color all samples within half a width of a segment."""
    a, b = np.array(start), np.array(end)
    part, x, y = _window(canvas, np.minimum(a, b) - width, np.maximum(a, b) + width)
    along = b - a
    share = ((x - a[0]) * along[0] + (y - a[1]) * along[1]) / max(float(along @ along), 1e-12)
    share = np.clip(share, 0, 1)
    near = np.hypot(x - a[0] - share * along[0], y - a[1] - share * along[1]) <= width / 2
    part[near] = color


def _text(canvas: Pixels, element: ET.Element, style: dict[str, str]) -> None:
    """Draw letters as dots; what the font lacks is a question mark."""
    words, (step, dot) = element.text or "", CHARACTER
    ways = {"middle": 0.5, "end": 1.0}
    shift = ways.get(element.attrib.get("text-anchor", ""), 0.0) * len(words) * step * dot
    room = canvas.shape[1] / FINE - len(words) * step * dot
    left = max(min(float(element.attrib["x"]) - shift, room), 0.0)  # words stay in the image
    base = float(element.attrib["y"])
    for place, letter in enumerate(words.replace("−", "-")):
        index = ord(letter) - 32 if 32 <= ord(letter) < 127 else ord("?") - 32
        for column, bits in enumerate(FONT[5 * index : 5 * index + 5]):
            for row in (row for row in range(8) if bits >> row & 1):
                x, y = left + (place * step + column) * dot, base + (row - 7) * dot
                part, *_ = _window(canvas, np.array([x, y]), np.array([x, y]) + dot - 1.5 / FINE)
                part[:] = _color(style["fill"])
