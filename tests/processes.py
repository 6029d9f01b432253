"""What tests that start and kill processes share: a toy study, forked children, and patience."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TOY = '''
"""A toy."""

import os
import signal
import time

from mindgap.core.study import Study, Trial
from mindgap.core.table import Table


class ToyStudy(Study):
    """Squares of small numbers.

    Reading: larger numbers have larger squares.
    """

    count: int = 6
    pause: float = 0.0
    log: str = ""
    raises: tuple[int, ...] = ()
    kills: tuple[int, ...] = ()
    hangs: tuple[int, ...] = ()
    expected = {"1": 1.0}

    def trials(self):
        return [Trial(parameters={"number": number}, seed=number) for number in range(self.count)]

    def run(self, trial):
        number = trial["number"]
        if self.log:
            with open(self.log, "a") as stream:
                stream.write(f"{number} {os.getpid()}\\n")
        time.sleep(60 if number in self.hangs else self.pause)
        if number in self.raises:
            raise ValueError(f"no square\\nfor {number}")
        if number in self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"square": number**2, "odd": number % 2 == 1, "ratio": float("inf") if number == 0 else 1 / number}

    def summarize(self, records):
        rows = tuple((trial["number"], record["square"], None) for trial, record in records)
        return Table(title="Squares", columns=("number", "square", "paper"), rows=rows, notes=("toy",))

    def tiny(self):
        return self.replace(count=2)
'''


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Forked:
    """A process of its own that runs a function: as killable as a program, without its imports."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        with (
            warnings.catch_warnings()
        ):  # newer Pythons warn of threads, of which the child uses none
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _run_and_exit(function, *arguments)
        self.code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self, seconds: float = 60.0) -> int:
        assert eventually(lambda: self.poll() is not None, seconds)
        assert self.code is not None
        return self.code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _run_and_exit(function: Callable[..., object], *arguments: object) -> None:
    code = 1
    try:
        os.setsid()
        function(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # none of the test run's own clean-up


def run_program(code: str, folder: Path) -> str:
    """Run a program in a folder as ``python -c`` does and return what it prints.

    The process is forked, because to import Lightning or transformers costs more than most
    programs. It begins with an empty ``__main__`` and without the settings of the test run.
    """
    printed = folder / "printed.txt"

    def run() -> None:
        os.chdir(folder)
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        with printed.open("w") as stream, warnings.catch_warnings():
            warnings.simplefilter("default")
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
            sys.stdout = sys.stderr = open(1, "w", closefd=False)  # noqa: SIM115
            try:
                exec(compile(code, "program", "exec"), vars(main))
            finally:
                sys.stdout.flush()

    failed = Forked(run).wait(300)
    text = printed.read_text(encoding="utf-8")
    assert not failed, text
    return text


CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    settings = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(n_workers=int(sys.argv[1]), **settings) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@contextlib.contextmanager
def dask_address(folder: Path, workers: int = 2) -> Iterator[str]:
    """A real Dask cluster on this machine, by its address; dead workers are replaced.

    Its workers find the modules in the folder.
    """
    pytest.importorskip("distributed", reason="needs distributed (the extra dask)")
    (folder / "dask_cluster.py").write_text(CLUSTER)
    paths = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    cluster = subprocess.Popen(
        [sys.executable, str(folder / "dask_cluster.py"), str(workers)],
        env={**os.environ, "PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert cluster.stdout is not None
        yield cluster.stdout.readline().strip()
    finally:
        cluster.communicate()  # closes its input, at which it ends
