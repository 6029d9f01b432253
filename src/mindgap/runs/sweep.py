"""Sweep: run a study's trials that are not in the store yet, and sum up all that are."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from mindgap.core import (
    InputError,
    Progress,
    Record,
    Study,
    Table,
    Trial,
    expanded,
    integer,
    number,
    validated,
)
from mindgap.runs.claims import Claimed, Claims
from mindgap.runs.executors import AnyExecutor, AnyFuture, LocalExecutor, in_flight, open_executor
from mindgap.runs.loop import Job, Work, drive, refuse_while_loading
from mindgap.runs.store import Store, StoredTrial
from mindgap.runs.trial_id import trial_ids
from mindgap.runs.work import Outcome, run_trial


def default_store() -> Path:
    """Find the file of runs that is used when none is named.

    It is ``$MINDGAP_RUNS``, or ``mindgap/runs.sqlite`` in ``$XDG_CACHE_HOME`` (``~/.cache`` if
    unset).
    """
    named = os.environ.get("MINDGAP_RUNS")
    if named:
        return expanded(named)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expanded(cache) / "mindgap" / "runs.sqlite"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """What the store holds of a study after a sweep.

    Args:
        study: The study that was swept.
        trials: All its trials.
        rows: One entry per trial, in the same order; None where nothing is known yet.
        resumed: How many trials were in the store before.
        elsewhere: How many trials other drivers of the same store finished meanwhile.
        interrupted: Whether Ctrl-C ended the sweep.

    >>> from mindgap.runs import SerialExecutor, sweep
    >>> from mindgap.studies import CertificateCoverage
    >>> study, local = CertificateCoverage().tiny(), SerialExecutor()
    >>> found = sweep(study, store=":memory:", executor=local, progress=False, limit=1)
    >>> len(found.records), found.complete
    (1, False)
    """

    study: Study
    trials: tuple[Trial, ...]
    rows: tuple[StoredTrial | None, ...]
    resumed: int
    elsewhere: int = 0
    interrupted: bool = False

    @property
    def records(self) -> list[tuple[Trial, Record]]:
        """The finished trials and their records, in the order of ``trials``."""
        pairs = zip(self.trials, self.rows, strict=True)
        return [
            (trial, row.record)
            for trial, row in pairs
            if row is not None and row.record is not None
        ]

    @property
    def failures(self) -> list[tuple[Trial, StoredTrial]]:
        """The failed trials and their rows, which hold the error and the traceback."""
        pairs = zip(self.trials, self.rows, strict=True)
        return [(trial, row) for trial, row in pairs if row is not None and row.status == "failed"]

    @property
    def done(self) -> int:
        """How many trials this call finished."""
        return len(self.records) - self.resumed - self.elsewhere

    @property
    def failed(self) -> int:
        """How many trials failed."""
        return len(self.failures)

    @property
    def missing(self) -> int:
        """How many trials were not run yet."""
        return sum(row is None for row in self.rows)

    @property
    def complete(self) -> bool:
        """Whether every trial has a record."""
        return len(self.records) == len(self.trials)

    @functools.cached_property
    def table(self) -> Table:
        """The study's own summary of the finished trials; that of a tiny run says what it is."""
        if not self.records:
            raise InputError(
                f"The table of {self.study.name} needs a finished trial, got none. {self._advice()}"
            )
        table = self.study.summarize(self.records)
        return table.stamped() if self.study.is_tiny else table

    def __str__(self) -> str:
        parts = [
            f"{self.done} done",
            f"{self.resumed} resumed",
            *([f"{self.elsewhere} done by other drivers"] if self.elsewhere else []),
            f"{self.failed} failed",
            f"{self.missing} to run",
        ]
        return f"{self.study.name}: {', '.join(parts)}" + (
            " (interrupted)" if self.interrupted else ""
        )

    def _advice(self) -> str:
        return (
            f"The first failure was: {self.failures[0][1].error}"
            if self.failures
            else "Sweep again."
        )


class _Trials(Work[Trial, Outcome]):
    """The trials of a study, whose outcomes go into a store."""

    title = "A sweep"

    def __init__(
        self,
        study: Study,
        store: Store,
        claims: Claims,
        known: Mapping[str, StoredTrial],
        timeout: float | None,
    ) -> None:
        self._study, self._store, self._claims = study, store, claims
        self._known, self._timeout = known, timeout
        self.kept: set[str] = set()

    def claim(self, job: Job[Trial]) -> Claimed:
        known = self._known.get(job.key)
        return self._claims.claim(job.key, seen=None if known is None else known.finished)

    def submit(self, executor: AnyExecutor, job: Job[Trial]) -> AnyFuture:
        if self._timeout is None:
            return executor.submit(run_trial, self._study, job.item)
        assert isinstance(executor, LocalExecutor)
        return executor.submit_within(self._timeout, run_trial, self._study, job.item)

    def failed(self, reason: str, *, late: bool = False) -> Outcome:
        return Outcome(status="failed", error=f"{'Timeout' if late else 'WorkerLost'}: {reason}")

    def keep(self, job: Job[Trial], answer: Outcome) -> bool:
        if self._store.add(job.key, self._study, job.item, answer):
            self.kept.add(job.key)
        self._claims.release(job.key)
        return answer.status == "done"


