"""The driver's end of a worker process, which is replaced when it dies."""

import contextlib
import json
import math
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any

from mindgap.core import InputError
from mindgap.runs.worker import home_of, receive, send

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from mindgap.runs.worker import main; main()"
)
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_STARTS = 5
_GUARD = (
    "Put it into a file, guard a script's work with if __name__ == '__main__', or pass "
    "SerialExecutor()"
)


class WorkerLostError(BrokenExecutor):
    """A worker process ended in the middle of a task."""


class TaskTimeoutError(Exception):
    """A task took longer than it was allowed to; its worker was killed."""


class WorkerProcess:
    """A worker that runs one task at a time.

    It is a new Python process, never a fork: torch's threads do not survive one.

    Args:
        threads: Number of torch threads.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._process: subprocess.Popen[bytes] | None = None

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        wanted: Callable[[], bool] = lambda: True,
        seconds: float | None = None,
    ) -> Any:
        """Run ``function(*args)`` in the worker.

        Args:
            function: What to run; the worker must be able to import it.
            *args: Its arguments, which must be picklable.
            wanted: Asked before the task is sent; if it says no, WorkerLostError is raised.
            seconds: Kill the worker after this time and raise TaskTimeoutError.

        Raises:
            WorkerLostError: The worker died.
        """
        task = _pickled(function, args)
        process = self._sent(task, wanted)
        try:
            # From a process that we started, over a private pipe.
            kind, value = pickle.loads(_reply(process, seconds))  # noqa: S301
        except TaskTimeoutError:
            _kill_group(process)
            self._ended()
            raise
        except (EOFError, OSError) as error:
            raise WorkerLostError(f"its worker process {_end(self._ended())}") from error
        if kind == "unloadable":
            raise InputError(f"A worker must be able to load what it runs, got: {value}. {_GUARD}.")
        if kind == "raised":
            raise RuntimeError(value)
        return value

    def call_within(
        self,
        seconds: float,
        function: Callable[..., Any],
        *args: Any,
        wanted: Callable[[], bool] = lambda: True,
    ) -> Any:
        """Do the same in at most some seconds, not counting the time to load what ``args`` need."""
        self.call(_nothing, *args, wanted=wanted)
        return self.call(function, *args, wanted=wanted, seconds=seconds)

    def kill(self) -> None:
        """End the process at once; whoever awaits its task gets a WorkerLostError."""
        process = self._process  # the thread that awaits the answer may clear it meanwhile
        if process is not None:
            process.kill()
            process.wait()  # or the next task would still be handed to it

    def close(self) -> None:
        """Let the process end by itself, then make sure that it did."""
        if self._process is not None:
            self._ended()

    def _sent(self, task: bytes, wanted: Callable[[], bool]) -> subprocess.Popen[bytes]:
        for _ in range(_STARTS):
            process = self._running()
            # Asked after the start, so that an abort before it and one after it are both seen.
            if not wanted():
                raise WorkerLostError("its task was aborted before it began")
            assert process.stdin is not None
            try:
                send(process.stdin, task)
                _reply(process)  # it has begun
            except (EOFError, OSError):
                self._ended()  # it died while idle: not this task's fault
            else:
                return process
        raise WorkerLostError("its worker processes died before it began")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        for _ in range(_STARTS):
            self.close()
            self._process = _started(self._threads)
            with contextlib.suppress(EOFError, OSError):
                _reply(self._process)
                return self._process
        code = self._ended()
        raise InputError(
            f"A worker process must start, got five that did not (the last one {_end(code)}). "
            f"{_GUARD}."
        )

    def _ended(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=5)
        process.kill()
        return process.wait()


def _pickled(function: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    try:
        payload = pickle.dumps((function, args))
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"What runs in a worker must be picklable, got: {' '.join(str(error).split())}. "
            "Define it at the top "
            "level of a module, or pass executor=SerialExecutor()."
        ) from error
    return pickle.dumps((home_of(args[0] if args else None), payload))


def _started(threads: int) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that Ctrl-C reaches the driver only."""
    return subprocess.Popen(  # noqa: S603  (our own interpreter and program)
        [sys.executable, "-c", _START, json.dumps([str(entry) for entry in sys.path])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | dict.fromkeys(_THREADS, str(threads)),
        start_new_session=True,
        bufsize=0,
    )


def _nothing(*_: Any) -> None:
    """Being sent is enough: the worker has then loaded the arguments."""


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the worker and whatever its task has started."""
    with contextlib.suppress(OSError, AttributeError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _reply(process: subprocess.Popen[bytes], seconds: float | None = None) -> bytes:
    """Receive the next message, and watch the process: a forked child may hold the pipe open."""
    assert process.stdout is not None
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    while os.name == "posix" and not select.select([process.stdout], [], [], _pause(deadline))[0]:
        if process.poll() is not None:
            raise EOFError
        if time.monotonic() >= deadline:
            raise TaskTimeoutError(f"no answer within {seconds:g} s")
    return receive(process.stdout)


def _pause(deadline: float) -> float:
    return max(0.0, min(1.0, deadline - time.monotonic()))


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    return f"was killed by {signal.Signals(-code).name}" + (
        " (out of memory?)" if code == -9 else ""
    )
