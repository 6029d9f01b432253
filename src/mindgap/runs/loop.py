"""The driving loop: keep an executor busy, and keep each answer as soon as it comes.

Sweeps run trials through it, samplers evaluate points through it. What differs between them is a
:class:`Work`: how a job is submitted, and where its answer goes.
"""

import contextlib
import dataclasses
import functools
import math
import queue
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor
from typing import Any, Generic, TypeVar

from mindgap.core import InputError, MindgapError, Progress
from mindgap.runs.claims import Claimed
from mindgap.runs.executors import AnyExecutor, AnyFuture
from mindgap.runs.process import TaskTimeoutError, WorkerLostError
from mindgap.runs.work import one_line
from mindgap.runs.worker import LOADING

STALL = 600.0  # seconds without an answer after which a remark tells
LOSSES = 3  # workers that a job may lose before it counts as failed
_TICK = 1.0
_PATIENCE = 5.0
Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclasses.dataclass(eq=False)
class Job(Generic[Item]):
    """A trial or point on its way: which attempt this is, and how many workers it has cost."""

    key: Any
    item: Item
    attempt: int = 0
    lost: int = 0


class Work(ABC, Generic[Item, Answer]):
    """What the loop does with a job, from its submission to its answer."""

    title: str  # begins a sentence: "A sweep", "An evaluation of points"

    @abstractmethod
    def submit(self, executor: AnyExecutor, job: Job[Item]) -> AnyFuture:
        """Begin an attempt."""

    @abstractmethod
    def failed(self, reason: str, *, late: bool = False) -> Answer:
        """Make the answer of a job that no worker could finish, or none within its time."""

    @abstractmethod
    def keep(self, job: Job[Item], answer: Answer) -> bool:
        """Commit a final answer; return whether the job succeeded."""

    def claim(self, _job: Job[Item]) -> Claimed:
        """Claim a job before its first attempt, where several drivers share the work."""
        return "ours"

    def earlier(self, _job: Job[Item]) -> Answer | None:
        """Return the answer that an earlier driver was killed too soon to keep, if there is one."""
        return None

    def retry(self, _job: Job[Item], _answer: Answer) -> bool:
        """Return whether a bad answer deserves another attempt."""
        return False

    def rescue(self, job: Job[Item], answer: Answer) -> None:
        """Keep an answer that came in while the loop was being stopped."""
        self.keep(job, answer)

    def stop(self, _jobs: Iterable[Job[Item]]) -> bool:
        """End what runs outside the executor; return whether there may be such work."""
        return False


def refuse_while_loading(title: str) -> None:
    """Refuse to start from a script that is being imported by a worker."""
    # Without a guard every worker of the script would start workers of its own, without end.
    if LOADING.is_set():
        raise InputError(
            f"{title} must not start while a script is imported. Guard it with if __name__ == "
            "'__main__'."
        )


def drive(
    work: Work[Item, Answer],
    jobs: Iterable[Job[Item]],
    executor: AnyExecutor,
    depth: int,
    progress: Progress,
    limit: int | None = None,
) -> bool:
    """Run all jobs; whatever ends this early, finished answers are kept.

    A worker that is lost costs its job one of ``LOSSES`` chances. Ctrl-C cancels what waits, ends
    what runs and keeps what has come in meanwhile. Jobs that another driver has claimed are awaited
    and taken over if it dies. A remark tells when nothing has finished for ``STALL`` seconds.

    Args:
        work: How a job is submitted, and what becomes of its answer.
        jobs: What to run, in this order.
        executor: Where to run it.
        depth: How many jobs may be submitted and not yet finished.
        progress: Advanced once per finished job.
        limit: Begin at most this many jobs; all unless given.

    Returns:
        Whether Ctrl-C ended it.
    """
    return _Loop(work, jobs, executor, depth, progress, limit).run()


