"""The two kinds of evaluators, functions and programs: how each is submitted, harvested, stopped and tidied up."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mindgap.core import InputError
from mindgap.jobs.sample.answer import Answer, Portable, call, call_within
from mindgap.jobs.sample.command import Command
from mindgap.runs.executors import (
    AnyExecutor,
    AnyFuture,
    LocalExecutor,
    SerialExecutor,
    available_cores,
)

if TYPE_CHECKING:
    from mindgap.jobs.sample.program import Attempt
    from mindgap.sampling.trail import Asked


@dataclasses.dataclass
class Job:
    """A point on its way: which attempt this is, and how many workers were lost with it."""

    asked: Asked
    attempt: int = 0
    lost: int = 0


class Kind(ABC):
    """How points are evaluated."""

    def __init__(self, timeout: float | None, retries: int) -> None:
        self.timeout, self.retries = timeout, retries

    @abstractmethod
    def executor(self, workers: int | None) -> LocalExecutor | ThreadPoolExecutor:
        """The executor to take if none is given."""

    @abstractmethod
    def check(self, executor: AnyExecutor) -> None:
        """Refuse what could never be evaluated."""

    @abstractmethod
    def submit(self, executor: AnyExecutor, job: Job, width: int | None) -> AnyFuture:
        """Begin an attempt; ``width`` is the number of outputs, where it is known."""

    def harvest(self, _job: Job, _width: int | None) -> Answer | None:
        """The answer that an earlier driver did not live to tell; leaves the job at its next attempt."""
        return None

    def settle(self, _job: Job, *, good: bool) -> None:  # noqa: B027
        """The answer is told: nothing has to be kept for the next driver."""

    def stop(self, _jobs: Iterable[Job]) -> None:  # noqa: B027
        """End what runs."""

    def close(self) -> None:  # noqa: B027
        """No more is wanted."""


class Functions(Kind):
    """A Python function of one point."""

    def __init__(self, function: Callable[[Any], Any], timeout: float | None, retries: int) -> None:
        super().__init__(timeout, retries)
        self._portable = Portable(function)

    def executor(self, workers: int | None) -> LocalExecutor:
        """Worker processes."""
        return LocalExecutor(workers)

    def check(self, executor: AnyExecutor) -> None:
        """In another process the function must be loaded anew."""
        if self.timeout is not None or not isinstance(
            executor, (SerialExecutor, ThreadPoolExecutor)
        ):
            pickle.dumps(self._portable)

    def submit(self, executor: AnyExecutor, job: Job, width: int | None) -> AnyFuture:
        """A limited time needs a process that can be killed; a worker of LocalExecutor is one."""
        task = (self._portable, job.asked.point, width)
        if self.timeout is None:
            return executor.submit(call, *task)
        if isinstance(executor, LocalExecutor):
            return executor.submit_within(self.timeout, call, *task)
        return executor.submit(call_within, self.timeout, *task)


class Programs(Kind):
    """An external program, whose output is kept in files until its value is told."""

    def __init__(self, command: Command, sampler: Any, timeout: float | None, retries: int) -> None:
        if os.name != "posix":
            raise InputError(
                "A Command must run on Linux or macOS, got Windows. Use ask() and tell() there."
            )
        super().__init__(timeout, retries)
        self._command, self._dimension, self._session = (
            command,
            sampler.domain.dimension,
            sampler.session_id,
        )
        path, self._folder = sampler.session, str(Path.cwd())
        self._own = None if path else tempfile.TemporaryDirectory(prefix="mindgap-")
        self._work = (
            Path(f"{path}.work").resolve() if path else Path(self._own.name if self._own else "")
        )
        self._clear(sampler.answers)

    def executor(self, workers: int | None) -> ThreadPoolExecutor:
        """Threads are enough to wait for programs, which then see your environment as it is."""
        return ThreadPoolExecutor(
            workers or available_cores(), thread_name_prefix="mindgap-program"
        )

    def check(self, executor: AnyExecutor) -> None:
        """On this machine the program must be there."""
        here = isinstance(executor, (SerialExecutor, ThreadPoolExecutor, LocalExecutor))
        self._command.check(self._dimension, here=here)

    def submit(self, executor: AnyExecutor, job: Job, width: int | None) -> AnyFuture:
        """Start the program, or wait for the one that runs."""
        from mindgap.jobs.sample.program import run_program

        return executor.submit(run_program, self._attempt(job, width))

    def harvest(self, job: Job, width: int | None) -> Answer | None:
        """A good answer of any attempt, or the last bad one."""
        from mindgap.jobs.sample.program import harvested

        while True:
            answer = harvested(self._attempt(job, width))
            if answer is None or answer.values is not None or job.attempt >= self.retries:
                return answer
            job.attempt += 1

    def settle(self, job: Job, *, good: bool) -> None:
        """What a program printed is kept if it failed."""
        from mindgap.jobs.sample.program import tidy

        for attempt in range(job.attempt + 1):
            tidy(self._stem(job, attempt), keep=not good)

    def stop(self, jobs: Iterable[Job]) -> None:
        """End the programs that run here."""
        from mindgap.jobs.sample.program import running, stop

        for stem in (self._stem(job, job.attempt) for job in jobs):
            if (
                running(stem) or Path(f"{stem}.json").exists()
            ):  # written before a wrapper is started
                stop(stem)

    def close(self) -> None:
        """Remove the folder if it is empty, or our own."""
        if self._own is not None:
            self._own.cleanup()
        elif self._work.is_dir() and not any(self._work.iterdir()):
            self._work.rmdir()

    def _clear(self, told: Container[int]) -> None:
        """Remove what a driver left that was killed after it told a value."""
        for path in list(self._work.iterdir()) if self._work.is_dir() else ():
            number = re.match(r"\.?(\d+)", path.name)
            if number and int(number[1]) in told:
                path.unlink(missing_ok=True)

    def _stem(self, job: Job, attempt: int) -> str:
        return str(
            self._work / (f"{job.asked.number}-{attempt}" if attempt else str(job.asked.number))
        )

    def _attempt(self, job: Job, width: int | None) -> Attempt:
        from mindgap.jobs.sample.program import Attempt

        stem, point = self._stem(job, job.attempt), job.asked.point
        words = self._command.words(point, job.asked.number, f"{stem}.json")
        named = json.dumps([self._session, self._command.shell, words, list(point)])
        return Attempt(
            words=tuple(words),
            shell=self._command.shell,
            stem=stem,
            key=hashlib.sha256(named.encode()).hexdigest(),
            folder=self._folder,
            point=point,
            timeout=self.timeout,
            width=width,
            bound=self._own is not None,
        )


def kind_of(evaluator: Any, sampler: Any, timeout: float | None, retries: int) -> Kind:
    """The kind of an evaluator."""
    if isinstance(evaluator, Command):
        return Programs(evaluator, sampler, timeout, retries)
    if not callable(evaluator):
        raise InputError(
            "evaluator must be a function of one point or a Command, got "
            f"{type(evaluator).__name__}. Write "
            "Command('./sim {0} {1}') for a program."
        )
    return Functions(evaluator, timeout, retries)
