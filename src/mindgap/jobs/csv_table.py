"""A CSV file with a header, read with care: whatever is wrong with it is told by line and column."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable
from pathlib import Path

from mindgap.core.errors import InputError


class Table:
    """The rows of a CSV file with a header."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        try:
            with Path(path).expanduser().open(encoding="utf-8-sig", newline="") as file:
                lines = [[cell.strip() for cell in line] for line in csv.reader(file)]
        except FileNotFoundError as error:
            raise InputError(f"The points must be in an existing CSV file, got {str(path)!r}. Check it.") from error
        except (OSError, ValueError, csv.Error) as error:
            raise InputError(
                f"The points must be in a CSV file, got {str(path)!r} ({error}). Write it anew."
            ) from error
        full = [(place, line) for place, line in enumerate(lines, 1) if any(line)]
        if not full:
            raise InputError(f"{path} must have a header and rows, got an empty file. Write number,x0,y0 first.")
        self.header = full[0][1]
        for place, line in full[1:]:
            if len(line) != len(self.header):
                raise InputError(
                    f"{path} must have {len(self.header)} cells in every row as in its header, got {len(line)} in line "
                    f"{place}. Correct it."
                )
        self.rows = [dict(zip(self.header, line, strict=True), **{"": str(place)}) for place, line in full[1:]]

    def find(self, named: Iterable[str], letter: str) -> list[str]:
        """The columns of the inputs or of the outputs: as named, or a letter with a number."""
        for name in named:
            if name not in self.header:
                raise InputError(f"{self.path} must have a column {name!r}, got {', '.join(self.header)}. Rename one.")
        plain = [name for name in self.header if re.fullmatch(rf"{letter}\d*", name)]
        return list(named) or sorted(plain, key=lambda name: int(name[1:] or 0))

    def number(self, row: dict[str, str], name: str) -> float:
        """A cell as a number."""
        try:
            return float(row[name])
        except ValueError as error:
            raise InputError(
                f"{self.path} must hold numbers, got {row[name]!r} in line {row['']}, column {name}. Correct it."
            ) from error

    def integer(self, row: dict[str, str], name: str) -> int:
        """A cell as a whole number."""
        value = self.number(row, name)
        if not value.is_integer():
            raise InputError(f"{self.path} must hold whole numbers in {name}, got {row[name]}. Correct it.")
        return int(value)
