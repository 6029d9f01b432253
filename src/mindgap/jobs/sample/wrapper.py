"""The wrapper of an external program: runs it, keeps its output, and outlives its driver.

It is started by its path, in a session of its own, with one JSON object as its argument, and
imports nothing of mindgap. ``STEM.out`` and ``STEM.err`` hold what the program printed. ``STEM.rc``
is written in one piece after the program has ended; while it is missing, whoever holds the lock on
``STEM.lock`` is alive. The program inherits the lock, so that no second one is started while it
runs, even if this wrapper is killed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl

BUSY, STOPPED = 75, 76
TICK = 0.5


class Run:
    """One run of a program; a time-out leaves a record, SIGTERM leaves none.

    Args:
        order: The fields of an attempt, and the ``parent`` to end with, if any.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.order, self.stem = order, str(order["stem"])
        self.process: subprocess.Popen[bytes] | None = None
        self.late = self.stopped = False
        self.began = time.monotonic()

    def main(self) -> int:
        """Run the program unless another wrapper does or did."""
        with Path(f"{self.stem}.lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return BUSY
            if finished(self.stem, self.order["key"]) is not None:
                return 0
            Path(f"{self.stem}.rc").unlink(
                missing_ok=True
            )  # of another session with the same file names
            signal.signal(signal.SIGTERM, self._stop)
            signal.signal(signal.SIGALRM, self._tick)
            self._write("pid", {"pid": os.getpid(), "started": start_time(os.getpid())})
            # Written by a driver that did not see our process id yet.
            if Path(f"{self.stem}.stop").exists():
                return STOPPED
            code, error = self._run(lock.fileno())
            if self.stopped:
                return STOPPED
            self._write(
                "rc", {"key": self.order["key"], "code": code, "late": self.late, "error": error}
            )
        return 0

    def _run(self, lock: int) -> tuple[int, str]:
        limit, parent = self.order["timeout"], self.order["parent"]
        with Path(f"{self.stem}.out").open("wb") as out, Path(f"{self.stem}.err").open("wb") as err:
            try:
                self.process = subprocess.Popen(  # noqa: S603  (the command that the user gave)
                    self.order["words"],
                    shell=self.order["shell"],
                    cwd=self.order["folder"],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
            except OSError as error:
                return 127, f"{error.strerror}: {self.order['words'][0]}"
            if limit or parent:
                signal.setitimer(
                    signal.ITIMER_REAL, min(limit or TICK, TICK) if parent else limit, TICK
                )
            if self.stopped:
                self._kill()
            code = self.process.wait()
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.fsync(out.fileno())
        return code, ""

    def _tick(self, *_: object) -> None:
        limit, parent = self.order["timeout"], self.order["parent"]
        if parent and os.getppid() != parent:
            self._stop()
        elif limit and time.monotonic() >= self.began + limit:
            self.late = True
            self._kill()

    def _stop(self, *_: object) -> None:
        self.stopped = True
        self._kill()

    def _kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _write(self, ending: str, content: dict[str, Any]) -> None:
        part = Path(f"{self.stem}.{ending}.part")
        with part.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(f"{self.stem}.{ending}")


def finished(stem: str, key: str) -> dict[str, Any] | None:
    """Read how the program that ``key`` names has ended; None if it has not."""
    try:
        found: dict[str, Any] = json.loads(Path(f"{stem}.rc").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if found.get("key") == key else None


def start_time(pid: int) -> str:
    """Read when a process was started, where the system tells: process ids are reused."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


if __name__ == "__main__":
    sys.exit(Run(json.loads(sys.argv[1])).main())
