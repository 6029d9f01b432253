"""Exact numbers of linear regions on a segment and on a part of a plane."""

import dataclasses

import torch
from torch import Tensor, nn

from mindgap.core import Heatmap, InputError, Line, Points, Series, copied, implements, integer
from mindgap.ops.regions.cells import Intervals, Polygons
from mindgap.ops.regions.tracing import run

MOST = 200_000
SAME = 1e-9  # relative difference below which two slopes are one
_COLORS = 12  # shades that a map uses; neighbors rarely share one


@dataclasses.dataclass(frozen=True)
class _SegmentRegions:
    """The linear regions that a segment crosses.

    Args:
        ends: Where they begin and end, from 0 to 1.
        values: The outputs at both ends of every region, of shape (regions, 2, outputs).
        pieces: Number of regions after joining neighbors on which the slope is the same.
    """

    ends: Tensor
    values: Tensor
    pieces: int

    @property
    def count(self) -> int:
        """The number of regions."""
        return len(self.ends) - 1

    def chart(self, title: str = "Outputs along a segment") -> Line:
        """Draw the outputs along the segment, with their kinks."""
        places = torch.stack([self.ends[:-1], self.ends[1:]], 1).flatten().tolist()
        rows = self.values.flatten(0, 1).T[:10]
        return Line(
            title=title,
            x_label="place on the segment",
            y_label="output",
            series=tuple(
                Series(name=f"output {k}", x=places, y=row.tolist()) for k, row in enumerate(rows)
            ),
        )


