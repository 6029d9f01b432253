"""Export: stored trials as CSV or JSON, for a spreadsheet or another tool."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mindgap.core.errors import InputError
from mindgap.core.files import write_whole
from mindgap.runs.plain import plain

if TYPE_CHECKING:
    from mindgap.runs.store import StoredTrial

_SPREAD = ("fields", "parameters", "record")


def export(rows: Sequence[StoredTrial], path: str | os.PathLike[str]) -> Path:
    """Write rows to ``path``; its suffix, ``.csv`` or ``.json``, says how."""
    writers = {".csv": to_csv, ".json": to_json}
    suffix = Path(path).suffix.lower()
    if suffix not in writers:
        raise InputError(f"The file to export to must end in .csv or .json, got {str(path)!r}. Rename it.")
    return write_whole(path, writers[suffix](rows))


def to_json(rows: Sequence[StoredTrial]) -> str:
    """A list of objects in strict JSON."""
    return json.dumps([plain(dataclasses.asdict(row)) for row in rows], indent=1, allow_nan=False) + "\n"


def to_csv(rows: Sequence[StoredTrial]) -> str:
    """One line a trial; parameters and record are spread over columns, nested values stay JSON."""
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(name for line in flat for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(row: StoredTrial) -> dict[str, Any]:
    line: dict[str, Any] = {}
    for name, value in plain(dataclasses.asdict(row)).items():
        if name in _SPREAD and isinstance(value, Mapping):
            line |= {f"{name}.{key}": _cell(item) for key, item in value.items()}
        elif name not in _SPREAD:
            line[name] = _cell(value)
    return line


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict | bool) else value
