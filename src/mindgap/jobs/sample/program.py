"""One attempt to evaluate a point by an external program, controlled through its files."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mindgap.core import write_whole
from mindgap.jobs.sample import wrapper
from mindgap.jobs.sample.answer import Answer, Point, judged
from mindgap.jobs.sample.command import last_line, numbers

if sys.platform != "win32":  # programs are refused there, but the module can be imported
    import fcntl

LONGEST = 200  # characters of a program's own words in a reason
READ = 2**20  # bytes at the end of an output, where its last line is
_SLOWEST = 0.5


class _ProgramLostError(Exception):
    """A program ended together with its wrapper, so that its exit code is unknown."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """What a worker needs to run a program for a point.

    Args:
        words: The command, as a list of words or as one text for the shell.
        shell: Whether to run it in a shell.
        stem: The beginning of the names of its files.
        key: A hash of session, command and point, so that no file of another is taken for its own.
        folder: The working directory of the program.
        point: The coordinates.
        timeout: Seconds after which the program is killed; None for no limit.
        width: Number of values of the other points, where it is known.
        bound: Whether the program ends when its worker does. Any other continues, and the next
            driver finds its value.
    """

    words: tuple[str, ...]
    shell: bool
    stem: str
    key: str
    folder: str
    point: Point
    timeout: float | None
    width: int | None
    bound: bool


def run_program(attempt: Attempt) -> Answer:
    """Run the program, or await the one that is running, and read its value."""
    pause = 0.01
    while True:
        answer = harvested(attempt)
        if answer is not None:
            return answer
        if not running(attempt.stem):
            code = _wrapped(attempt)
            if code not in (0, wrapper.BUSY):
                raise _ProgramLostError(
                    f"its program was stopped (the wrapper ended with code {code})"
                )
            if code == 0 and harvested(attempt) is None:
                raise _ProgramLostError("the files of its program were removed")
        time.sleep(pause)
        pause = min(2 * pause, _SLOWEST)


def harvested(attempt: Attempt) -> Answer | None:
    """Read the answer of the program, if it has ended."""
    found = wrapper.finished(attempt.stem, attempt.key)
    if found is None:
        return None
    said = last_line(_end_of(f"{attempt.stem}.err"))[-LONGEST:]
    with_words = f": {said}" if said else ""
    if found["late"]:
        return Answer(None, f"no answer within {attempt.timeout or 0:g} s{with_words}")
    if found["error"]:
        return Answer(None, str(found["error"]))
    if found["code"]:
        return Answer(None, f"{_exit(found['code'])}{with_words}")
    text = _end_of(f"{attempt.stem}.out")
    values = numbers(text)
    if values is None:
        line = last_line(text)[:LONGEST]
        what = f"the last line printed is not numbers: {line!r}" if line else "nothing was printed"
        return Answer(None, f"{what}{with_words}")
    answer = judged(values, attempt.width)
    return answer if answer.values is not None else Answer(None, f"{answer.reason}{with_words}")


def running(stem: str) -> bool:
    """Return whether a wrapper, or the program of a killed one, is alive and holds the lock."""
    try:
        with Path(f"{stem}.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def stop(stem: str) -> None:
    """End the program at once; its point counts as not evaluated.

    A wrapper first writes its process id and then looks for the stop mark. We first write the mark
    and then look for the process id, so that one of the two is always found.
    """
    with contextlib.suppress(OSError, ValueError, KeyError):
        Path(f"{stem}.stop").touch()
        found = json.loads(Path(f"{stem}.pid").read_text(encoding="utf-8"))
        if running(stem) and wrapper.start_time(found["pid"]) == found["started"]:
            os.kill(found["pid"], signal.SIGTERM)


def tidy(stem: str, *, keep: bool) -> None:
    """Remove the files of an attempt whose answer is told; ``keep`` leaves what it printed."""
    for ending in ("rc", "pid", "json", "stop", "lock", *(() if keep else ("out", "err"))):
        Path(f"{stem}.{ending}").unlink(missing_ok=True)


def _wrapped(attempt: Attempt) -> int:
    """Run the wrapper in a session of its own, where neither Ctrl-C nor our end reaches it."""
    Path(attempt.stem).parent.mkdir(parents=True, exist_ok=True)
    Path(f"{attempt.stem}.stop").unlink(missing_ok=True)
    write_whole(f"{attempt.stem}.json", json.dumps(list(attempt.point)))
    order: dict[str, Any] = dataclasses.asdict(attempt) | {
        "parent": os.getpid() if attempt.bound else 0
    }
    if attempt.shell:
        order["words"] = attempt.words[0]
    process = subprocess.Popen(  # noqa: S603  (our own program)
        [sys.executable, "-I", "-S", wrapper.__file__, json.dumps(order)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait()
    except BaseException:  # Ctrl-C where this is the driver itself
        process.terminate()
        process.wait()
        raise


def _end_of(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - READ))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _exit(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
