"""Evaluate the points that a sampler asked for, and tell it each value at once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mindgap.core import InputError, Progress, integer, number
from mindgap.jobs.sample.answer import Answer
from mindgap.jobs.sample.command import Command
from mindgap.jobs.sample.evaluators import Runner, runner_of
from mindgap.runs.executors import AnyExecutor, AnyFuture, at_least_one, in_flight, open_executor
from mindgap.runs.loop import Job, Work, drive, refuse_while_loading

if TYPE_CHECKING:
    from mindgap.sampling.taylor_sampler import TaylorSampler
    from mindgap.sampling.trail import Asked

__all__ = ["Command", "Evaluated", "evaluate"]


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """How many points have a value now, how many failed, and whether Ctrl-C ended it."""

    done: int
    failed: int
    interrupted: bool = False


class _Points(Work["Asked", Answer]):
    """The points of a sampler, which is told their values."""

    title = "An evaluation of points"

    def __init__(self, sampler: TaylorSampler, runner: Runner) -> None:
        self._sampler, self._runner = sampler, runner
        self.done = self.unsuccessful = 0

    def submit(self, executor: AnyExecutor, job: Job[Asked]) -> AnyFuture:
        return self._runner.submit(executor, job, self._sampler.width)

    def failed(self, reason: str, *, late: bool = False) -> Answer:  # noqa: ARG002  (it says so)
        return Answer(None, reason)

    def earlier(self, job: Job[Asked]) -> Answer | None:
        return self._runner.harvest(job, self._sampler.width)

    def retry(self, job: Job[Asked], answer: Answer) -> bool:
        return answer.values is None and job.attempt < self._runner.retries

    def keep(self, job: Job[Asked], answer: Answer) -> bool:
        good = answer.values is not None
        try:
            if answer.values is not None:
                self._sampler.tell(job.item, answer.values)
        except InputError as error:  # of another length than a value that came in meanwhile
            good, answer = False, Answer(None, str(error))
        if not good:
            self._sampler.fail(job.item, answer.reason)
        self.done, self.unsuccessful = self.done + good, self.unsuccessful + (not good)
        self._runner.settle(job, good=good)
        return good

    def rescue(self, job: Job[Asked], answer: Answer) -> None:
        """Only a value counts: what failed while it was being ended may succeed next time."""
        pending = {one.number for one in self._sampler.pending}
        if answer.values is not None and job.key in pending:
            self.keep(job, answer)

    def stop(self, jobs: Iterable[Job[Asked]]) -> bool:
        return self._runner.stop(jobs)


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
    """Evaluate points and tell the sampler their values one by one.

    An attempt fails if it raises, ends with an error, prints no numbers, or gives too few or
    infinite ones. A point whose attempts all fail is recorded as failed, with the reason, and the
    others continue. Ctrl-C ends everything at once and keeps what was told.

    With a session, nothing that a program has computed is lost, even if this process is killed.
    Call this again with the sampler's ``pending`` points: values of finished programs are read, and
    running programs are awaited.

    Args:
        sampler: The sampler that asked.
        asked: The points to evaluate, all of them pending.
        evaluator: A function of one point (a NumPy array) that returns one number or several, or a
            :class:`Command`.
        executor: Where to evaluate. Unless given, functions run in the worker processes of a
            :class:`~mindgap.runs.LocalExecutor`, and threads wait for programs.
        workers: How many points are evaluated at the same time; one per core unless given.
        timeout: Seconds after which an attempt is killed; no limit unless given.
        retries: Further attempts at a point that fails.
        progress: Whether to show a progress bar.

    Returns:
        How many points were evaluated and how many failed.

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
    refuse_while_loading(_Points.title)
    runner = runner_of(evaluator, sampler, timeout, integer("retries", retries, 0))
    points = _Points(sampler, runner)
    count = None if workers is None else at_least_one("workers", workers)
    try:
        with open_executor(executor, functools.partial(runner.executor, count)) as where:
            runner.check(where)
            with Progress(len(jobs), unit="point", title="points", shown=progress) as bar:
                interrupted = drive(points, jobs, where, in_flight(where, workers), bar)
    finally:
        runner.close()
    return Evaluated(points.done, points.unsuccessful, interrupted)


def _jobs(sampler: TaylorSampler, asked: Iterable[Asked]) -> list[Job[Asked]]:
    jobs = {one.number: Job(one.number, one) for one in asked}
    pending = {one.number for one in sampler.pending}
    for key in jobs:
        if key not in pending:
            raise InputError(
                f"A point must be pending to be evaluated, got point {key}. Pass sampler.pending."
            )
    return list(jobs.values())
