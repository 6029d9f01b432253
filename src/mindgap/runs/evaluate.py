"""Evaluate the points that a sampler asked, in parallel and anywhere, and tell each value as soon as it is there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from mindgap.core.arguments import integer, number
from mindgap.core.errors import InputError
from mindgap.runs.evaluate_command import Command
from mindgap.runs.evaluate_drive import Evaluated, Evaluation
from mindgap.runs.evaluate_kinds import Job, Kind, kind_of
from mindgap.runs.executors import AnyExecutor, LocalExecutor, as_executor, at_least_one, in_flight
from mindgap.runs.progress import Progress
from mindgap.runs.worker import LOADING

if TYPE_CHECKING:
    from mindgap.sampling.taylor_sampler import TaylorSampler
    from mindgap.sampling.trail import Asked

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

    ``evaluator`` is a function of one point (a NumPy array) that returns a number or several, or a :class:`Command`. An
    attempt that takes more than ``timeout`` seconds is killed. One that raises, ends with an error, prints no numbers,
    or gives too few or infinite ones is tried ``retries`` times more; then the point is recorded as failed, with the
    reason, and the others go on. ``executor`` is a :class:`LocalExecutor` of ``workers`` processes for functions
    and threads for programs, unless given. Ctrl-C ends it at once and keeps what is told.

    With a session nothing that a program has computed is lost, even if this process is killed: ask the sampler for
    its ``pending`` points and call this again. Finished programs are harvested and running ones awaited.

    >>> from mindgap.runs import SerialExecutor
    >>> from mindgap.sampling import Box, TaylorSampler
    >>> sampler = TaylorSampler(None, Box(0, 1), initial=4)
    >>> evaluate(sampler, sampler.ask(4), lambda point: point[0] ** 2, executor=SerialExecutor())
    Evaluated(done=4, failed=0, interrupted=False)
    """
    jobs = _jobs(sampler, asked)
    if timeout is not None and not number("timeout", timeout) > 0:
        raise InputError(f"timeout must be above 0 seconds, got {timeout}. Leave it out to wait for ever.")
    if LOADING.is_set():
        raise InputError(
            "Points must not be evaluated while a script is imported. Guard it with if __name__ == '__main__'."
        )
    kind = kind_of(evaluator, sampler, timeout, integer("retries", retries, 0))
    try:
        with _chosen(executor, kind, workers) as chosen:
            kind.check(chosen)
            with Progress("points", len(jobs), 0, shown=progress, unit="point") as bar:
                return Evaluation(sampler, jobs, kind, chosen, in_flight(chosen, workers), bar).run()
    finally:
        kind.close()


def _jobs(sampler: TaylorSampler, asked: Iterable[Asked]) -> list[Job]:
    jobs = {one.number: Job(one) for one in asked}
    pending = {one.number for one in sampler.pending}
    for key in jobs:
        if key not in pending:
            raise InputError(f"A point must be pending to be evaluated, got point {key}. Pass sampler.pending.")
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