@dataclasses.dataclass(frozen=True)
class SliceRegions:
    """The linear regions of a part of a plane.

    Args:
        corners: The corners of every region, padded, of shape (regions, most corners, 2).
        counts: How many corners each has.
        slopes: The derivative of the outputs in both directions, of shape (regions, 2, outputs).
    """

    corners: Tensor
    counts: Tensor
    slopes: Tensor

    @property
    def count(self) -> int:
        """The number of regions."""
        return len(self.counts)

    def numbers(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the number of the region at every place of a grid, −1 outside.

        Args:
            x: Places on the first axis.
            y: Places on the second axis.
        """
        found = torch.full((len(y), len(x)), -1, dtype=torch.long)
        for number in range(self.count):
            own = self.corners[number, : int(self.counts[number])]
            low, high = own.amin(0), own.amax(0)
            columns = ((x >= low[0]) & (x <= high[0])).nonzero().flatten()
            rows = ((y >= low[1]) & (y <= high[1])).nonzero().flatten()
            if len(columns) and len(rows):
                part = _inside(own, x[columns], y[rows])
                block = found[rows[:, None], columns]
                found[rows[:, None], columns] = torch.where(part, number, block)
        return found

    def chart(
        self, title: str = "Linear regions", points: tuple[Points, ...] = (), size: int = 160
    ) -> Heatmap:
        """Color the regions; a color has no meaning but to tell neighbors apart.

        Args:
            title: The title.
            points: Samples to mark.
            size: Places of the grid along each axis.
        """
        known = self.corners[torch.arange(self.corners.shape[1]) < self.counts[:, None]]
        low, high = known.amin(0), known.amax(0)
        middles = (torch.arange(size, dtype=torch.double) + 0.5) / size
        x, y = (low[k] + middles * (high[k] - low[k]) for k in range(2))
        numbers = self.numbers(x, y)
        shades = (numbers * 5 + numbers // _COLORS * 7) % _COLORS
        rows = [
            [None if number < 0 else shade for number, shade in zip(*pair, strict=True)]
            for pair in zip(numbers.tolist(), shades.tolist(), strict=True)
        ]
        return Heatmap(
            title=title,
            x=[round(one, 4) for one in x.tolist()],
            y=[round(one, 4) for one in y.tolist()],
            z=rows,
            x_label="first direction",
            y_label="second direction",
            points=points,
            caption=f"{self.count:,} regions; on each the network is linear. Colors only tell neighbors apart.",
        )


@implements("E2", cites=("hanin2019complexity",))
def regions_on_segment(
    model: nn.Module, start: Tensor, end: Tensor, *, most: int = MOST
) -> _SegmentRegions:
    r"""Count the linear regions of a network on the segment between two inputs, exactly.

    Formula: $\#\left\{ \text{activation patterns of } f(x + t (x' - x)),\ t \in (0, 1) \right\}$

    Reading: One region means that the network is linear between the inputs. Two neighbors may have
    the same slope, for example where a unit that nothing reads switches; ``pieces`` joins them.

    Assumes: A network of affine functions, ReLU and its relatives, absolute values, clamps, maxima
    and max-pooling, in evaluation mode. A function without a rule is refused by name.

    Args:
        model: Any piecewise linear module; it is not changed.
        start: One input, without the dimension of samples.
        end: The other.
        most: The largest number of regions before it gives up.

    >>> net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    >>> _ = net[0].weight.data.fill_(1.0), net[0].bias.data.copy_(torch.tensor([-0.25, -0.5]))
    >>> regions_on_segment(net, torch.zeros(1), torch.ones(1)).ends.tolist()
    [0.0, 0.25, 0.5, 1.0]
    """
    cells = Intervals()
    values, _ = run(_double(model), _rows(start, end), cells, integer("most", most))
    values = values.reshape(*values.shape[:2], -1)
    starts, slopes = values[:, :1], values[:, 1:] - values[:, :1]
    ends = torch.stack([cells.ends[:-1], cells.ends[1:]], 1)[..., None]
    scale = slopes.abs().amax().clamp_min(1e-300)
    changes = (slopes.diff(dim=0).abs().amax((1, 2)) > SAME * scale).sum()
    return _SegmentRegions(cells.ends, starts + ends * slopes, int(changes) + 1)


@implements("E2", cites=("hanin2019complexity", "balestriero2018spline"))
def regions_on_slice(
    model: nn.Module,
    origin: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    corners: Tensor | None = None,
    most: int = MOST,
) -> SliceRegions:
    r"""Count the linear regions of a network in a part of a plane, exactly.

    Formula: $\#\left\{ \text{activation patterns of } f(x_0 + s_1 u + s_2 v),\ (s_1, s_2) \in P
    \right\}$

    Reading: Every region is a convex polygon. Sampling a grid misses small ones; this does not. The
    plane is cut by one unit after the other, all polygons at once.

    Assumes: As ``regions_on_segment``. Polygons thinner than 1e-11 of the plane are not seen.

    Args:
        model: Any piecewise linear module; it is not changed.
        origin: The input x₀ at (0, 0), without the dimension of samples.
        first: The direction u.
        second: The direction v.
        corners: The corners of the convex part P in order, of shape (corners, 2); the square from
            −1 to 1 if None.
        most: The largest number of regions before it gives up.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> _ = net[0].weight.data.copy_(torch.eye(2)), net[0].bias.data.zero_()
    >>> regions_on_slice(net, torch.zeros(2), torch.eye(2)[0], torch.eye(2)[1]).count
    4
    """
    if corners is None:
        corners = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.double)
    if corners.ndim != 2 or corners.shape[1] != 2 or len(corners) < 3:
        raise InputError(
            f"corners must be at least three points of a plane, got the shape {tuple(corners.shape)}. "
            "Pass one row per corner."
        )
    cells = Polygons(corners)
    anchors = _rows(origin, origin + first, origin + second)
    values, _ = run(_double(model), anchors, cells, integer("most", most))
    values = values.reshape(*values.shape[:2], -1)
    slopes = values[:, 1:] - values[:, :1]
    return SliceRegions(cells.corners, cells.counts, slopes)


def _double(model: nn.Module) -> nn.Module:
    return copied(model).cpu().double().eval()


def _rows(*points: Tensor) -> Tensor:
    shapes = {tuple(point.shape) for point in points}
    if len(shapes) > 1 or not all(point.is_floating_point() for point in points):
        raise InputError(
            "The inputs must be real numbers of one shape, got "
            f"{', '.join(map(str, sorted(shapes)))}. Pass single samples, as in images[0]."
        )
    return torch.stack([point.detach().cpu().double() for point in points])


def _inside(corners: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Tell which places of a grid lie in a convex polygon, whichever way around it is."""
    edges = corners.roll(-1, 0) - corners
    across = (x[None, :, None] - corners[:, 0]) * edges[:, 1]
    along = (y[:, None, None] - corners[:, 1]) * edges[:, 0]
    sides = along - across
    return (sides >= 0).all(2) | (sides <= 0).all(2)
