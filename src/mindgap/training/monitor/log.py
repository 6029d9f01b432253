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
    wrong = next((line for line in lines if not _is_whole(line)), None)
    if wrong is not None:
        raise InputError(
            f"{shown(str(target))} must hold lines as a monitor writes them, got another one, "
            f"{shown(json.dumps(plain(wrong))[:80])}. Remove it, or train again."
        )
    return lines


_NUMBER = (int, float)
_LAYER = {
    **dict.fromkeys(("gradient", "weight", "update"), _NUMBER),
    **dict.fromkeys(("activation?", "backward?"), (*_NUMBER, type(None))),
    "matrix": bool,
    "time?": {"steps": int, "rate": (*_NUMBER, type(None)), "reach": _NUMBER, "growth": _NUMBER},
}
_UNITS = {"function": str, "units": int, "dead?": _NUMBER, "saturated?": _NUMBER}
_COURSE = [(*_NUMBER, type(None))]
_LINE = {
    **dict.fromkeys(("step?", "every?", "first?"), int),
    **dict.fromkeys(("losses?", "gradient?"), _COURSE),
    "layers?": {"*": _LAYER},
    "units?": {"*": _UNITS},
    "trouble?": {"step": int, "what": str, "skipped": bool, "gradients?": [str]},
}


def _is_whole(line: dict[str, Any]) -> bool:
    """Tell whether a line has what its kind needs."""
    needed = {"first"} if line.get("losses") or line.get("gradient") else set()
    needed |= {"step", "units"} if line.get("layers") else set()
    return needed <= line.keys() and _fits(line, _LINE)


def _fits(value: Any, shape: Any) -> bool:
    """Compare a value with its types; ``?`` ends a key that may be absent, ``*`` is any key."""
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(each, shape[0]) for each in value)
    if not isinstance(shape, dict):
        return isinstance(value, shape)
    if not isinstance(value, dict):
        return False
    if "*" in shape:
        return all(_fits(each, shape["*"]) for each in value.values())
    missing = [key for key in shape if not key.endswith("?") and key not in value]
    known = {key.rstrip("?"): kind for key, kind in shape.items()}
    return not missing and all(_fits(value[key], known[key]) for key in value if key in known)


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return unworded(value) if isinstance(value, dict) else None
