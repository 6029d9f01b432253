"""The log of a monitor: one line of JSON per reading, whole also after a kill."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mindgap.core import InputError, expanded, plain, shown, unworded
from mindgap.core.files import unwritable

FORMAT, VERSION = "mindgap monitor", 1
Line = Mapping[str, Any]


class Log:
    """Appends lines to a file; every line is on its way to the disk before the next step.

    Args:
        path: The file. Lines are added to what it holds; a last line that a killed writer left
            unfinished is ended first.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = expanded(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8")
            if _is_torn(self.path):
                self._file.write("\n")
        except OSError as error:
            raise unwritable(self.path, error) from error

    def write(self, line: Line) -> None:
        """Append one line.

        Args:
            line: Plain data; numbers that JSON lacks are written as words.
        """
        self._file.write(_text(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _text(line: Line) -> str:
    strict: dict[str, Any] = {"allow_nan": False, "separators": (",", ":")}
    try:
        return json.dumps(line, **strict)
    except ValueError:  # words for numbers are rarely needed, and searching for them takes longer
        return json.dumps(plain(line), **strict)


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def lines_of(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read a log; lines that a kill cut off are left out.

    Args:
        path: The file that a monitor wrote, or still writes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = Log(Path(folder) / "log.jsonl")
    ...     log.write({"format": FORMAT, "version": VERSION})
    ...     log.write({"step": 1})
    ...     _ = log._file.write('{"step": 2')
    ...     log.close()
    ...     lines_of(log.path)[1:]
    [{'step': 1}]
    """
    target = expanded(path)
    try:
        text = target.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(
            f"{shown(str(target))} must be the log of a monitor, got: {error.strerror}. Pass the path that was "
            "given to Monitor(log=…)."
        ) from error
    lines = [line for line in map(_parsed, text.splitlines()) if line is not None]
    if not lines or lines[0].get("format") != FORMAT or lines[0].get("version") != VERSION:
        raise InputError(
            f"{shown(str(target))} must be the log of a monitor, got a file that does not begin like one. Pass "
            "the path that was given to Monitor(log=…)."
        )
    return lines


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return unworded(value) if isinstance(value, dict) else None
