"""sample: evaluate an expensive function where it changes most, and go on where a killed run was."""

import contextlib
import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from mindgap.core import InputError, MindgapError, integer, write_whole
from mindgap.jobs.sample.csv import DEFAULT, Columns, points_csv
from mindgap.jobs.sample.evaluate import Command, evaluate
from mindgap.jobs.sample.session import Evaluator, open_sampler
from mindgap.report.pages.sampling import sampling_page
from mindgap.runs.executors import LocalExecutor
from mindgap.runs.work import one_line
from mindgap.sampling import Domain, TaylorSampler

MOST_REASONS = 5  # of failures, in the summary


@dataclasses.dataclass(frozen=True)
class Sampling:
    """What a run has found; ``save`` writes it."""

    sampler: TaylorSampler
    interrupted: bool = False
    columns: Columns = DEFAULT

    @property
    def points(self) -> Tensor:
        """The points whose values are known."""
        return self.sampler.points

    @property
    def values(self) -> Tensor:
        """Their values, one row per point."""
        return self.sampler.values

    @property
    def new(self) -> Tensor:
        """Which of them were chosen by interest."""
        return self.sampler.found().new

    @property
    def failed(self) -> dict[int, str]:
        """Numbers of the points that failed, and why."""
        return self.sampler.failed

    def save(self, path: str | os.PathLike[str], source: str = "") -> Path:
        """Write the points: a image if the path ends in .html, else a table as CSV."""
        if Path(path).suffix.lower() in (".html", ".htm"):
            names = self.columns.named("inputs", self.sampler.domain.dimension)
            outputs = self.columns.named(
                "outputs", self.sampler.width or len(self.columns.outputs) or 1
            )
            return sampling_page(self.sampler, path, names=names, outputs=outputs, source=source)
        return write_whole(path, points_csv(self.sampler, self.columns))

    def to_dict(self) -> dict[str, Any]:
        """Counts, failures, settings and known points as plain data."""
        sampler, answers = self.sampler, self.sampler.answers
        counts = Counter(one.why for one in sampler.asked if one.number in answers)
        rows = [
            {"number": one.number, "x": list(one.point), "y": answers[one.number], "why": one.why}
            for one in sampler.asked
            if one.number in answers
        ]
        return {
            "known": len(rows),
            "given": counts["given"],
            "start": counts["start"],
            "new": counts["interest"],
            "interrupted": self.interrupted,
            "pending": len(sampler.pending),
            "failed": [
                {"number": number, "reason": reason}
                for number, reason in sorted(sampler.failed.items())
            ],
            "settings": sampler.settings(),
            "points": rows,
        }

    def __str__(self) -> str:
        facts = self.to_dict()
        kinds = {"given": facts["given"], "of the start": facts["start"], "new": facts["new"]}
        parts = ", ".join(f"{count} {name}" for name, count in kinds.items() if count)
        more = [f"{len(self.failed)} failed"] if self.failed else []
        more += [f"{facts['pending']} pending"] if facts["pending"] else []
        lines = [
            "; ".join([f"{facts['known']} points known" + (f": {parts}" if parts else ""), *more])
        ]
        lines += [
            f"  {n} × {reason}"
            for reason, n in Counter(self.failed.values()).most_common(MOST_REASONS)
        ]
        return "\n".join(
            [*lines, "Interrupted; what was done is kept."] if self.interrupted else lines
        )


def sample(
    evaluator: Evaluator,
    domain: Domain | None = None,
    *,
    new: int = 16,
    rounds: int = 1,
    known: tuple[Any, Any] | None = None,
    differentiable: bool = False,
    session: str | os.PathLike[str] | None = None,
    columns: Columns | None = None,
    executor: Any = None,
    workers: int | None = None,
    timeout: float | None = None,
    retries: int = 0,
    progress: bool = False,
    **settings: Any,
) -> Sampling:
    """Evaluate a function at a start and at ``new`` points where it changes most, chosen in so many ``rounds``.

    ``evaluator`` is a function of one point, a :class:`mindgap.jobs.sample.evaluate.Command`, or,
    if ``differentiable``, a torch function of a table of points. ``known`` are points and values
    that you have already: they take the place of the start. Further settings are those of
    :class:`mindgap.sampling.TaylorSampler`. With a ``session`` a killed or interrupted run goes on
    where it was, and a larger ``new`` adds to a finished one.

    >>> from mindgap.runs import SerialExecutor
    >>> from mindgap.sampling import Box
    >>> done = sample(
    ...     lambda point: abs(point[0]), Box(-1, 1), initial=8, new=4, executor=SerialExecutor()
    ... )
    >>> len(done.points), int(done.new.sum())
    (12, 4)
    """
    sampler = open_sampler(
        evaluator,
        domain,
        known=known,
        differentiable=differentiable,
        session=session,
        settings=settings,
    )
    how = {
        "executor": executor,
        "workers": workers,
        "timeout": timeout,
        "retries": retries,
        "progress": progress,
    }
    with sampler:
        stopped = fill(sampler, evaluator, new, rounds=rounds, differentiable=differentiable, **how)
    return Sampling(sampler, stopped, columns or DEFAULT)


def fill(
    sampler: TaylorSampler,
    evaluator: Evaluator,
    new: int,
    *,
    rounds: int = 1,
    differentiable: bool = False,
    **how: Any,
) -> bool:
    """Evaluate until the start and ``new`` points by interest have an answer; whether Ctrl-C ended it.

    Points that were asked before are evaluated first and count, so that a run that was killed goes
    on.
    """
    integer("new", new, 0), integer("rounds", rounds)
    goals = [new * (turn + 1) // rounds for turn in range(rounds)]
    with contextlib.ExitStack() as stack:
        if how.get("executor") is None and not (differentiable or isinstance(evaluator, Command)):
            how["executor"] = stack.enter_context(
                LocalExecutor(how.get("workers"))
            )  # one for all rounds
        return _rounds(sampler, evaluator, goals, differentiable, how)


def _rounds(
    sampler: TaylorSampler,
    evaluator: Evaluator,
    goals: list[int],
    differentiable: bool,
    how: Mapping[str, Any],
) -> bool:
    while True:
        if sampler.pending and _evaluated(sampler, evaluator, differentiable, how):
            return True
        chosen = sum(one.why == "interest" for one in sampler.asked)
        begun = sum(one.why == "start" for one in sampler.asked)
        wanted = sampler.initial - begun or next(
            (goal - chosen for goal in goals if goal > chosen), 0
        )
        if not wanted:
            return False
        try:
            _users(sampler.ask, wanted)
        except KeyboardInterrupt:  # interest that is computed by the function may take its time
            return True


def _evaluated(
    sampler: TaylorSampler, evaluator: Evaluator, differentiable: bool, how: Mapping[str, Any]
) -> bool:
    if not differentiable:
        return evaluate(sampler, sampler.pending, evaluator, **how).interrupted
    try:
        _users(sampler.run, 0)
    except KeyboardInterrupt:
        return True
    return False


def _users(call: Callable[[int], object], argument: int) -> None:
    """What a user's own function raises becomes one sentence."""
    try:
        call(argument)
    except MindgapError:
        raise
    except Exception as error:
        if os.environ.get("MINDGAP_TRACEBACK"):
            raise
        raise InputError(
            f"The function must run without an error, got {one_line(error)}. Correct it "
            "(MINDGAP_TRACEBACK=1 shows the "
            "whole traceback)."
        ) from error
