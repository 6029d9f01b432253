"""The journal of a sampling session: one line per event, on disk before anybody is told, never half a line lost.

An append-only text file of JSON lines. A line counts once it ends in a newline, so whatever kills
the writer leaves all earlier lines intact; the torn end is cut off at the next opening. A lock
keeps a second writer out.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from mindgap.core import InputError

FORMAT = "mindgap-sampling-1"


class Journal:
    """Events in the order in which they happened."""

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self.path, self.id = Path(path).expanduser(), uuid.uuid4().hex
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = self.path.open("a+b")
        except OSError as error:
            raise InputError(
                f"{self.path} must be a file that can be written, got: {error.strerror}. Choose "
                "another path."
            ) from error
        try:
            _lock(self._file, self.path)
            self.events = self._opened(dict(settings))
        except BaseException:
            self._file.close()
            raise

    def append(self, events: list[dict[str, Any]]) -> None:
        """Write events and wait until they are on disk."""
        text = "".join(json.dumps(event, allow_nan=False) + "\n" for event in events)
        self._file.write(text.encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let others write."""
        self._file.close()

    def _opened(self, settings: dict[str, Any]) -> list[dict[str, Any]]:
        lines = self._whole_lines()
        if not lines:
            self.append([{"format": FORMAT, "id": self.id, "settings": settings}])
            return []
        first, *events = lines
        if first.get("format") != FORMAT:
            raise InputError(
                f"{self.path} must be a sampling session, got another kind of file. Choose "
                "another path, or delete it."
            )
        self.id = str(first.get("id", ""))
        changed = [name for name, value in settings.items() if first["settings"].get(name) != value]
        if changed:
            name = changed[0]
            raise InputError(
                "A session must go on with the settings it began with, got "
                f"{name}={settings[name]!r} where "
                f"{self.path} has {first['settings'].get(name)!r}. Pass that, or begin another "
                "session."
            )
        return events

    def _whole_lines(self) -> list[dict[str, Any]]:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._file.truncate(len(whole))
        try:
            found = [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise InputError(
                f"{self.path} must hold one JSON object a line, got other text. Restore it."
            ) from error
        if not all(isinstance(line, dict) for line in found):
            raise InputError(
                f"{self.path} must hold one JSON object a line, got other text. Restore it."
            )
        return found


def saved_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings that a session began with."""
    first: Any = None
    with contextlib.suppress(OSError, ValueError), Path(path).expanduser().open("rb") as file:
        first = json.loads(file.readline())
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise InputError(
            f"{path} must be a sampling session, got none that can be read. Begin one first."
        )
    settings: dict[str, Any] = first["settings"]
    return settings


def _lock(file: BinaryIO, path: Path) -> None:
    with contextlib.suppress(ImportError):  # there is no such lock on Windows
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"{path} must be free, got a session that another process is writing. Wait for "
                "it, or stop it."
            ) from error
