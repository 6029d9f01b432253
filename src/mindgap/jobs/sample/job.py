"""sample: evaluate an expensive function where it changes most, and resume killed runs."""

import contextlib
import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError, MindgapError, expanded, integer, validated, write_whole
from mindgap.jobs.sample.command import Command
from mindgap.jobs.sample.csv import DEFAULT, Columns, asked_csv, points_csv, read_known, read_told
from mindgap.jobs.sample.evaluate import evaluate
from mindgap.jobs.sample.session import Evaluable, open_sampler
from mindgap.runs.executors import LocalExecutor
from mindgap.runs.work import one_line
from mindgap.sampling import Acquisition, Asked, Domain, Proposal, Sampled, TaylorSampler
from mindgap.sampling.comparison import LEAST_UNIFORM, Comparison, against_uniform
from mindgap.sampling.initial_design import Design

COMPARE_SEED = 700_001  # the points of a comparison are drawn by a seed of their own
MOST_REASONS = 5  # of failures, in the summary


@dataclasses.dataclass(frozen=True)
class Sampling:
    """What a run of :func:`sample` has found.

    Args:
        sampler: The sampler, with all points and values.
        interrupted: Whether Ctrl-C ended the run.
        columns: Names of inputs and outputs.
        asked: The points that were only asked for, to be evaluated elsewhere; None otherwise.
        taken: Values that were read from a file of values.
        lost: Failures that were read from it.
        fresh: Uniform points and values that were evaluated only to compare with; None if none.
    """

    sampler: TaylorSampler
    interrupted: bool = False
    columns: Columns = DEFAULT
    asked: tuple[Asked, ...] | None = None
    taken: int = 0
    lost: int = 0
    fresh: Sampled | None = None

    @functools.cached_property
    def comparison(self) -> Comparison | None:
        """Whether uniform points would have done as well as the new ones; None without new ones."""
        sampler = self.sampler
        whys = [one.why for one in sampler.asked if one.number in sampler.answers]
        if "acquisition" not in whys:
            return None
        found = sampler.found()
        # Without fresh points a part of the design plays their role, so it must be one.
        spread = ("initial",) if self.fresh is None else ("initial", "given")
        first = torch.tensor([why in spread for why in whys])
        initial, new = ((found.points[rows], found.values[rows]) for rows in (first, found.new))
        fresh = None if self.fresh is None else (self.fresh.points, self.fresh.values)
        return against_uniform(initial, new, fresh, sampler.domain.bounds, sampler.seed)

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
        """Which of them were chosen by the acquisition function."""
        return self.sampler.found().new

    @property
    def failed(self) -> dict[int, str]:
        """Numbers of the points that failed, and why."""
        return self.sampler.failed

    def save(self, path: str | os.PathLike[str], source: str = "") -> Path:
        """Write a page with a figure if the path ends in .html, else a CSV file.

        Args:
            path: The file to write.
            source: What was sampled, for the page's title.
        """
        if Path(path).suffix.lower() in (".html", ".htm"):
            from mindgap.report.pages.sampling import sampling_page

            names = self.columns.named("inputs", self.sampler.domain.dimension)
            outputs = self.columns.named(
                "outputs", self.sampler.width or len(self.columns.outputs) or 1
            )
            return sampling_page(
                self.sampler,
                path,
                names=names,
                outputs=outputs,
                source=source,
                comparison=self.comparison,
            )
        return write_whole(path, self.csv())

    def csv(self) -> str:
        """Write CSV text: the points to evaluate if points were asked for, else all points."""
        if self.asked is not None:
            return asked_csv(self.asked, self.columns, self.sampler.domain.dimension)
        return points_csv(self.sampler, self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Return counts, failures, settings and known points, or the points asked for."""
        if self.asked is not None:
            return {"asked": [{"number": one.number, "x": list(one.point)} for one in self.asked]}
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
            "initial": counts["initial"],
            "new": counts["acquisition"],
            "interrupted": self.interrupted,
            "pending": len(sampler.pending),
            "failed": [
                {"number": number, "reason": reason}
                for number, reason in sorted(sampler.failed.items())
            ],
            "settings": sampler.settings(),
            "points": rows,
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
            "uniform_points": []
            if self.fresh is None
            else [
                {"x": x, "y": y}
                for x, y in zip(self.fresh.points.tolist(), self.fresh.values.tolist(), strict=True)
            ],
        }

    def __str__(self) -> str:
        sampler, answers = self.sampler, self.sampler.answers
        counts = Counter(one.why for one in sampler.asked if one.number in answers)
        kinds = {"given": "given", "initial": "of the initial design", "acquisition": "new"}
        parts = ", ".join(f"{counts[why]} {words}" for why, words in kinds.items() if counts[why])
        more = [f"{len(self.failed)} failed"] if self.failed else []
        more += [f"{len(sampler.pending)} pending"] if sampler.pending else []
        lines = [
            "; ".join([f"{len(answers)} points known" + (f": {parts}" if parts else ""), *more])
        ]
        lines += [
            f"  {n} × {reason}"
            for reason, n in Counter(self.failed.values()).most_common(MOST_REASONS)
        ]
        if self.comparison is not None and not sampler.pending:
            lines += self.comparison.sentences
        return "\n".join(
            [*lines, "Interrupted; what was done is kept."] if self.interrupted else lines
        )


@validated
def sample(
    evaluator: Evaluable | None = None,
    domain: Domain | None = None,
    *,
    new: int = 16,
    rounds: int = 1,
    initial: int | None = None,
    initial_design: Design | None = None,
    acquisition: str | Mapping[str, Any] | Acquisition | None = None,
    proposal: str | Mapping[str, Any] | Proposal | None = None,
    seed: int | None = None,
    known: tuple[Any, Any] | str | os.PathLike[str] | None = None,
    tell: str | os.PathLike[str] | None = None,
    ask: int | None = None,
    differentiable: bool = False,
    session: str | os.PathLike[str] | None = None,
    columns: Columns | None = None,
    executor: Any = None,
    workers: int | None = None,
    timeout: float | None = None,
    retries: int = 0,
    compare: int = 0,
    progress: bool = False,
    on_error: Callable[[Sampling], object] | None = None,
) -> Sampling:
    """Evaluate a function at an initial design and at new points where it changes most.

    With a ``session`` a killed or interrupted run resumes where it stopped, and a larger ``new``
    extends a finished one. A setting that is not given comes from the session, then from the
    defaults.

    Args:
        evaluator: A function of one point, a :class:`mindgap.jobs.sample.command.Command`, or, if
            ``differentiable``, a torch function of a table of points. Without it, nothing is
            evaluated.
        domain: Where to sample; the box around the ``known`` points if None.
        new: Number of points chosen by the acquisition function, in total.
        rounds: Rounds in which they are chosen; later rounds use the values of earlier ones.
        initial: Number of points of the initial design; 16, or 0 with ``known`` points, if None.
        initial_design: ``"sobol"`` (default), ``"grid"``, ``"uniform"`` or ``"latin-hypercube"``.
        acquisition: A kind of :class:`mindgap.sampling.Acquisition`, some of its fields, or one.
        proposal: A kind of :class:`mindgap.sampling.Proposal`, some of its fields, or one.
        seed: Seed of everything that is drawn; 0 if None.
        known: Points and values that you have already, or a CSV file of them. They take the place
            of the initial design.
        tell: CSV file with values of points that the session asked for.
        ask: Only choose so many points, to be evaluated elsewhere; 0 repeats the pending ones.
        differentiable: Whether the function takes a tensor of rows and torch can differentiate it.
        session: Path of the session's journal; nothing is kept if None.
        columns: Names of inputs and outputs in files; x0, x1 … and y0, y1 … if None.
        executor: Where to evaluate; worker processes of this machine if None.
        workers: Points evaluated at the same time; one per core if None.
        timeout: Seconds after which an evaluation is killed; no limit if None.
        retries: Further attempts at a point that fails.
        compare: Number of further, uniform evaluations, which tell whether uniform points would have
            done as well. They cost as much as any other, and nothing else uses them; 1.25 times
            ``new`` compare all new points. With a session they are kept in ``SESSION.compare``.
        progress: Whether to show a progress bar.
        on_error: Called with what is known before an error that ends the evaluation is raised.

    >>> from mindgap.runs import SerialExecutor
    >>> from mindgap.sampling import Box
    >>> done = sample(
    ...     lambda point: abs(point[0]), Box(-1, 1), initial=8, new=4, executor=SerialExecutor()
    ... )
    >>> print(str(done).splitlines()[0])
    12 points known: 8 of the initial design, 4 new
    >>> done.comparison.reason
    'it takes 10 uniform points with values, and there are 8'
    """
    columns = columns or DEFAULT
    _check_compare(compare, evaluator, ask)
    if isinstance(known, str | os.PathLike):
        points, values, columns = read_known(known, columns)
        known = (points, values)
    given = {
        "initial": initial,
        "initial_design": initial_design,
        "acquisition": acquisition,
        "proposal": proposal,
        "seed": seed,
    }
    sampler = open_sampler(
        evaluator,
        domain,
        known=known,
        differentiable=differentiable,
        session=session,
        settings=given,
    )
    with sampler:
        columns.named("inputs", sampler.domain.dimension)  # refuse wrong names before evaluating
        taken, lost = (0, 0) if tell is None else _tell(sampler, tell, columns)
        done = Sampling(sampler, columns=columns, taken=taken, lost=lost)
        if ask is not None:
            asked = sampler.ask(ask) if integer("ask", ask, 0) else sampler.pending
            return dataclasses.replace(done, asked=tuple(asked))
        if evaluator is None:
            return _with_kept(done, session)
        how = {"executor": executor, "workers": workers, "timeout": timeout, "retries": retries}
        try:
            interrupted = _fill(
                sampler, evaluator, new, rounds, differentiable, {**how, "progress": progress}
            )
        except BaseException:
            if on_error is not None:
                on_error(done)
            raise
    done = dataclasses.replace(done, interrupted=interrupted)
    if interrupted or not (compare or _kept(session)):
        return done
    return _compared(
        done, evaluator, compare, differentiable, session, how | {"progress": progress}
    )


def _check_compare(compare: int, evaluator: Evaluable | None, ask: int | None) -> None:
    if compare and (evaluator is None or ask is not None):
        raise InputError(
            "compare must come with something to evaluate, got nothing. Name a function or a command."
        )
    if 0 < integer("compare", compare, 0) < LEAST_UNIFORM:
        raise InputError(
            f"compare must be 0 or at least {LEAST_UNIFORM} points, got {compare}. About 1.25 times "
            "the new points is best."
        )


def _kept(session: str | os.PathLike[str] | None) -> Path | None:
    """Return where a session keeps the points of its comparison, if it has any."""
    path = None if session is None else expanded(f"{os.fspath(session)}.compare")
    return path if path is not None and path.is_file() else None


def _with_kept(done: Sampling, session: str | os.PathLike[str] | None) -> Sampling:
    """Return what is known, with the points of an earlier comparison of the same session."""
    path = _kept(session)
    if path is None:
        return done
    with open_sampler(None, done.sampler.domain, session=path) as uniform:
        fresh = uniform.found() if uniform.answers else None
    return dataclasses.replace(done, fresh=fresh)


def _compared(
    done: Sampling,
    evaluator: Evaluable,
    count: int,
    differentiable: bool,
    session: str | os.PathLike[str] | None,
    how: dict[str, Any],
) -> Sampling:
    """Evaluate uniform points of their own, with a sampler that asks for nothing else."""
    sampler = done.sampler
    with open_sampler(
        evaluator,
        sampler.domain,
        differentiable=differentiable,
        session=None if session is None else f"{os.fspath(session)}.compare",
        settings={
            "initial": count or None,
            "initial_design": "uniform",
            "seed": sampler.seed + COMPARE_SEED,
        },
    ) as uniform:
        interrupted = _fill(uniform, evaluator, 0, 1, differentiable, how)
    fresh = uniform.found() if uniform.answers else None
    return dataclasses.replace(done, fresh=fresh, interrupted=interrupted)


def _tell(
    sampler: TaylorSampler, path: str | os.PathLike[str], columns: Columns
) -> tuple[int, int]:
    """Record the values of a file, and return how many values and failures were new."""
    values, failures = read_told(path, sampler, columns)
    before = len(sampler.answers)
    sampler.tell_many(values.items())
    for number, reason in failures.items():
        sampler.fail(number, reason)
    taken = len(sampler.answers) - before  # a value that is not finite is recorded as a failure
    return taken, len(values) + len(failures) - taken


def _fill(
    sampler: TaylorSampler,
    evaluator: Evaluable,
    new: int,
    rounds: int,
    differentiable: bool,
    how: dict[str, Any],
) -> bool:
    """Evaluate the initial design and ``new`` points; return whether Ctrl-C ended it.

    Points that were asked before are evaluated first and count, so a killed run resumes.
    """
    integer("new", new, 0)
    integer("rounds", rounds)
    goals = [new * (turn + 1) // rounds for turn in range(rounds)]
    with contextlib.ExitStack() as stack:
        if how["executor"] is None and not (differentiable or isinstance(evaluator, Command)):
            # One pool of workers for all rounds: to start them takes seconds.
            how["executor"] = stack.enter_context(LocalExecutor(how["workers"]))
        return _rounds(sampler, evaluator, goals, differentiable, how)


def _rounds(
    sampler: TaylorSampler,
    evaluator: Evaluable,
    goals: list[int],
    differentiable: bool,
    how: Mapping[str, Any],
) -> bool:
    while True:
        if sampler.pending and _evaluated(sampler, evaluator, differentiable, how):
            return True
        counts = Counter(one.why for one in sampler.asked)
        chosen = counts["acquisition"]
        wanted = sampler.initial - counts["initial"] or next(
            (goal - chosen for goal in goals if goal > chosen), 0
        )
        if not wanted:
            return False
        try:
            _call(sampler.ask, wanted)
        except KeyboardInterrupt:  # an acquisition function that calls the user's may take minutes
            return True


def _evaluated(
    sampler: TaylorSampler, evaluator: Evaluable, differentiable: bool, how: Mapping[str, Any]
) -> bool:
    if not differentiable:
        return evaluate(sampler, sampler.pending, evaluator, **how).interrupted
    try:
        _call(sampler.run, 0)
    except KeyboardInterrupt:
        return True
    return False


def _call(method: Callable[[int], object], argument: int) -> None:
    """Call what runs the user's function, and turn what that raises into one sentence."""
    try:
        method(argument)
    except MindgapError:
        raise
    except Exception as error:
        if os.environ.get("MINDGAP_TRACEBACK"):
            raise
        raise InputError(
            f"The function must run without an error, got {one_line(error)}. Correct it "
            "(MINDGAP_TRACEBACK=1 shows the whole traceback)."
        ) from error
