"""Store: one SQLite file of finished trials, each committed as soon as it is done."""

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from mindgap.core import (
    InputError,
    Study,
    Trial,
    check_types,
    expanded,
    plain,
    restored,
    validated,
    write_whole,
)
from mindgap.core.files import unwritable
from mindgap.runs.claims import CLAIMS_TABLE, Claims
from mindgap.runs.trial_id import fields_of, parameters_of, seed_of, trial_ids
from mindgap.runs.work import Outcome, Status

SCHEMA = 2  # 1 had neither checksums nor claims
_APPLICATION = 0x6D676170  # "mgap": tells our files from those of other programs
_PATIENCE = 60.0  # seconds to wait while another driver writes
_TABLE = """
CREATE TABLE IF NOT EXISTS trials (
  id TEXT PRIMARY KEY, study TEXT NOT NULL, fields TEXT NOT NULL, parameters TEXT NOT NULL,
  seed INTEGER NOT NULL, status TEXT NOT NULL CHECK (status IN ('done', 'failed')), record TEXT,
  error TEXT NOT NULL, traceback TEXT NOT NULL, wall_seconds REAL NOT NULL,
  cpu_seconds REAL NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL, mindgap TEXT NOT NULL,
  torch TEXT NOT NULL, python TEXT NOT NULL, started TEXT NOT NULL, finished TEXT NOT NULL,
  checksum TEXT NOT NULL
)"""
# A row of schema 1 has no checksum, and none is compared.
_UPGRADE = "ALTER TABLE trials ADD COLUMN checksum TEXT NOT NULL DEFAULT ''"
_JSON = ("fields", "parameters", "record")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredTrial:
    """One row: what was run, its result, its cost, and the versions that ran it."""

    id: str
    study: str
    fields: Mapping[str, Any]
    parameters: Mapping[str, Any]
    seed: int
    status: Status
    record: Mapping[str, Any] | None
    error: str
    traceback: str
    wall_seconds: float
    cpu_seconds: float
    pid: int
    host: str
    mindgap: str
    torch: str
    python: str
    started: str
    finished: str


_COLUMNS = tuple(field.name for field in dataclasses.fields(StoredTrial))
_STORED = (*_COLUMNS, "checksum")
_MARKS = ", ".join("?" * len(_STORED))
_RENEW = ", ".join(f"{name} = excluded.{name}" for name in _STORED[1:])
# A finished trial is never overwritten, so that two drivers on one file cannot make two results. A
# failed trial may be, and one that is done without a record.
_ADD = (
    f"INSERT INTO trials ({', '.join(_STORED)}) VALUES ({_MARKS}) "  # noqa: S608  (our columns)
    f"ON CONFLICT (id) DO UPDATE SET {_RENEW} WHERE trials.status = 'failed' "
    "OR trials.record IS NULL"
)


