"""Kill -9 at random moments: nothing that was finished is lost or repeated.

``python tests/torture.py --kills 200`` (``make torture``) shares the kills among four jobs: a sweep
with two workers, a training with checkpoints, a sampling session, and a certificate. Every round
starts in an empty folder, is killed several times, then runs to its end and is compared with a run
that nobody disturbed. Jobs are forked, so that torch is imported once.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path

import torch
from processes import TOY, alive, eventually
from torch import nn

from mindgap import Recipe, certify, fit
from mindgap.core import write_whole
from mindgap.jobs.sample.job import sample
from mindgap.runs import SerialExecutor, sweep
from mindgap.sampling import Box


class Torture(ABC):
    """A job that is killed again and again in a folder."""

    kills = 0

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log.txt"

    @abstractmethod
    def run(self) -> None:
        """Do the job, or resume it; leave ``result`` in the end."""

    def survived(self) -> None:
        """Look at what a kill left: a result is there whole or not at all."""
        assert not self.result.exists() or self.result.stat().st_size

    @abstractmethod
    def check(self, reference: Torture) -> None:
        """Compare the finished job with one that nobody disturbed."""

    @property
    def result(self) -> Path:
        return self.folder / "result"

    def note(self, text: object) -> None:
        """Write a line to the log at once, as one system call."""
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{text}\n".encode())
        os.close(descriptor)

    def notes(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def leftovers(self) -> list[str]:
        return [path.name for path in self.folder.rglob("*.mindgap-part")]


class SweepTorture(Torture):
    """Trials of a study without torch, in two worker processes."""

    trials, pause = 40, 0.01
    in_flight = 4  # a sweep submits two trials per worker, which a kill may repeat

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store, self.before = folder / "runs.sqlite", Counter[int]()
        (folder / "toy_study.py").write_text(TOY)
        self.kept: set[int] = set()

    def run(self) -> None:
        sys.path.insert(0, str(self.folder))
        toy = importlib.import_module("toy_study")
        study = toy.ToyStudy(count=self.trials, pause=self.pause, log=str(self.log))
        swept = sweep(study, store=self.store, workers=2, progress=False)
        write_whole(self.result, str(swept.table))

    def begun(self) -> Counter[int]:
        return Counter(int(line.split()[0]) for line in self.notes())

    def committed(self) -> set[int]:
        if not self.store.exists():
            return set()
        connection = sqlite3.connect(self.store, timeout=10)
        try:
            query = "SELECT parameters FROM trials WHERE status = 'done'"
            return {json.loads(text)["number"] for (text,) in connection.execute(query)}
        except sqlite3.OperationalError:  # killed before it made the table
            return set()
        finally:
            connection.close()

    def survived(self) -> None:
        pids = {int(line.split()[1]) for line in self.notes()}
        assert eventually(lambda: not any(map(alive, pids))), "workers outlive their driver"
        assert self.kept <= self.committed(), "a finished trial was lost"
        again = self.begun() - self.before
        assert not self.kept & set(again), "a finished trial was run again"
        self.kept, self.before = self.committed(), self.begun()

    def check(self, reference: Torture) -> None:
        self.survived()
        assert self.result.read_text() == reference.result.read_text()
        assert self.kept == set(range(self.trials))
        repeated = self.begun().total() - self.trials
        assert repeated <= self.in_flight * self.kills, "more than what was in flight was repeated"


class Noted(nn.Linear):
    """A layer that notes every training step."""

    def __init__(self, torture: Torture) -> None:
        super().__init__(8, 3)
        self._note = torture.note

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self._note("step")
        return super().forward(inputs)


class FitTorture(Torture):
    """A training that writes a checkpoint after every epoch."""

    epochs = 25

    def recipe(self) -> Recipe:
        source = torch.Generator().manual_seed(0)
        inputs, targets = torch.randn(64, 8, generator=source), torch.arange(64) % 3
        return Recipe(
            model=lambda: Noted(self),
            train=(inputs, targets),
            test=(inputs, targets),
            epochs=self.epochs,
            batch_size=32,
        )

    def run(self) -> None:
        fitted = fit(self.recipe(), checkpoint=self.folder / "run.pt")
        weights = [weight.tolist() for weight in fitted.model.parameters()]
        write_whole(self.result, json.dumps([weights, [dict(row) for row in fitted.history]]))

    def check(self, reference: Torture) -> None:
        assert self.result.read_text() == reference.result.read_text(), "other weights or curves"
        steps, wanted = len(self.notes()), len(reference.notes())
        one = wanted // self.epochs  # an epoch that was killed is trained again, and no other
        assert wanted <= steps <= wanted + self.kills * one, "a kept epoch was repeated"


class SampleTorture(Torture):
    """A session of a sampler, with a function that takes its time."""

    points = 24

    def run(self) -> None:
        def value(point: object) -> float:
            self.note(list(map(float, point)))  # type: ignore[call-overload]
            time.sleep(0.005)
            return float(abs(point[0]))  # type: ignore[index]

        done = sample(
            value,
            Box(-1, 1),
            initial=8,
            new=self.points - 8,
            rounds=4,
            session=self.folder / "session.jsonl",
            executor=SerialExecutor(),
        )
        write_whole(self.result, done.csv())

    def check(self, reference: Torture) -> None:
        assert self.result.read_text() == reference.result.read_text(), "other points or values"
        assert set(self.notes()) == set(reference.notes())
        again = sum(count - 1 for count in Counter(self.notes()).values())
        assert again <= self.kills, "more than the point in flight was evaluated again"


class CertifyTorture(Torture):
    """A certificate: it is computed in one piece, and its file appears whole or not at all."""

    def run(self) -> None:
        source = torch.Generator().manual_seed(0)
        inputs = torch.randn(200, 4, generator=source)
        recipe = Recipe(
            model=lambda: nn.Linear(4, 2), train=(inputs, (inputs[:, 0] > 0).long()), epochs=10
        )
        certificate = certify(recipe, draws=2000, epochs=2)
        write_whole(self.result, dataclasses.replace(certificate, cost={}).to_json())

    def survived(self) -> None:
        if self.result.exists():
            json.loads(self.result.read_text())

    def check(self, reference: Torture) -> None:
        assert self.result.read_text() == reference.result.read_text(), "another certificate"


KINDS: tuple[type[Torture], ...] = (SweepTorture, FitTorture, SampleTorture, CertifyTorture)


def forked(torture: Torture) -> int:
    """Start the job in a child process, and return its id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setsid()
            torch.set_num_threads(1)
            torture.run()
            code = 0
        finally:
            os._exit(code)
    return pid


