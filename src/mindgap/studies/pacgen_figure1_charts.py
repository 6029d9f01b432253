"""What is drawn of the toy: the surface with Ψ and bound, and the labels that both optima give to the plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mindgap.ops.variance_map import grid_over
from mindgap.studies.pacgen_toy import Toy
from mindgap.studies.pacgen_toy_optima import landscape, optima

DRAWN = 81  # lines of the surface, each way
CELLS = 61  # lines over the plane of inputs
COLOURS = {"sharp": "#009E73", "flat": "#D55E00"}  # the paper's green and red, told apart by every eye
ABOVE = 1.0  # the surface is cut off so far above the flat optimum, else its walls would hide the minima


def drawing(toy: Toy, lines: int) -> dict[str, Any]:
    """Maps and samples as plain numbers, rounded for a picture."""
    pair, grid = optima(toy, lines).pair, grid_over(toy.inputs, CELLS)
    found = landscape(toy, pair, DRAWN)
    chance = toy.margins(pair[:, 0], pair[:, 1], grid.places).sigmoid()
    return {
        **{name: _short(getattr(found, name)) for name in ("x", "y")},
        **{name: _rows(getattr(found, name)) for name in ("loss", "psi", "bound")},
        "top": round(float(toy.losses(pair)[1]) + ABOVE, 2),
        "plane": {"x": _short(grid.x), "y": _short(grid.y)},
        "chance": [_rows(grid.rows(row), 3) for row in chance],
        "points": [[_short(place), int(label)] for place, label in zip(toy.inputs, toy.labels, strict=True)],
    }


def charts(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One surface and two planes side by side."""
    marks = [
        {"name": f"{which} optimum", "x": record[which]["place"][0], "y": record[which]["place"][1], "color": colour}
        for which, colour in COLOURS.items()
    ]
    surface = {
        "kind": "surface",
        "title": f"Loss around both optima, seed {record['seed']}; what is above {record['top']:g} is cut off",
        "x": record["x"],
        "y": record["y"],
        "z": record["loss"],
        "color": record["psi"],
        "floor": record["bound"],
        "top": record["top"],
        "marks": marks,
        "x_label": "w₁",
        "y_label": "w₂",
        "z_label": "train loss",
        "color_label": "Ψ",
        "floor_label": "bound (8)",
    }
    return [surface, *(_plane(record, place, which) for place, which in enumerate(COLOURS))]


def _plane(record: Mapping[str, Any], place: int, which: str) -> dict[str, Any]:
    chance = record["chance"][place]
    points = [
        {
            "name": name,
            "x": [where[0] for where, label in record["points"] if label == number],
            "y": [where[1] for where, label in record["points"] if label == number],
        }
        for number, name in enumerate(("other clouds", "third cloud"))
    ]
    return {
        "kind": "plane",
        "wide": False,
        "title": f"Labels at the {which} optimum: {100 * record[which]['error']:.1f} % wrong on fresh samples",
        **record["plane"],
        "z": chance,
        "z_label": "chance of the third cloud",
        "x_label": "first input",
        "y_label": "second input",
        "points": points,
        "contours": [{"name": "boundary", "z": [[round(value - 0.5, 4) for value in row] for row in chance]}],
    }


def _rows(table: Tensor, digits: int = 4) -> list[list[float]]:
    return [_short(row, digits) for row in table]


def _short(values: Tensor, digits: int = 4) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