class _Loop(Generic[Item, Answer]):
    def __init__(
        self,
        work: Work[Item, Answer],
        jobs: Iterable[Job[Item]],
        executor: AnyExecutor,
        depth: int,
        progress: Progress,
        limit: int | None,
    ) -> None:
        self._work, self._executor, self._depth = work, executor, depth
        self._progress, self._stall = progress, _Stall(work.title, progress)
        self._left = math.inf if limit is None else limit  # jobs that may still be claimed
        self._waiting = deque(jobs)
        self._claimed: deque[Job[Item]] = deque()
        self._taken: list[Job[Item]] = []  # by other drivers
        self._look = 0.0  # when to look again whether they are free
        self._flying: dict[Any, tuple[Job[Item], AnyFuture]] = {}
        self._landed: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self) -> bool:
        try:
            self._collect_earlier()
            while self._waiting or self._claimed or self._taken or self._flying:
                self._fill()
                landed = self._next()
                if landed is not None:
                    self._settle(*landed)
        except KeyboardInterrupt:
            self._stop()
            return True
        except BaseException:
            with contextlib.suppress(MindgapError):
                self._stop()
            raise
        return False

    def _collect_earlier(self) -> None:
        for job in list(self._waiting):
            answer = self._work.earlier(job)
            if answer is not None:
                self._waiting.remove(job)
                self._keep(job, answer)

    def _fill(self) -> None:
        while len(self._flying) < self._depth and self._claim_next():
            job = self._claimed[0]  # leaves the queue only once it flies, so that a stop finds it
            future = self._submitted(job)
            self._flying[job.key] = (job, future)
            self._claimed.popleft()
            future.add_done_callback(functools.partial(self._land, job.key))

    def _claim_next(self) -> bool:
        """Claim a job if none is ready; return whether one is."""
        if not self._left:
            self._waiting.clear()
            self._taken.clear()
        if not self._waiting and self._taken and time.monotonic() >= self._look:
            self._waiting.extend(self._taken)
            self._taken.clear()
            self._look = time.monotonic() + _TICK
        while self._waiting and not self._claimed:
            found = self._work.claim(self._waiting[0])
            job = self._waiting.popleft()
            if found == "ours":
                self._claimed.append(job)
                self._left -= 1
            elif found == "taken":
                self._taken.append(job)
            else:
                self._progress.advance()
        return bool(self._claimed)

    def _land(self, key: Any, _: object) -> None:
        self._landed.put(key)

    def _submitted(self, job: Job[Item]) -> AnyFuture:
        try:
            return self._work.submit(self._executor, job)
        except BrokenExecutor as error:
            raise MindgapError(
                f"{self._work.title} must have an executor that accepts work, got: "
                f"{one_line(error)}. What is finished is kept: pass a new executor (LocalExecutor "
                "replaces dead workers) and start again."
            ) from error

    def _next(self) -> tuple[Job[Item], AnyFuture] | None:
        """Wait a moment for an answer; while nothing runs here, other drivers are awaited."""
        if not self._flying and not self._taken:
            return None
        try:
            landed = self._flying[self._landed.get(timeout=_TICK)]
        except queue.Empty:
            self._progress.tick()
            self._stall.tick(len(self._flying), len(self._taken))
            return None
        self._stall.landed()
        return landed

    def _settle(self, job: Job[Item], future: AnyFuture) -> None:
        answer = self._answer(job, future)
        if answer is None:
            self._claimed.appendleft(job)
        elif self._work.retry(job, answer):
            job.attempt += 1
            self._claimed.appendleft(job)
        else:
            self._keep(job, answer)
        del self._flying[job.key]  # last, so that Ctrl-C in between loses no answer

    def _keep(self, job: Job[Item], answer: Answer) -> None:
        self._progress.advance(failed=not self._work.keep(job, answer))

    def _answer(self, job: Job[Item], future: AnyFuture) -> Answer | None:
        """What came of an attempt; None if its worker was lost and the job deserves another."""
        try:
            answer: Answer = future.result()
        except InputError:
            raise  # no worker could ever run it
        except TaskTimeoutError as error:
            return self._work.failed(str(error), late=True)
        except Exception as error:
            job.lost += 1
            if job.lost < LOSSES:
                return None
            reason = str(error) if isinstance(error, WorkerLostError) else one_line(error)
            return self._work.failed(f"given up after {LOSSES} workers: {reason}")
        return answer

    def _stop(self) -> None:
        """Cancel what waits, end what runs, and keep what came in meanwhile."""
        futures = [future for _, future in self._flying.values()]
        for future in futures:
            future.cancel()
        deadline = time.monotonic() + _PATIENCE
        # Ended again and again: a worker or program that was just being started is seen later.
        while self._end() and not all(future.done() for future in futures):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        for job, future in list(self._flying.values()):
            answer = _finished(future)
            if answer is not None:
                self._work.rescue(job, answer)

    def _end(self) -> bool:
        """End workers and programs; return whether waiting for them makes sense."""
        abort: Callable[[], None] | None = getattr(self._executor, "abort", None)
        if abort is not None:
            abort()
        jobs = [*(job for job, _ in self._flying.values()), *self._claimed, *self._waiting]
        return self._work.stop(jobs) or abort is not None


class _Stall:
    """Tells when nothing has finished for a long time, ever more rarely."""

    def __init__(self, title: str, progress: Progress) -> None:
        self._title, self._progress = title, progress
        self.landed()

    def landed(self) -> None:
        self._since, self._patience = time.monotonic(), STALL

    def tick(self, here: int, elsewhere: int) -> None:
        quiet = time.monotonic() - self._since
        if quiet < self._patience:
            return
        self._patience *= 2
        others = f" (and {elsewhere} in other processes)" if elsewhere else ""
        self._progress.note(
            f"{self._title} has finished nothing for {quiet / 60:.0f} min, with {here} under way"
            f"{others}. Press Ctrl-C to stop, and pass a timeout to end what hangs."
        )


def _finished(future: AnyFuture) -> Any:
    """The answer of a future that has one."""
    cancelled: Callable[[], bool] = getattr(future, "cancelled", bool)
    if future.done() and not cancelled():
        with contextlib.suppress(Exception):
            return future.result()
    return None
