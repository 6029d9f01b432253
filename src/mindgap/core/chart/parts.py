"""The parts of charts: series, ticks, points, contours, marks and samples."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mindgap.core.checks import choice
from mindgap.core.errors import InputError

Scale = Literal["", "linear", "log", "category"]
Mode = Literal["lines", "markers", "lines+markers"]
Symbol = Literal["circle", "square", "diamond", "cross", "ring"]
Place = float | str
Value = float | None
Rows = tuple[tuple[Value, ...], ...]

SCALES: tuple[Scale, ...] = ("", "linear", "log", "category")
MODES: tuple[Mode, ...] = ("lines", "markers", "lines+markers")
SYMBOLS: tuple[Symbol, ...] = ("circle", "square", "diamond", "cross", "ring")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """Base of charts and their parts: sequences become tuples, defaults are not saved."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _frozen(getattr(self, field.name)))
        self._check()

    def _check(self) -> None:
        """Raise one sentence if the fields do not fit together."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data without the fields that have their default."""
        return {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != _default(field)
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series(Piece):
    """Named values over places, with the ends of their intervals if there are any.

    Args:
        name: What the legend says.
        x: Places, as numbers or names.
        y: One value per place; ``None`` leaves a gap.
        low: Lower ends of the intervals.
        high: Upper ends of the intervals.
        mode: Whether a line chart joins the values, marks them, or both.
    """

    name: str = ""
    x: Sequence[Place] = ()
    y: Sequence[Value] = ()
    low: Sequence[Value] = ()
    high: Sequence[Value] = ()
    mode: Mode = "lines+markers"

    def _check(self) -> None:
        choice("mode", self.mode, MODES)
        same(f"y of the series {self.name!r}", self.y, "x", self.x)
        for end in ("low", "high"):
            if self.low or self.high:
                same(f"{end} of the series {self.name!r}", getattr(self, end), "y", self.y)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ticks(Piece):
    """Named places on the first axis, such as where a function was evaluated.

    Args:
        name: What the places are.
        x: The places.

    >>> Ticks(name="evaluations", x=(0.0, 0.5)).x
    (0.0, 0.5)
    """

    name: str = ""
    x: Sequence[float] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Points(Piece):
    """Named points of the plane, or of a space of more dimensions.

    Args:
        name: What the legend says.
        x: First coordinates.
        y: Second coordinates.
        more: Further coordinates, one sequence each; a scatter chart then shows every pair.
        weights: Heavier points are drawn larger.
        values: Numbers to color the points by, instead of one color.
        symbol: The shape of a point.
    """

    name: str = ""
    x: Sequence[Value] = ()
    y: Sequence[Value] = ()
    more: Sequence[Sequence[Value]] = ()
    weights: Sequence[Value] = ()
    values: Sequence[Value] = ()
    symbol: Symbol = "circle"

    @property
    def coordinates(self) -> tuple[Sequence[Value], ...]:
        """All coordinates, the first two among them."""
        return (self.x, self.y, *self.more)

    def _check(self) -> None:
        choice("symbol", self.symbol, SYMBOLS)
        same(f"y of the points {self.name!r}", self.y, "x", self.x)
        for place, further in enumerate(self.more):
            same(f"more[{place}] of the points {self.name!r}", further, "x", self.x)
        for extra in ("weights", "values"):
            if getattr(self, extra):
                same(f"{extra} of the points {self.name!r}", getattr(self, extra), "x", self.x)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contour(Piece):
    """A line where ``z`` is zero, over the axes of its heatmap.

    Args:
        name: What the legend says; contours of one name share a color.
        z: One row per y, one entry per x.

    >>> Contour(name="boundary", z=[[-1.0, 1.0]]).name
    'boundary'
    """

    name: str = ""
    z: Sequence[Sequence[Value]] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mark(Piece):
    """A place to point out: a vertical line at x, a horizontal line at y, or a point.

    Args:
        name: What is there.
        x: Place on the first axis.
        y: Place on the second axis; in a bar chart, the value.
        color: A CSS color; the renderer chooses one otherwise.

    >>> Mark(name="chosen", x=0.5).y is None
    True
    """

    name: str = ""
    x: float | None = None
    y: float | None = None
    color: str = ""

    @property
    def spot(self) -> tuple[float, float]:
        """Both coordinates of a point."""
        assert self.x is not None
        assert self.y is not None
        return self.x, self.y

    def _check(self) -> None:
        if self.x is None and self.y is None:
            raise InputError(
                f"The mark {self.name!r} must have x, y or both, got none. Say where it is."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample(Piece):
    """One sample of a gallery: an image with its caption, or facts in words.

    Args:
        image: A data address (``data:image/png;base64,…``), or empty.
        caption: A short line below the image.
        facts: Names and texts, such as ``{"label": "3", "loss": "2.1"}``.
        flag: A word of warning, such as "wrong".
        cell: Row and column of the cell of a heatmap that it belongs to; empty in a gallery.
    """

    image: str = ""
    caption: str = ""
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    flag: str = ""
    cell: Sequence[int] = ()

    def _check(self) -> None:
        if self.image and not self.image.startswith("data:image/"):
            raise InputError(
                "The image of a sample must be a data address (data:image/png;base64,…), got "
                f"{self.image[:40]!r}. Use mindgap.ops.images.as_images."
            )


def same(what: str, found: Sequence[Any], other: str, wanted: Sequence[Any]) -> None:
    """Raise one sentence unless two sequences are equally long."""
    if len(found) != len(wanted):
        raise InputError(
            f"{what} must have as many entries as {other}, {len(wanted)}, got {len(found)}. "
            "Pass one per entry."
        )


def _frozen(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, Mapping):
        return {str(key): _frozen(item) for key, item in value.items()}
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Piece):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _default(field: "dataclasses.Field[Any]") -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()
