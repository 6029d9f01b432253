"""Landscape: the losses on a grid around a model, with charts, words and files."""

import csv
import dataclasses
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mindgap.core import (
    Chart,
    Contour,
    Heatmap,
    InputError,
    Line,
    Mark,
    Points,
    Series,
    Surface,
    Table,
    Which,
    write_whole,
)
from mindgap.ops.landscape.convexity import curvature_ratios
from mindgap.ops.landscape.paths import Path as Between

RATIO = 0.01  # negative over largest curvature, above which a point counts as not convex
LEVELS = 9  # contour lines
ENDINGS = (".html", ".htm", ".csv", ".png", ".json")


@dataclasses.dataclass(frozen=True)
class Trail:
    """A line through weight space, seen in the plane of the grid.

    Args:
        name: What moved along it.
        coordinates: One row per place.
        losses: The losses there, in the plane.
    """

    name: str
    coordinates: Tensor
    losses: Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Landscape:
    """The loss around a trained model: what :func:`mindgap.landscape` returns.

    Args:
        name: The model.
        settings: How the directions were made, what batch normalization did, which samples.
        x: Places along the first direction.
        y: Places along the second; a single zero for a line.
        losses: One row per y, one column per x.
        center: The loss of the model itself.
        labels: What the two directions are.
        which: The data whose loss it is.
        trails: A training run, or the ways to another minimum.
        between: The losses on the ways to another minimum.
        facts: Further numbers.
    """

    name: str
    settings: Mapping[str, str]
    x: Tensor
    y: Tensor
    losses: Tensor
    center: float
    labels: tuple[str, str]
    which: Which = "train"
    trails: tuple[Trail, ...] = ()
    between: Between | None = None
    facts: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def not_convex(self) -> float | None:
        """Share of inner points above the chord of two neighbors; None for a line."""
        if min(self.losses.shape) < 3 or not bool(torch.isfinite(self.losses).all()):
            return None
        ratios = curvature_ratios(self.x, self.y, self.losses)
        return float((ratios > RATIO).double().mean())

    @property
    def lowest(self) -> tuple[float, float, float]:
        """The smallest loss of the grid and its two coordinates."""
        place = int(torch.nan_to_num(self.losses, nan=torch.inf).argmin())
        row, column = divmod(place, len(self.x))
        return float(self.losses[row, column]), float(self.x[column]), float(self.y[row])

    def numbers(self) -> dict[str, float]:
        """Return what the surface says, as numbers with names."""
        finite = self.losses[torch.isfinite(self.losses)]
        found = {
            "loss of the model": self.center,
            "lowest loss of the grid": self.lowest[0],
            "median loss of the grid": float(finite.median()),
            "highest loss of the grid": float(finite.max()),
        }
        if self.not_convex is not None:
            found["share of the grid that is not convex"] = self.not_convex
        if self.between is not None:
            found["barrier on the line"] = self.between.line_barrier
            found["barrier on the bent path"] = self.between.bent_barrier
        return {**found, **self.facts}

    def table(self) -> Table:
        """Return numbers, settings and charts."""
        rows = (*self.numbers().items(), *self.settings.items())
        return Table(
            title=f"Loss landscape of {self.name}",
            columns=("", "value"),
            rows=rows,
            notes=self._notes(),
            charts=self.charts(),
        )

    def _notes(self) -> tuple[str, ...]:
        return (
            "A surface is a slice: two directions of many. What it shows of the whole loss depends "
            "on the directions and their normalization.",
            "A point that lies above the chord of its neighbors proves that the loss is not convex; "
            "that none does proves nothing (Li et al., 2018).",
        )

    def charts(self) -> tuple[Chart, ...]:
        """Return the surface, its contours, and cuts along both directions."""
        found: list[Chart] = []
        if len(self.y) > 1:
            found += [self.surface(), self._contours()]
        if self.between is not None:
            found.append(self._ways(self.between))
        return (*found, self._cuts())

    def surface(self) -> Surface:
        """Return the losses as a surface, with all trails on it."""
        if len(self.y) < 2:
            raise InputError(
                "A surface must have two directions, got a line. Compute it with dimensions=2."
            )
        finite = self.losses[torch.isfinite(self.losses)]
        usual = float(finite.quantile(0.9))
        return Surface(
            title="Loss surface",
            x=self.x.tolist(),
            y=self.y.tolist(),
            z=_known(self.losses),
            top=usual if float(finite.max()) > 3 * usual else None,
            x_label=self.labels[0],
            y_label=self.labels[1],
            z_label=self._loss,
            marks=[Mark(name="this model", x=0.0, y=0.0)],
            paths=[
                Points(
                    name=trail.name,
                    x=trail.coordinates[:, 0].tolist(),
                    y=trail.coordinates[:, 1].tolist(),
                    values=_known(trail.losses),
                )
                for trail in self.trails
            ],
        )

    @property
    def _loss(self) -> str:
        return "training loss" if self.which == "train" else "test loss"

    def _contours(self) -> Heatmap:
        positive = bool((self.losses > 0).all()) and bool(torch.isfinite(self.losses).all())
        heights = self.losses.log10() if positive else self.losses
        finite = heights[torch.isfinite(heights)]
        levels = torch.linspace(float(finite.min()), float(finite.max()), LEVELS + 2)[1:-1].tolist()
        return Heatmap(
            title="Contours",
            x=self.x.tolist(),
            y=self.y.tolist(),
            z=_known(heights),
            z_label=f"log₁₀ {self._loss}" if positive else self._loss,
            x_label=self.labels[0],
            y_label=self.labels[1],
            contours=[Contour(name="equal loss", z=_known(heights - level)) for level in levels],
            points=[
                *(
                    Points(
                        name=trail.name,
                        x=trail.coordinates[:, 0].tolist(),
                        y=trail.coordinates[:, 1].tolist(),
                    )
                    for trail in self.trails
                ),
                Points(name="this model", x=[0.0], y=[0.0], symbol="diamond"),
            ],
        )

    def _cuts(self) -> Line:
        row, column = int(self.y.abs().argmin()), int(self.x.abs().argmin())
        lines = [Series(name=self.labels[0], x=self.x.tolist(), y=_known(self.losses[row]))]
        if len(self.y) > 1:
            along = _known(self.losses[:, column])
            lines.append(Series(name=self.labels[1], x=self.y.tolist(), y=along))
        return Line(
            title="Cuts through the model",
            x_label="place along the direction",
            y_label=self._loss,
            series=lines,
        )

    def _ways(self, between: Between) -> Line:
        return Line(
            title="From one minimum to the other",
            x_label="place between the minima",
            y_label=self._loss,
            series=[
                Series(name="straight line", x=between.places.tolist(), y=_known(between.line)),
                Series(name="bent path", x=between.places.tolist(), y=_known(between.bent)),
            ],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "name": self.name,
            "settings": dict(self.settings),
            "numbers": self.numbers(),
            "x": self.x.tolist(),
            "y": self.y.tolist(),
            "losses": _known(self.losses),
            "trails": {
                trail.name: {
                    "coordinates": trail.coordinates.tolist(),
                    "losses": _known(trail.losses),
                }
                for trail in self.trails
            },
        }

    def to_csv(self) -> str:
        """Return one line per point: what it belongs to, its coordinates and its loss."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["part", "x", "y", "loss"])
        for y, row in zip(self.y.tolist(), self.losses.tolist(), strict=True):
            writer.writerows(
                ["grid", x, y, loss] for x, loss in zip(self.x.tolist(), row, strict=True)
            )
        for trail in self.trails:
            places = zip(trail.coordinates.tolist(), trail.losses.tolist(), strict=True)
            writer.writerows([trail.name, *place, loss] for place, loss in places)
        return text.getvalue()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a page (.html), the numbers (.csv, .json) or a picture of the surface (.png).

        Args:
            path: The file to write.
        """
        ending = Path(path).suffix.lower()
        if ending == ".csv":
            return write_whole(path, self.to_csv())
        if ending == ".json":
            from mindgap.core.plain import canonical

            return write_whole(path, canonical(self.to_dict()))
        if ending == ".png":
            from mindgap.report.figures.raster import png_of
            from mindgap.report.figures.still import surface_still

            image = png_of(str(surface_still(self.surface())))
            return write_whole(path, lambda file: file.write(image))
        if ending in (".html", ".htm"):
            return self._page(path)
        raise InputError(
            f"The path of a landscape must end in {', '.join(ENDINGS)}, got {str(path)!r}. Rename it."
        )

    def _page(self, path: str | os.PathLike[str]) -> Path:
        from mindgap.jobs.landscape.verdict import judge_landscape
        from mindgap.report.pages.study import study_page
        from mindgap.report.report import versions
        from mindgap.runs.work import now

        results = {
            "study": "landscape",
            "fields": {},
            "table": self.table().to_dict(),
            "versions": versions(),
            "date": now(),
        }
        return study_page(results, path, judge_landscape(self), kind="loss landscape")

    def __str__(self) -> str:
        return str(self.table())


def _known(values: Tensor) -> Any:
    """Return plain numbers, with None for those that are not finite."""
    if values.ndim > 1:
        return [_known(row) for row in values]
    return [value if abs(value) < float("inf") else None for value in values.tolist()]
