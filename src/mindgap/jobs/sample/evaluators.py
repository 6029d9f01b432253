"""Runners of evaluators: how functions and programs are submitted, harvested and stopped."""

from __future__ import annotations

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
from mindgap.jobs.sample.program import Attempt, harvested, run_program, running, stop, tidy
from mindgap.runs.executors import (
    AnyExecutor,
    AnyFuture,
    LocalExecutor,
    SerialExecutor,
    available_cores,
)
from mindgap.runs.loop import Job

if TYPE_CHECKING:
    from mindgap.sampling.trail import Asked


class Runner(ABC):
    """How the points of a sampler are evaluated.

    Args:
        timeout: Seconds after which an attempt is killed; None for no limit.
        retries: Further attempts at a point that fails.
    """

    def __init__(self, timeout: float | None, retries: int) -> None:
        self.timeout, self.retries = timeout, retries

    @abstractmethod
    def executor(self, workers: int | None) -> LocalExecutor | ThreadPoolExecutor:
        """Make the executor that is used if none is given."""

    @abstractmethod
    def check(self, executor: AnyExecutor) -> None:
        """Refuse what could never be evaluated."""

    @abstractmethod
    def submit(self, executor: AnyExecutor, job: Job[Asked], width: int | None) -> AnyFuture:
        """Begin an attempt; ``width`` is the number of outputs, where it is known."""

    def harvest(self, _job: Job[Asked], _width: int | None) -> Answer | None:
        """Read the answer that an earlier driver was killed too soon to tell, if there is one."""
        return None

    def settle(self, _job: Job[Asked], *, good: bool) -> None:  # noqa: B027
        """Forget what was kept for the next driver: the answer is told."""

    def stop(self, _jobs: Iterable[Job[Asked]]) -> bool:
        """End what runs outside the executor; return whether there may be such work."""
        return False

    def close(self) -> None:  # noqa: B027
        """Release what is held."""


class Functions(Runner):
    """A Python function of one point."""

    def __init__(self, function: Callable[[Any], Any], timeout: float | None, retries: int) -> None:
        super().__init__(timeout, retries)
        self._portable = Portable(function)

    def executor(self, workers: int | None) -> LocalExecutor:
        """Make worker processes."""
        return LocalExecutor(workers)

    def check(self, executor: AnyExecutor) -> None:
        """Refuse a function that another process cannot load."""
        if self.timeout is not None or not isinstance(
            executor, (SerialExecutor, ThreadPoolExecutor)
        ):
            pickle.dumps(self._portable)

    def submit(self, executor: AnyExecutor, job: Job[Asked], width: int | None) -> AnyFuture:
        """Begin a call; a limited time needs a process that can be killed."""
        task = (self._portable, job.item.point, width)
        if self.timeout is None:
            return executor.submit(call, *task)
        if isinstance(executor, LocalExecutor):
            return executor.submit_within(self.timeout, call, *task)
        return executor.submit(call_within, self.timeout, *task)


class Programs(Runner):
    """An external program, whose output is kept in files until its value is told."""

    def __init__(self, command: Command, sampler: Any, timeout: float | None, retries: int) -> None:
        if os.name != "posix":
            raise InputError(
                "A Command must run on Linux or macOS, got Windows. Use ask() and tell() there."
            )
        super().__init__(timeout, retries)
        self._command, self._dimension = command, sampler.domain.dimension
        self._session, self._folder = sampler.session_id, str(Path.cwd())
        path = sampler.session
        self._own = None if path else tempfile.TemporaryDirectory(prefix="mindgap-")
        self._work = Path(self._own.name) if self._own else Path(f"{path}.work").resolve()
        self._clear(sampler.answers)

    def executor(self, workers: int | None) -> ThreadPoolExecutor:
        """Make threads, which are enough to wait for programs."""
        return ThreadPoolExecutor(
            workers or available_cores(), thread_name_prefix="mindgap-program"
        )

    def check(self, executor: AnyExecutor) -> None:
        """Refuse a program that is missing on this machine."""
        here = isinstance(executor, (SerialExecutor, ThreadPoolExecutor, LocalExecutor))
        self._command.check(self._dimension, here=here)

    def submit(self, executor: AnyExecutor, job: Job[Asked], width: int | None) -> AnyFuture:
        """Start the program, or wait for the one that runs."""
        return executor.submit(run_program, self._attempt(job, width))

    def harvest(self, job: Job[Asked], width: int | None) -> Answer | None:
        """Read a good answer of any attempt, or the last bad one, and leave the job there."""
        while True:
            answer = harvested(self._attempt(job, width))
            if answer is None or answer.values is not None or job.attempt >= self.retries:
                return answer
            job.attempt += 1

    def settle(self, job: Job[Asked], *, good: bool) -> None:
        """Keep what a program printed if it failed."""
        for attempt in range(job.attempt + 1):
            tidy(self._stem(job, attempt), keep=not good)

    def stop(self, jobs: Iterable[Job[Asked]]) -> bool:
        """End the programs that run on this machine."""
        for stem in (self._stem(job, job.attempt) for job in jobs):
            # Until a wrapper holds its lock, only the .json file shows that it was started.
            if running(stem) or Path(f"{stem}.json").exists():
                stop(stem)
        return True

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

    def _stem(self, job: Job[Asked], attempt: int) -> str:
        return str(self._work / (f"{job.key}-{attempt}" if attempt else str(job.key)))

    def _attempt(self, job: Job[Asked], width: int | None) -> Attempt:
        stem, point = self._stem(job, job.attempt), job.item.point
        words = self._command.words(point, job.key, f"{stem}.json")
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


def runner_of(evaluator: Any, sampler: Any, timeout: float | None, retries: int) -> Runner:
    """Wrap the user's function or command."""
    if isinstance(evaluator, Command):
        return Programs(evaluator, sampler, timeout, retries)
    if not callable(evaluator):
        raise InputError(
            "evaluator must be a function of one point or a Command, got "
            f"{type(evaluator).__name__}. Write Command('./sim {{0}} {{1}}') for a program."
        )
    return Functions(evaluator, timeout, retries)