def completed(torture: Torture) -> float:
    """Run the job to its end; return how long it took."""
    began, pid = time.monotonic(), forked(torture)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, f"{type(torture).__name__} ended with code {code}"
    return time.monotonic() - began


def killed(torture: Torture, after: float) -> bool:
    """Start the job and kill it; return False if it ended before."""
    pid = forked(torture)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended in (0, -signal.SIGKILL), f"{type(torture).__name__} ended with code {ended}"
    return ended != 0


def torment(kind: type[Torture], kills: int, rounds: int, chance: random.Random) -> int:
    """Kill a job so many times in so many rounds; return the number of kills that hit it."""
    with tempfile.TemporaryDirectory() as place:
        reference = made(kind, Path(place) / "reference")
        seconds, total = completed(reference), 0
        for number in range(rounds):
            torture = made(kind, Path(place) / f"round-{number}")
            for _ in range(kills // rounds + (number < kills % rounds)):
                torture.kills += killed(torture, chance.uniform(0, 0.7 * seconds))
                torture.survived()
            completed(torture)
            torture.check(reference)
            assert not torture.leftovers(), f"rubbish: {torture.leftovers()}"
            total += torture.kills
    return total


def made(kind: type[Torture], folder: Path) -> Torture:
    folder.mkdir()
    return kind(folder)


def main() -> None:
    """Kill, and print how many kills hit each job."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance, total, began = random.Random(arguments.seed), 0, time.monotonic()
    while total < arguments.kills:
        share = max(1, (arguments.kills - total) // len(KINDS))
        for kind in KINDS[: arguments.kills - total]:
            hits = torment(kind, share, max(1, share // 5), chance)
            total += hits
            print(f"{kind.__name__}: {hits} of {share} kills hit it; nothing lost or repeated")
    print(f"{total} kills in {time.monotonic() - began:.0f} s: nothing lost or repeated")


if __name__ == "__main__":
    main()
