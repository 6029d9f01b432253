"""Points as CSV files: points to evaluate, values from elsewhere, and all results.

What is wrong with a file is reported by line and column.
"""

import csv
import dataclasses
import io
import math
import os
import re
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from mindgap.core import InputError, expanded
from mindgap.sampling.taylor_sampler import TaylorSampler
from mindgap.sampling.trail import Asked


class _CsvFile:
    """The rows of a CSV file with a header.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        try:
            with expanded(path).open(encoding="utf-8-sig", newline="") as file:
                lines = [[cell.strip() for cell in line] for line in csv.reader(file)]
        except FileNotFoundError as error:
            raise InputError(
                f"The points must be in an existing CSV file, got {str(path)!r}. Check it."
            ) from error
        except (OSError, ValueError, csv.Error) as error:
            raise InputError(
                f"The points must be in a CSV file, got {str(path)!r} ({error}). Write it again."
            ) from error
        full = [(place, line) for place, line in enumerate(lines, 1) if any(line)]
        if not full:
            raise InputError(
                f"{path} must have a header and rows, got an empty file. Write number,x0,y0 first."
            )
        self.header = full[0][1]
        for place, line in full[1:]:
            if len(line) != len(self.header):
                raise InputError(
                    f"{path} must have {len(self.header)} cells in every row as in its header, "
                    f"got {len(line)} in line {place}. Correct it."
                )
        self.rows = [
            dict(zip(self.header, line, strict=True), **{"": str(place)})
            for place, line in full[1:]
        ]

    def find(self, named: Iterable[str], letter: str) -> list[str]:
        """Find the columns of inputs or outputs: as named, or a letter with a number."""
        for name in named:
            if name not in self.header:
                raise InputError(
                    f"{self.path} must have a column {name!r}, got {', '.join(self.header)}. "
                    "Rename one."
                )
        plain = [name for name in self.header if re.fullmatch(rf"{letter}\d*", name)]
        return list(named) or sorted(plain, key=lambda name: int(name[1:] or 0))

    def number(self, row: dict[str, str], name: str) -> float:
        """Read a cell as a number."""
        try:
            return float(row[name])
        except ValueError as error:
            raise InputError(
                f"{self.path} must hold numbers, got {row[name]!r} in line {row['']}, column "
                f"{name}. Correct it."
            ) from error

    def integer(self, row: dict[str, str], name: str) -> int:
        """Read a cell as a whole number."""
        value = self.number(row, name)
        if not value.is_integer():
            raise InputError(
                f"{self.path} must hold whole numbers in {name}, got {row[name]}. Correct it."
            )
        return int(value)


NEAR = 1e-6  # of an axis: a coordinate that is farther off belongs to another point


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of inputs and outputs in files.

    Args:
        inputs: Names of all inputs; x0, x1 … if empty.
        outputs: Names of all outputs; y0, y1 … if empty.

    >>> Columns(inputs=("heat",)).named("inputs", 1), Columns().named("outputs", 2)
    (['heat'], ['y0', 'y1'])
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def named(self, kind: str, count: int) -> list[str]:
        """Return the ``count`` names of ``"inputs"`` or ``"outputs"``."""
        given: tuple[str, ...] = getattr(self, kind)
        if given and len(given) != count:
            raise InputError(
                f"There must be a name for each of {count} {kind}, got {', '.join(given)}. Name "
                "all."
            )
        return list(given) or [f"{'x' if kind == 'inputs' else 'y'}{k}" for k in range(count)]


DEFAULT = Columns()


def asked_csv(asked: Sequence[Asked], columns: Columns, dimension: int) -> str:
    """Write points to evaluate: number and coordinates, with all their digits."""
    return _written(
        ["number", *columns.named("inputs", dimension)], ([one.number, *one.point] for one in asked)
    )


def points_csv(sampler: TaylorSampler, columns: Columns) -> str:
    """Write all points: number, inputs, values, why chosen, acquisition value and error."""
    width = sampler.width or len(columns.outputs) or 1
    answers, failed, acquisition = sampler.answers, sampler.failed, _acquisition_values(sampler)
    header = [
        "number",
        *columns.named("inputs", sampler.domain.dimension),
        *columns.named("outputs", width),
    ]
    rows = (
        [
            one.number,
            *one.point,
            *answers.get(one.number, [""] * width),
            one.why,
            acquisition.get(one.number, ""),
            failed.get(one.number, ""),
        ]
        for one in sampler.asked
    )
    return _written([*header, "why", "acquisition", "error"], rows)


def _acquisition_values(sampler: TaylorSampler) -> dict[int, float]:
    """Acquisition values of the known points; none where they need a function that is missing."""
    if sampler.function is None and sampler.acquisition.calls:
        return {}
    return dict(zip(sorted(sampler.answers), sampler.acquisition_values().tolist(), strict=True))


def read_known(path: str | os.PathLike[str], columns: Columns) -> tuple[Tensor, Tensor, Columns]:
    """Read points and values of a file, and its columns; rows without values are left out."""
    table = _CsvFile(path)
    inputs, outputs = table.find(columns.inputs, "x"), table.find(columns.outputs, "y")
    if not inputs or not outputs:
        kind, letter, option = (
            ("outputs", "y", "--outputs") if inputs else ("inputs", "x", "--names")
        )
        raise InputError(
            f"{path} must have its {kind} in columns {letter}0, {letter}1 … or as {option} names "
            f"them, got {', '.join(table.header)}. Name them."
        )
    rows = [
        row for row in table.rows if not row.get("error") and any(row[name] for name in outputs)
    ]
    points = [[table.number(row, name) for name in inputs] for row in rows]
    values = [[table.number(row, name) for name in outputs] for row in rows]
    if not rows:
        raise InputError(f"{path} must hold a point with its value, got none. Add a row.")
    found = Columns(tuple(inputs), tuple(outputs))
    return (
        torch.tensor(points, dtype=torch.float64),
        torch.tensor(values, dtype=torch.float64),
        found,
    )


def read_told(
    path: str | os.PathLike[str], sampler: TaylorSampler, columns: Columns
) -> tuple[dict[int, list[float]], dict[int, str]]:
    """Read the new values and new failures of a file, by number.

    What was told before may be repeated and is left out; what differs from it is refused.
    """
    table = _CsvFile(path)
    named = columns.inputs if set(columns.inputs) & set(table.header) else ()  # they are optional
    outputs, inputs = table.find(columns.outputs, "y"), table.find(named, "x")
    if "number" not in table.header or not (outputs or "error" in table.header):
        raise InputError(
            f"{path} must have the columns number and y0, y1 … (or as --outputs names them) or "
            f"error, got {', '.join(table.header)}. Rename them."
        )
    values: dict[int, list[float]] = {}
    failures: dict[int, str] = {}
    for row in table.rows:
        key = table.integer(row, "number")
        empty = not any(row[name] for name in outputs)
        if empty and not row.get("error"):
            continue  # still to come
        if key in values or key in failures:
            raise InputError(
                f"{path} must name every point once, got number {key} twice. Leave one row out."
            )
        if not 0 <= key < len(sampler.asked):
            raise InputError(
                f"{path} must hold points that were asked, got number {key} of "
                f"{len(sampler.asked)}. Ask first."
            )
        _same_point(table, row, inputs, sampler, key)
        if row.get("error"):
            failures[key] = row["error"]
        else:
            values[key] = [table.number(row, name) for name in outputs]
    _unchanged(path, sampler, values, failures)
    told = sampler.answers.keys() | sampler.failed.keys()
    return {key: values[key] for key in values if key not in told}, {
        key: failures[key] for key in failures if key not in told
    }


def _unchanged(
    path: object, sampler: TaylorSampler, values: dict[int, list[float]], failures: dict[int, str]
) -> None:
    """Refuse values that differ from those told before."""
    known, failed = sampler.answers, sampler.failed
    for key in [*values, *failures]:
        finite = key in values and all(map(math.isfinite, values[key]))
        if (key in known and values.get(key) != known[key]) or (key in failed and finite):
            raise InputError(
                f"{path} must not change what was told, got {values.get(key, failures.get(key))} "
                f"for point {key}, which has {known.get(key, failed.get(key))}. Leave it out, or "
                "begin another session."
            )


def _same_point(
    table: _CsvFile, row: dict[str, str], inputs: list[str], sampler: TaylorSampler, key: int
) -> None:
    """Refuse coordinates that differ from those that were asked."""
    if len(inputs) != sampler.domain.dimension:
        return
    low, high = (end.tolist() for end in sampler.domain.bounds)
    for axis, name in enumerate(inputs):
        asked = sampler.asked[key].point[axis]
        if row[name] and not abs(table.number(row, name) - asked) <= NEAR * (
            high[axis] - low[axis]
        ):
            raise InputError(
                f"{table.path} must hold point {key} as it was asked, got {name}={row[name]} in "
                f"place of {asked!r}. Put every value in the row of its number."
            )


def _written(header: list[str], rows: Iterable[Sequence[object]]) -> str:
    if len(set(header)) != len(header):
        raise InputError(
            f"Columns must have different names, got {', '.join(header)}. Choose others."
        )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(
        [repr(cell) if isinstance(cell, float) else cell for cell in row] for row in rows
    )
    return text.getvalue()
