"""A sampling session: its state, rebuilt from events, and the journal of events on disk."""

import contextlib
import dataclasses
import json
import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from mindgap.core import InputError, expanded

FORMAT = "mindgap-sampling-2"
# Seconds to wait for a lock: what a killed driver was just starting holds it until it is loaded.
GRACE = 1.0


@dataclasses.dataclass(frozen=True)
class Asked:
    """A point to evaluate.

    Args:
        number: Number by which its value is told.
        point: Its coordinates.
        why: Why it was chosen: ``"initial"`` (of the initial design), ``"acquisition"`` or
            ``"given"`` (evaluated elsewhere).

    >>> Asked(7, (0.5, 0.25)).why
    'initial'
    """

    number: int
    point: tuple[float, ...]
    why: str = "initial"


class Trail:
    """Points by their number, with their values or the reasons why they failed."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.points: list[Asked] = []
        self.answers: dict[int, list[float]] = {}
        self.failures: dict[int, str] = {}
        self.initial = 0  # points of the initial design that were asked
        self._known: tuple[Tensor, Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.points)

    @property
    def width(self) -> int | None:
        """Number of outputs of a value; None until there is one."""
        return len(next(iter(self.answers.values()))) if self.answers else None

    @property
    def pending(self) -> list[Asked]:
        """Points that have neither a value nor a failure."""
        return [
            one
            for one in self.points
            if one.number not in self.answers and one.number not in self.failures
        ]

    def asked(self, points: Tensor, why: Sequence[str]) -> list[Asked]:
        """Give points the next numbers, without recording them."""
        first = len(self.points)
        rows = points.double().tolist()
        return [
            Asked(first + k, tuple(row), word)
            for k, (row, word) in enumerate(zip(rows, why, strict=True))
        ]

    def add(self, asked: Sequence[Asked]) -> None:
        """Record points that were asked."""
        self.points.extend(asked)
        self.initial += sum(one.why == "initial" for one in asked)

    def answer(self, number: int, value: list[float]) -> dict[str, Any]:
        """Make the event of a value; one that is not finite makes the event of a failure."""
        if not value:
            raise InputError(
                f"The value of point {number} must be one number or more, got none. Tell its value."
            )
        if any(math.isnan(part) for part in value):
            return self.failure(number, "the value is not finite")
        return {"told": number, "value": value}

    def failure(self, number: int, reason: str) -> dict[str, Any]:
        """Make the event of a failure."""
        return {"failed": number, "reason": str(reason)}

    def check(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Refuse events of unknown or answered points, and values of another length."""
        seen: set[int] = set()
        for event in events:
            number = event["told"] if "told" in event else event["failed"]
            if (
                not isinstance(number, int)
                or isinstance(number, bool)
                or not 0 <= number < len(self.points)
            ):
                raise InputError(
                    f"A value must be told for a point that was asked, got number {number!r} of "
                    f"{len(self.points)}. Ask first."
                )
            if number in self.answers or number in self.failures or number in seen:
                raise InputError(
                    f"A point must be told once, got point {number} again. Leave the second value "
                    "out."
                )
            seen.add(number)
        self.check_width(events)

    def check_width(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Refuse values of another length than the first."""
        width = self.width
        for event in events:
            if "told" in event:
                width = width or len(event["value"])
                if len(event["value"]) != width:
                    raise InputError(
                        f"Every value must have {width} numbers as the first, got "
                        f"{len(event['value'])} for point {event['told']}. Tell values of one "
                        "length."
                    )

    def replay(self, event: Mapping[str, Any]) -> None:
        """Apply an event."""
        if "asked" in event:
            self.add([Asked(event["asked"], tuple(event["x"]), event["why"])])
        elif "told" in event:
            self.answers[event["told"]] = event["value"]
            self._known = None
        elif "failed" in event:
            self.failures[event["failed"]] = event["reason"]

    def known(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return known points, their values, and a mask of those chosen by acquisition."""
        if self._known is None:
            order = sorted(self.answers)
            points = torch.tensor([self.points[k].point for k in order], dtype=torch.float64)
            values = torch.tensor([self.answers[k] for k in order], dtype=torch.float64)
            chosen = [self.points[k].why == "acquisition" for k in order]
            self._known = (
                points.view(len(order), self.dimension),
                values.view(len(order), -1) if order else values,
                torch.tensor(chosen, dtype=torch.bool),
            )
        return self._known


class Journal:
    """Events in the order in which they happened: an append-only file of JSON lines.

    A line counts once it ends in a newline. Whatever kills the writer leaves all earlier lines
    intact, and the next opening cuts off the incomplete last line. A lock keeps a second writer
    out.

    Args:
        path: The file; it and its folder are made if they do not exist.
        settings: What the session is bound to; an existing session must have the same.
    """

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self.path, self.id = expanded(path), uuid.uuid4().hex
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
        """Release the file and its lock."""
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
                "A session must be resumed with the settings it began with, got "
                f"{name}={settings[name]!r} where {self.path} has "
                f"{first['settings'].get(name)!r}. Pass that, or begin another session."
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
                f"{self.path} must hold one JSON object per line, got other text. Restore it."
            ) from error
        if not all(isinstance(line, dict) for line in found):
            raise InputError(
                f"{self.path} must hold one JSON object per line, got other text. Restore it."
            )
        return found


def saved_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the settings that a session began with."""
    first: Any = None
    with contextlib.suppress(OSError, ValueError), expanded(path).open("rb") as file:
        first = json.loads(file.readline())
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise InputError(
            f"{path} must be a sampling session, got none that can be read. Begin one first."
        )
    settings: dict[str, Any] = first["settings"]
    return settings


def _lock(file: BinaryIO, path: Path) -> None:
    """Keep the session for this process, or say that another one has it."""
    with contextlib.suppress(ImportError):  # there is no such lock on Windows
        import fcntl

        deadline = time.monotonic() + GRACE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise InputError(
                        f"{path} must be free, got a session that another process is writing. "
                        "Wait for it, or stop it."
                    ) from error
                time.sleep(0.01)
            else:
                return