@validated
def sweep(
    study: Study,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    executor: AnyExecutor | None = None,
    workers: int | None = None,
    progress: bool | Progress = True,
    limit: int | None = None,
    retry_failed: bool = True,
    timeout: float | None = None,
) -> Sweep:
    """Run the trials of a study that the store lacks, and return all that it holds.

    Ctrl-C ends the sweep at once and keeps what is finished. The next call resumes where it
    stopped. Several drivers on one store share the trials: each trial is run by one of them, and
    all of them return all records. What ``study.prepare`` misses is an error before the first trial.

    Args:
        study: The study to run.
        store: A path, an open :class:`Store`, or ``":memory:"``. By default the file that
            ``$MINDGAP_RUNS`` names, else ``~/.cache/mindgap/runs.sqlite``.
        executor: Where trials run; a :class:`LocalExecutor` unless given.
        workers: Number of worker processes; one per core unless given.
        progress: Whether to show a progress bar, or the bar of a larger job to advance.
        limit: Run at most this many trials now.
        retry_failed: Whether to run failed trials again. A trial that failed for want of memory or
            data should not stay failed.
        timeout: Seconds after which a trial is killed and counts as failed; no limit unless given.

    Returns:
        The trials with their records; ``interrupted`` is true if Ctrl-C ended the sweep.

    >>> from mindgap.runs import SerialExecutor
    >>> from mindgap.studies import CertificateCoverage
    >>> study = CertificateCoverage().tiny()
    >>> found = sweep(study, store=":memory:", executor=SerialExecutor(), progress=False, limit=1)
    >>> found.done, found.complete
    (1, False)
    """
    _check(limit, timeout, executor)
    if workers is not None:
        integer("workers", workers)  # before the store is made
    trials = tuple(study.trials())
    ids = trial_ids(study, list(trials))
    make = functools.partial(LocalExecutor, workers)
    with _opened(store) as kept, open_executor(executor, make) as chosen:
        before = _known(kept, study)
        jobs = _jobs(ids, trials, before, retry_failed)
        resumed = sum(_is_done(before.get(key)) for key in ids)
        left = len(jobs) if limit is None else min(limit, len(jobs))
        if left:
            study.prepare()
        total = resumed + left
        depth = in_flight(chosen, workers)
        with (
            _bar(progress, total, resumed, study.name) as bar,
            kept.claims() as claims,
        ):
            work = _Trials(study, kept, claims, before, timeout)
            interrupted = drive(work, jobs, chosen, depth, bar, limit)
        after = _known(kept, study)
    done = [key for key in ids if _is_done(after.get(key)) and not _is_done(before.get(key))]
    return Sweep(
        study=study,
        trials=trials,
        rows=tuple(after.get(key) for key in ids),
        resumed=resumed,
        elsewhere=sum(key not in work.kept for key in done),
        interrupted=interrupted,
    )


def _bar(
    progress: bool | Progress, total: int, done: int, title: str
) -> contextlib.AbstractContextManager[Progress]:
    """A given bar stays open; one that is made here is closed here."""
    if isinstance(progress, Progress):
        return contextlib.nullcontext(progress)
    return Progress(total, done=done, unit="trial", title=title, shown=progress)


def _check(limit: int | None, timeout: float | None, executor: AnyExecutor | None) -> None:
    if limit is not None and limit < 0:
        raise InputError(f"limit must be 0 or more, got {limit}. Leave it out to run all trials.")
    if timeout is not None and not number("timeout", timeout) > 0:
        raise InputError(
            f"timeout must be above 0 seconds, got {timeout}. Leave it out to wait for ever."
        )
    if timeout is not None and not isinstance(executor, LocalExecutor | None):
        raise InputError(
            "timeout needs worker processes that can be killed, got "
            f"{type(executor).__name__}. Pass LocalExecutor() or leave the timeout out."
        )
    refuse_while_loading(_Trials.title)


def _known(store: Store, study: Study) -> dict[str, StoredTrial]:
    return {row.id: row for row in store.records(study.name)}


def _is_done(row: StoredTrial | None) -> bool:
    return row is not None and row.status == "done"


def _jobs(
    ids: list[str], trials: tuple[Trial, ...], known: dict[str, StoredTrial], retry_failed: bool
) -> list[Job[Trial]]:
    """What is left to do, equal trials once."""
    wanted = dict(zip(ids, trials, strict=True))
    left = [
        key
        for key in wanted
        if key not in known or (retry_failed and known[key].status == "failed")
    ]
    return [Job(key, wanted[key]) for key in left]


@contextlib.contextmanager
def _opened(store: Store | str | os.PathLike[str] | None) -> Iterator[Store]:
    """A given store stays open; one that is opened here is closed here."""
    if isinstance(store, Store):
        yield store
        return
    with Store(default_store() if store is None else store) as opened:
        yield opened
