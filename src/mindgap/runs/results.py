"""Results: a sweep as one JSON file, complete enough to draw the table again without running anything."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mindgap.core.errors import InputError
from mindgap.core.files import write_whole
from mindgap.core.study import Trial
from mindgap.core.table import Table
from mindgap.runs.plain import plain, restored
from mindgap.runs.store import StoredTrial
from mindgap.runs.sweep import Sweep
from mindgap.runs.trial import version_of
from mindgap.runs.work import now

SCHEMA = 1
_NEEDED = ("study", "fields", "expected", "trials", "table", "versions", "cost", "date")


def save_results(sweep: Sweep, path: str | os.PathLike[str]) -> Path:
    """Write study, trials, records, table, versions and cost of a sweep to a JSON file, whole or not at all."""
    return write_whole(path, json.dumps(plain(as_results(sweep)), indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def as_results(sweep: Sweep) -> dict[str, Any]:
    """What :func:`save_results` writes."""
    rows = [row for row in sweep.rows if row is not None]
    return {
        "schema": SCHEMA,
        "study": sweep.study.name,
        "fields": sweep.study.parameters,
        "expected": dict(sweep.study.expected),
        "complete": sweep.complete,
        "table": sweep.table.to_dict(),
        "trials": [_trial(trial, row) for trial, row in zip(sweep.trials, sweep.rows, strict=True)],
        "versions": {name: _distinct(rows, name) for name in ("mindgap", "torch", "python")},
        "code": version_of(sweep.study),
        "cost": {name: sum(getattr(row, name) for row in rows) for name in ("wall_seconds", "cpu_seconds")},
        "date": now(),
    }


def load_results(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read back what :func:`save_results` wrote."""
    try:
        data = restored(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} must be a file of results, got: {error.strerror}. Check the path.") from error
    except ValueError as error:
        raise InputError(f"{path} must be a JSON file of results, got: {error}. Save the sweep again.") from error
    return _checked(data, path)


def table_of(results: Mapping[str, Any]) -> Table:
    """The table inside results."""
    kept = results["table"]
    return Table(
        title=kept["title"],
        columns=tuple(kept["columns"]),
        rows=tuple(tuple(row) for row in kept["rows"]),
        notes=tuple(kept["notes"]),
        charts=tuple(kept["charts"]),
    )


def _trial(trial: Trial, row: StoredTrial | None) -> dict[str, Any]:
    head = {"parameters": dict(trial.parameters), "seed": int(trial.seed)}
    if row is None:
        return head | {"status": "missing"}
    tail = {"record": row.record} if row.status == "done" else {"error": row.error}
    return head | {"status": row.status, "wall_seconds": row.wall_seconds, "cpu_seconds": row.cpu_seconds} | tail


def _distinct(rows: list[StoredTrial], name: str) -> list[str]:
    return sorted({getattr(row, name) for row in rows})


def _checked(data: Any, path: str | os.PathLike[str]) -> dict[str, Any]:
    missing = [name for name in _NEEDED if name not in data] if isinstance(data, dict) else list(_NEEDED)
    if missing:
        raise InputError(f"{path} must hold results of a sweep, got no {missing[0]!r} in it. Save the sweep again.")
    if data.get("schema") != SCHEMA:
        raise InputError(f"{path} must have schema {SCHEMA}, got {data.get('schema')!r}. Upgrade mindgap.")
    return dict(data)
