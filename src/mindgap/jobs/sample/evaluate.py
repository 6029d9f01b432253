"""Evaluate the points that a sampler asked, in parallel and anywhere, and tell each value as soon as it is there.

The loop of an evaluation: keep an executor busy with points and tell each answer as it comes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING, Any

from mindgap.core import InputError, MindgapError, Progress, integer, number
from mindgap.jobs.sample.answer import Answer
from mindgap.jobs.sample.command import Command
from mindgap.jobs.sample.evaluators import Job, Kind, kind_of
from mindgap.runs.executors import (
    AnyExecutor,
    AnyFuture,
    LocalExecutor,
    as_executor,
    at_least_one,
    in_flight,
)
from mindgap.runs.process import TaskTimeoutError
from mindgap.runs.work import one_line
from mindgap.runs.worker import LOADING

if TYPE_CHECKING:
    from mindgap.sampling.taylor_sampler import TaylorSampler
    from mindgap.sampling.trail import Asked


LOSSES = 3  # workers that may be lost with a point before it counts as failed
_TICK = 1.0
_PATIENCE = 5.0


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """How many points have a value now, how many failed, and whether Ctrl-C ended it."""

    done: int
    failed: int
    interrupted: bool = False


class Evaluation:
    """One run over some jobs."""

    def __init__(
        self,
        sampler: TaylorSampler,
        jobs: list[Job],
        kind: Kind,
        executor: AnyExecutor,
        depth: int,
        bar: Progress,
    ) -> None:
        self._sampler, self._kind, self._executor, self._depth, self._bar = (
            sampler,
            kind,
            executor,
            depth,
            bar,
        )
        self._waiting = deque(jobs)
        self._flying: dict[int, tuple[Job, AnyFuture]] = {}
        self._landed: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._done = self._failed = 0

    def run(self) -> Evaluated:
        """What was finished before, then all the rest; whatever ends this early, what came in is told."""
        interrupted = False
        try:
            self._harvest()
            while self._waiting or self._flying:
                self._fill()
                self._settle(self._next())
        except KeyboardInterrupt:
            self._stop()
            interrupted = True
        except BaseException:
            with contextlib.suppress(MindgapError):
                self._stop()
            raise
        return Evaluated(self._done, self._failed, interrupted)

    def _harvest(self) -> None:
        left = deque[Job]()
        for job in self._waiting:
            answer = self._kind.harvest(job, self._sampler.width)
            left.append(job) if answer is None else self._tell(job, answer)
        self._waiting = left

    def _fill(self) -> None:
        while self._waiting and len(self._flying) < self._depth:
            job = self._waiting.popleft()
            try:
                future = self._kind.submit(self._executor, job, self._sampler.width)
            except BrokenExecutor as error:
                raise MindgapError(
                    f"The executor must accept points, got: {one_line(error)}. Values that were "
                    "told are kept: pass a "
                    "new executor and evaluate the pending points."
                ) from error
            self._flying[job.asked.number] = (job, future)
            future.add_done_callback(functools.partial(self._land, job.asked.number))

    def _land(self, key: int, _: object) -> None:
        self._landed.put(key)

    def _next(self) -> int:
        while True:
            try:
                return self._landed.get(timeout=_TICK)
            except queue.Empty:
                self._bar.tick()

    def _settle(self, key: int) -> None:
        job, future = self._flying[key]
        answer = self._answer(job, future)
        again = answer is not None and answer.values is None and job.attempt < self._kind.retries
        if answer is None or again:
            job.attempt += again
            self._waiting.appendleft(job)
        else:
            self._tell(job, answer)
        del self._flying[key]  # last, so that Ctrl-C in between loses no answer

    def _answer(self, job: Job, future: AnyFuture) -> Answer | None:
        """What came of an attempt; None if its worker was lost and it deserves another."""
        try:
            answer: Answer = future.result()
        except InputError:
            raise  # no worker could ever evaluate it
        except TaskTimeoutError as error:
            return Answer(None, str(error))
        except Exception as error:
            job.lost += 1
            return (
                None
                if job.lost < LOSSES
                else Answer(None, f"given up after {LOSSES} workers: {one_line(error)}")
            )
        return answer

    def _tell(self, job: Job, answer: Answer) -> None:
        good = answer.values is not None
        try:
            if answer.values is not None:
                self._sampler.tell(job.asked, answer.values)
        except InputError as error:  # of another length than a value that came in meanwhile
            good, answer = False, Answer(None, str(error))
        if not good:
            self._sampler.fail(job.asked, answer.reason)
        self._done, self._failed = self._done + good, self._failed + (not good)
        self._kind.settle(job, good=good)
        self._bar.advance(failed=not good)

    def _stop(self) -> None:
        """Cancel what waits, end what runs, and tell what came in meanwhile."""
        futures = [future for _, future in self._flying.values()]
        for future in futures:
            future.cancel()
        abort: Any = getattr(self._executor, "abort", None)
        deadline = time.monotonic() + _PATIENCE
        while True:
            if abort is not None:
                abort()
            self._kind.stop([*(job for job, _ in self._flying.values()), *self._waiting])
            if all(future.done() for future in futures) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        pending = {one.number for one in self._sampler.pending}
        for job, future in list(self._flying.values()):
            answer = _finished(future)
            if answer is not None and answer.values is not None and job.asked.number in pending:
                self._tell(job, answer)


def _finished(future: AnyFuture) -> Answer | None:
    canceled: Any = getattr(future, "canceled", bool)
    if future.done() and not canceled():
        with contextlib.suppress(Exception):
            answer: Answer = future.result()
            return answer
    return None


__all__ = ["Command", "Evaluated", "evaluate"]


def evaluate(
    sampler: TaylorSampler,
    asked: Iterable[Asked],
    evaluator: Callable[[Any], Any] | Command,
    *,
    executor: AnyExecutor | None = None,
    workers: int | None = None,
    timeout: float | None = None,
    retries: int = 0,
    progress: bool = False,
) -> Evaluated:
    """Evaluate points and tell their values one by one.

    ``evaluator`` is a function of one point (a NumPy array) that returns a number or several, or a
    :class:`Command`. An attempt that takes more than ``timeout`` seconds is killed. One that
    raises, ends with an error, prints no numbers, or gives too few or infinite ones is tried
    ``retries`` times more; then the point is recorded as failed, with the reason, and the others go
    on. ``executor`` is a :class:`LocalExecutor` of ``workers`` processes for functions and threads
    for programs, unless given. Ctrl-C ends it at once and keeps what is told.

    With a session nothing that a program has computed is lost, even if this process is killed: ask
    the sampler for its ``pending`` points and call this again. Finished programs are harvested and
    running ones awaited.

    >>> from mindgap.runs import SerialExecutor
    >>> from mindgap.sampling import Box, TaylorSampler
    >>> sampler = TaylorSampler(None, Box(0, 1), initial=4)
    >>> evaluate(sampler, sampler.ask(4), lambda point: point[0] ** 2, executor=SerialExecutor())
    Evaluated(done=4, failed=0, interrupted=False)
    """
    jobs = _jobs(sampler, asked)
    if timeout is not None and not number("timeout", timeout) > 0:
        raise InputError(
            f"timeout must be above 0 seconds, got {timeout}. Leave it out to wait for ever."
        )
    if LOADING.is_set():
        raise InputError(
            "Points must not be evaluated while a script is imported. Guard it with if __name__ "
            "== '__main__'."
        )
    kind = kind_of(evaluator, sampler, timeout, integer("retries", retries, 0))
    try:
        with _chosen(executor, kind, workers) as chosen:
            kind.check(chosen)
            with Progress(len(jobs), unit="point", title="points", shown=progress) as bar:
                return Evaluation(
                    sampler, jobs, kind, chosen, in_flight(chosen, workers), bar
                ).run()
    finally:
        kind.close()


def _jobs(sampler: TaylorSampler, asked: Iterable[Asked]) -> list[Job]:
    jobs = {one.number: Job(one) for one in asked}
    pending = {one.number for one in sampler.pending}
    for key in jobs:
        if key not in pending:
            raise InputError(
                f"A point must be pending to be evaluated, got point {key}. Pass sampler.pending."
            )
    return list(jobs.values())


@contextlib.contextmanager
def _chosen(executor: AnyExecutor | None, kind: Kind, workers: int | None) -> Iterator[AnyExecutor]:
    if executor is not None:
        yield as_executor(executor)
        return
    own = kind.executor(None if workers is None else at_least_one("workers", workers))
    try:
        yield own
    finally:  # nothing is in flight unless it was interrupted, and then it must not be waited for
        own.shutdown(wait=False, cancel_futures=True)
        if isinstance(own, LocalExecutor):
            own.abort()
            own.shutdown()
