"""Drive: keep an executor busy with trials and commit each outcome as it comes."""

import contextlib
import dataclasses
import functools
import queue
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor
from typing import Any

from mindgap.core import InputError, MindgapError, Progress, Study, Trial
from mindgap.runs.executors import AnyExecutor, AnyFuture
from mindgap.runs.process import WorkerLostError
from mindgap.runs.store import Store
from mindgap.runs.work import Outcome, one_line, run_trial

ATTEMPTS = 3
_TICK = 1.0
_PATIENCE = 5.0


@dataclasses.dataclass
class Job:
    """A trial on its way, and how many workers it has cost so far."""

    id: str
    trial: Trial
    lost: int = 0


class Drive:
    """One run over some jobs; ``run`` returns whether Ctrl-C ended it."""

    def __init__(
        self,
        study: Study,
        jobs: Iterable[Job],
        store: Store,
        executor: AnyExecutor,
        depth: int,
        progress: Progress,
    ) -> None:
        self._study, self._store, self._executor, self._depth = study, store, executor, depth
        self._progress = progress
        self._waiting = deque(jobs)
        self._flying: dict[str, tuple[Job, AnyFuture]] = {}
        self._landed: queue.SimpleQueue[str] = queue.SimpleQueue()

    def run(self) -> bool:
        """Run all jobs; whatever ends this early, what was finished is in the store."""
        try:
            while self._waiting or self._flying:
                self._fill()
                self._settle(*self._next())
        except KeyboardInterrupt:
            self._stop()
            return True
        except BaseException:
            with contextlib.suppress(InputError):
                self._stop()
            raise
        return False

    def _fill(self) -> None:
        while self._waiting and len(self._flying) < self._depth:
            job = self._waiting[0]
            future = self._submitted(job)
            self._flying[job.id] = (job, future)
            self._waiting.popleft()
            future.add_done_callback(functools.partial(self._land, job.id))

    def _land(self, key: str, _: object) -> None:
        self._landed.put(key)

    def _submitted(self, job: Job) -> AnyFuture:
        try:
            return self._executor.submit(run_trial, self._study, job.trial)
        except BrokenExecutor as error:
            raise MindgapError(
                f"The executor must accept trials, got: {one_line(error)}. Finished trials are "
                "kept: pass a new "
                "executor (LocalExecutor replaces dead workers) and sweep again."
            ) from error

    def _next(self) -> tuple[Job, AnyFuture]:
        while True:
            try:
                return self._flying[self._landed.get(timeout=_TICK)]
            except queue.Empty:
                self._progress.tick()

    def _settle(self, job: Job, future: AnyFuture) -> None:
        outcome = self._outcome(job, future)
        if outcome is None:
            self._waiting.appendleft(job)
        else:
            self._store.add(job.id, self._study, job.trial, outcome)
            self._progress.advance(failed=outcome.status == "failed")
        del self._flying[job.id]

    def _outcome(self, job: Job, future: AnyFuture) -> Outcome | None:
        """What came of a job; None if its worker was lost and it deserves another."""
        try:
            outcome: Outcome = future.result()
        except InputError:
            raise  # no worker could ever run it
        except Exception as error:
            job.lost += 1
            return None if job.lost < ATTEMPTS else _poison(error)
        return outcome

    def _stop(self) -> None:
        """Cancel what waits, end what runs, and keep what came in meanwhile."""
        futures = [future for _, future in self._flying.values()]
        for future in futures:
            future.cancel()
        self._abort(futures)
        for job, future in list(self._flying.values()):
            outcome = _finished(future)
            if outcome is not None:
                self._store.add(job.id, self._study, job.trial, outcome)

    def _abort(self, futures: list[AnyFuture]) -> None:
        abort: Any = getattr(self._executor, "abort", None)
        deadline = time.monotonic() + _PATIENCE
        while (
            abort is not None and not all(f.done() for f in futures) and time.monotonic() < deadline
        ):
            abort()
            time.sleep(0.02)


def _poison(error: Exception) -> Outcome:
    reason = str(error) if isinstance(error, WorkerLostError) else one_line(error)
    return Outcome(
        status="failed",
        error=f"WorkerLost: the trial was given up after {ATTEMPTS} attempts, {reason}",
    )


def _finished(future: AnyFuture) -> Outcome | None:
    canceled: Any = getattr(future, "canceled", bool)
    if future.done() and not canceled():
        with contextlib.suppress(Exception):
            outcome: Outcome = future.result()
            return outcome
    return None
