"""Run one trial, here or in a worker, and record its result and its cost."""

import dataclasses
import datetime as dt
import functools
import os
import platform
import socket
import time
import traceback
from typing import Literal

from mindgap._version import __version__
from mindgap.core import InputError, Record, Study, Trial, ordered

Status = Literal["done", "failed"]
_LONGEST_ERROR = 500


def now() -> str:
    """Return the time in UTC."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


@functools.cache
def _torch_version() -> str:
    from importlib import metadata  # slow to import, and a driver rarely needs it

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a trial: its record as JSON or its error, with cost, host and versions."""

    status: Status
    record: str | None = None
    error: str = ""
    traceback: str = ""
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    pid: int = dataclasses.field(default_factory=os.getpid)
    host: str = dataclasses.field(default_factory=socket.gethostname)
    mindgap: str = __version__
    torch: str = dataclasses.field(default_factory=_torch_version)
    python: str = dataclasses.field(default_factory=platform.python_version)
    started: str = dataclasses.field(default_factory=now)
    finished: str = dataclasses.field(default_factory=now)


def run_trial(study: Study, trial: Trial) -> Outcome:
    """Run a trial; whatever it raises becomes a failed outcome."""
    started, wall, cpu = now(), time.perf_counter(), time.process_time()
    status: Status = "done"
    record, error, text = None, "", ""
    try:
        record = _checked(study.run(trial), study)
    except (Exception, SystemExit) as raised:
        status, error, text = "failed", one_line(raised), traceback.format_exc()
    return Outcome(
        status=status,
        record=record,
        error=error,
        traceback=text,
        wall_seconds=time.perf_counter() - wall,
        cpu_seconds=time.process_time() - cpu,
        started=started,
    )


def one_line(error: BaseException) -> str:
    """Write an error's type and message on one line.

    >>> one_line(ValueError("too\\n  wide"))
    'ValueError: too wide'
    """
    text = " ".join(str(error).split())
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__)[:_LONGEST_ERROR]


def _checked(record: Record, study: Study) -> str:
    if not hasattr(record, "items"):
        raise InputError(
            f"The run method of {study.name} must return a mapping from names to plain data, got "
            f"{type(record).__name__}. Return a dict."
        )
    return ordered(record, "record")