@validated
class Store:
    """Finished trials in one SQLite file, safe for several drivers at once.

    Every trial is its own transaction with ``synchronous=FULL``: neither a killed process nor a
    power cut loses a finished trial.

    Args:
        path: The file, which is created if it does not exist; ``":memory:"`` for none.

    >>> with Store(":memory:") as store:
    ...     len(store.records())
    0
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path if path == ":memory:" else expanded(path)
        with self._told():
            self._connection = _connect(self.path)
        try:
            with self._told():
                _prepare(self._connection, self.path)
        except BaseException:
            self._connection.close()
            raise

    def add(self, identity: str, study: Study, trial: Trial, outcome: Outcome) -> bool:
        """Commit an outcome.

        Args:
            identity: The trial's id.
            study: The study that it belongs to.
            trial: The trial.
            outcome: Its record or its error.

        Returns:
            False if the trial was finished already.
        """
        head = {"id": identity, "study": study.name, "fields": fields_of(study)}
        what = {"parameters": parameters_of(trial), "seed": seed_of(trial)}
        row = head | what | dataclasses.asdict(outcome)
        values = [row[name] for name in _COLUMNS]
        with self._told():
            return self._connection.execute(_ADD, [*values, _checksum(values)]).rowcount > 0

    def records(self, study: str | Study | None = None) -> list[StoredTrial]:
        """Read stored trials.

        Args:
            study: A study for its current trials in their order, the name of a study for all that
                were ever run, or None for everything.
        """
        if not isinstance(study, Study):
            return self._rows(study)
        known = {row.id: row for row in self._rows(study.name)}
        return [
            known[key]
            for key in dict.fromkeys(trial_ids(study, list(study.trials())))
            if key in known
        ]

    @contextlib.contextmanager
    def claims(self) -> Iterator[Claims]:
        """Open the claims of a driver, which end with it."""
        with self._told(), Claims(self.path if isinstance(self.path, Path) else None) as claims:
            yield claims

    def export(self, path: str | os.PathLike[str], study: str | Study | None = None) -> Path:
        """Write stored trials to a file.

        Args:
            path: A file that ends in ``.csv`` or ``.json``.
            study: As in :meth:`records`.
        """
        return export(self.records(study), path)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _rows(self, study: str | None) -> list[StoredTrial]:
        where, values = ("", []) if study is None else (" AND study = ?", [study])
        columns = ", ".join(_STORED)
        # What is done without a record is as good as not run.
        query = (
            f"SELECT {columns} FROM trials WHERE (status = 'failed' OR record IS NOT NULL){where} "  # noqa: S608
            "ORDER BY finished, rowid"
        )
        with self._told():
            rows = self._connection.execute(query, values).fetchall()
        return [_row(row, self.path) for row in rows]

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _sentence(self.path, error) from error


def _row(stored: tuple[Any, ...], path: str | Path) -> StoredTrial:
    try:
        return _intact(stored)
    except (TypeError, ValueError) as error:
        statement = f"DELETE FROM trials WHERE id = '{stored[0]}'"  # noqa: S608  (for the user)
        raise InputError(
            f"{path} must hold trials as they were written, got a damaged one ({error!s:.200}). "
            f'Restore a copy, or run the trial again after: sqlite3 {path} "{statement}"'
        ) from error


def _intact(stored: tuple[Any, ...]) -> StoredTrial:
    *values, checksum = stored
    if checksum and checksum != _checksum(values):
        raise InputError("its checksum is that of another content")
    row = dict(zip(_COLUMNS, values, strict=True))
    read = {name: restored(row[name]) for name in _JSON if row[name] is not None}
    trial = StoredTrial(**row | read)
    check_types(trial, StoredTrial, "trial")
    return trial


def _checksum(values: Sequence[Any]) -> str:
    """Hash a row as SQLite gives it back."""
    return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()


def _connect(path: str | Path) -> sqlite3.Connection:
    if isinstance(path, Path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(path, error) from error
    return sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)


def _prepare(connection: sqlite3.Connection, path: str | Path) -> None:
    # One snapshot, or another driver could create the table between two questions.
    connection.execute("BEGIN")
    _check(connection, path)
    connection.execute("COMMIT")
    _patiently(connection, "PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    _patiently(connection, "BEGIN IMMEDIATE")  # also the proof that the file can be written
    connection.execute(_TABLE)
    connection.execute(CLAIMS_TABLE)
    if "checksum" not in {row[1] for row in connection.execute("PRAGMA table_info(trials)")}:
        connection.execute(_UPGRADE)
    connection.execute("CREATE INDEX IF NOT EXISTS trials_of_study ON trials (study)")
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute("COMMIT")


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Retry while the file is locked: switching to WAL ignores SQLite's own busy timeout."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _check(connection: sqlite3.Connection, path: str | Path) -> None:
    version, application = (
        connection.execute(f"PRAGMA {n}").fetchone()[0] for n in ("user_version", "application_id")
    )
    if application not in (0, _APPLICATION) or (application == 0 and _tables(connection)):
        raise InputError(
            f"{path} must be a file of mindgap's runs, got another program's database. Choose "
            "another path."
        )
    if version > SCHEMA:
        raise InputError(
            f"{path} must have schema {SCHEMA} or older, got {version}. Upgrade mindgap or choose "
            "a new path."
        )
    damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise _damaged(path, damage)


def _tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _damaged(path: str | Path, detail: object) -> InputError:
    text = " ".join(str(detail).split())
    return InputError(
        f"{path} must be an intact SQLite file, got: {text}. Move it away or restore a copy."
    )


def _sentence(path: str | Path, error: sqlite3.Error) -> InputError:
    text = str(error)
    if "locked" in text or "busy" in text:
        return InputError(
            f"{path} must be free to write, got: {text}. Wait for the other process or choose "
            "another path."
        )
    if "full" in text:
        return InputError(
            f"{path} must have room to grow, got: {text}. Free some space and run again."
        )
    if "unable to open" in text or "readonly" in text:
        return InputError(
            f"{path} must be a file that can be written, got: {text}. Choose another path."
        )
    return _damaged(path, text)


_SPREAD = ("fields", "parameters", "record")


def export(rows: Sequence[StoredTrial], path: str | os.PathLike[str]) -> Path:
    """Write rows to ``path`` as its suffix says, ``.csv`` or ``.json``."""
    writers = {".csv": _to_csv, ".json": _to_json}
    suffix = Path(path).suffix.lower()
    if suffix not in writers:
        raise InputError(
            f"The file to export to must end in .csv or .json, got {str(path)!r}. Rename it."
        )
    return write_whole(path, writers[suffix](rows))


def _to_json(rows: Sequence[StoredTrial]) -> str:
    """Write rows as a list of objects in strict JSON."""
    return (
        json.dumps([plain(dataclasses.asdict(row)) for row in rows], indent=1, allow_nan=False)
        + "\n"
    )


def _to_csv(rows: Sequence[StoredTrial]) -> str:
    """Write one line per trial, with a column per parameter and per number of the record."""
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
