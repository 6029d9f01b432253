"""A toy study in a file of its own, as a user would write it; it imports no torch, so workers start quickly."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from processes import TOY

DRIVER = """
import sys
import toy_study
from mindgap.runs import sweep

if __name__ == "__main__":
    count, pause, log, store = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
    study = toy_study.ToyStudy(count=count, pause=pause, log=log)
    done = sweep(study, store=store, workers=2, progress="--bar" in sys.argv)
    print(done.done, done.resumed, done.failed, done.interrupted)
    sys.exit(130 if done.interrupted else 0)
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module ``toy_study``, freshly written and imported."""
    (tmp_path / "toy_study.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("toy_study", None)
    importlib.invalidate_caches()
    yield importlib.import_module("toy_study")
    sys.modules.pop("toy_study", None)


class Drivers:
    """Starts sweeps of the toy study in processes of their own and looks at what they leave."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.store = folder, folder / "log.txt", folder / "runs.sqlite"
        (folder / "toy_study.py").write_text(TOY)
        (folder / "driver.py").write_text(DRIVER)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, count: int, pause: float, *flags: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "driver.py",
            str(count),
            str(pause),
            str(self.log),
            str(self.store),
            *flags,
        ]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        self.started.append(process)
        return process

    def runs(self) -> list[tuple[int, int]]:
        """Number and process of every trial that was begun."""
        if not self.log.exists():
            return []
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [(int(line[0]), int(line[1])) for line in lines if len(line) == 2]

    def counts(self) -> Counter[int]:
        return Counter(number for number, _ in self.runs())

    def pids(self) -> set[int]:
        return {pid for _, pid in self.runs()}

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    made = Drivers(tmp_path)
    yield made
    made.close()
