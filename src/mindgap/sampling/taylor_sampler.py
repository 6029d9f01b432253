"""TaylorSampler: choose where to evaluate an expensive function next, at once or by asking and telling."""

import dataclasses
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, integer
from mindgap.ops.mixture.points import as_numbers, as_rows
from mindgap.sampling.acquisition import KINDS, Function, Interest
from mindgap.sampling.box import Domain
from mindgap.sampling.initial_design import STARTS, Start, start_points
from mindgap.sampling.journal import Journal
from mindgap.sampling.proposal import DENSITIES, Draw
from mindgap.sampling.trail import Asked, Trail

Value = float | Sequence[float] | Tensor


@dataclasses.dataclass(frozen=True)
class Sampled:
    """Points and their values; ``new`` says which were chosen by interest rather than by the start."""

    points: Tensor
    values: Tensor
    new: Tensor


class TaylorSampler:
    """Chooses points where a function changes quickly, so that a model of it learns more from as many evaluations.

    The first ``initial`` points fill the domain; further ones are drawn from a density that follows
    the interest of those known. ``run`` evaluates a function of your own at once. ``ask`` and
    ``tell`` leave the evaluation to you: an external program, a queue, a cluster. With a
    ``session`` file every point is on disk before you get it and every value before ``tell``
    returns; make the sampler again with the same file, and it goes on where it was.

    Args:
        function: takes n rows and returns n values or rows; None where only values will be told.
        domain: a :class:`Box`, :class:`Simplex`, :class:`Product` or :class:`Where`.
        initial: number of points of the start.
        start: ``"sobol"``, ``"grid"``, ``"uniform"`` or ``"latin-hypercube"``.
        interest: a kind or an :class:`Interest`; by default ``"derivative"`` with a function, else
            ``"neighbors"``.
        density: a kind or a :class:`Draw`; by default ``"exact"`` with derivatives of a function,
            else ``"pool"``.
        seed: of everything that is drawn.
        session: path of the journal.

    >>> from mindgap.sampling import Box, TaylorSampler
    >>> sampler = TaylorSampler(lambda x: torch.tanh(9 * x[:, 0]), Box(-1, 1), initial=8)
    >>> found = sampler.run(8)
    >>> found.points.shape, bool(found.points[found.new].abs().mean() < 0.4)
    (torch.Size([16, 1]), True)
    """

    def __init__(
        self,
        function: Function | None,
        domain: Domain,
        *,
        initial: int = 16,
        start: Start = "sobol",
        interest: str | Interest | None = None,
        density: str | Draw | None = None,
        seed: int = 0,
        session: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(domain, Domain):
            raise InputError(
                f"domain must be a Box, Simplex, Product or Where, got {domain!r}. Try Box(0, 1)."
            )
        self.function, self.domain = function, domain
        self.initial, self.seed = integer("initial", initial, 0), integer("seed", seed, 0, 2**62)
        self.start: Start = choice("start", start, STARTS)  # type: ignore[assignment]
        self.interest = _interest(interest, function)
        self.density = _density(density, self.interest, function)
        self._start: Tensor | None = None
        self._journal = None if session is None else Journal(session, self.settings())
        self._trail = Trail(domain.dimension)
        for event in self._journal.events if self._journal else ():
            self._trail.replay(event)

    def settings(self) -> dict[str, Any]:
        """What a session is bound to, as plain data; a domain with a rule in Python is bound by its box alone."""
        try:
            domain = self.domain.to_dict()
        except InputError:
            domain = {"kind": "rule", "box": self.domain.box.to_dict()}
        return {
            "domain": domain,
            "initial": self.initial,
            "start": self.start,
            "interest": dataclasses.asdict(self.interest),
            "density": dataclasses.asdict(self.density),
            "seed": self.seed,
        }

    def ask(self, count: int = 1) -> list[Asked]:
        """Where to evaluate next: what is left of the start, then points by interest.

        Points whose values are still to come do not count; while too few values are known, points
        are uniform.
        """
        integer("count", count)
        first = self._trail.begun
        left = max(0, min(self.initial - first, count))
        parts = [self._starts()[first : first + left]] if left else []
        if count > left:
            parts.append(self._next(count - left))
        asked = self._trail.asked(
            torch.cat(parts), ["start"] * left + ["interest"] * (count - left)
        )
        self._write(_events(asked))
        self._trail.add(asked)
        return asked

    def tell(self, number: int | Asked, value: Value) -> None:
        """The value of a point that was asked; a value that is not finite is kept as a failure."""
        self.tell_many([(number, value)])

    def tell_many(self, answers: Iterable[tuple[int | Asked, Value]]) -> None:
        """Several values at once; all or none are taken."""
        events = [self._trail.answer(_number(number), _numbers(value)) for number, value in answers]
        self._trail.check(events)
        self._write(events)
        for event in events:
            self._trail.replay(event)

    def fail(self, number: int | Asked, reason: str) -> None:
        """Say that a point could not be evaluated; it stays recorded and plays no further part."""
        event = self._trail.failure(_number(number), reason)
        self._trail.check([event])
        self._write([event])
        self._trail.replay(event)

    def know(self, points: Any, values: Any) -> list[Asked]:
        """Take in points that were evaluated elsewhere, with their values, one row per point; all or none are taken.

        They count as neither start nor new, may lie outside the domain, and get numbers like points
        that were asked.

        >>> from mindgap.sampling import Box
        >>> sampler = TaylorSampler(None, Box(0, 1), initial=0)
        >>> given = sampler.know([[0.0], [0.4], [0.5], [1.0]], [0.0, 0.0, 1.0, 1.0])
        >>> len(sampler.points), sampler.ask(1)[0].number
        (4, 4)
        """
        rows = as_rows(points, dimension=self.domain.dimension)
        found = as_rows(
            as_numbers(values, "values").reshape(len(rows), -1) if len(rows) else [], "values"
        )
        given = self._trail.asked(rows, ["given"] * len(rows))
        told = [
            self._trail.answer(one.number, value)
            for one, value in zip(given, found.tolist(), strict=True)
        ]
        self._trail.check_width(told)
        events = [event for pair in zip(_events(given), told, strict=True) for event in pair]
        self._write(events)
        for event in events:
            self._trail.replay(event)
        return given

    @property
    def asked(self) -> list[Asked]:
        """All points so far by their number, whatever became of them."""
        return list(self._trail.points)

    @property
    def answers(self) -> dict[int, list[float]]:
        """The values that are known, by number."""
        return dict(self._trail.answers)

    @property
    def width(self) -> int | None:
        """How many outputs the function has; None as long as no value is known."""
        return self._trail.width

    @property
    def session(self) -> Path | None:
        """The path of the journal."""
        return None if self._journal is None else self._journal.path

    @property
    def session_id(self) -> str:
        """What tells this session from another of the same name."""
        return "" if self._journal is None else self._journal.id

    @property
    def pending(self) -> list[Asked]:
        """Points that were asked and have no answer yet."""
        return self._trail.pending

    @property
    def failed(self) -> dict[int, str]:
        """Numbers of the points that failed, and why."""
        return dict(self._trail.failures)

    @property
    def points(self) -> Tensor:
        """The points whose values are known, in the order in which they were asked."""
        return self._trail.known()[0]

    @property
    def values(self) -> Tensor:
        """Their values, one row per point."""
        return self._trail.known()[1]

    def found(self) -> Sampled:
        """All that is known."""
        points, values, new = self._trail.known()
        return Sampled(points, values, new)

    def interests(self) -> Tensor:
        """The interest of every known point."""
        points, values, _ = self._trail.known()
        if not len(points):
            return torch.empty(0, dtype=torch.float64)
        return self.interest.of(self.function, points, values, self.domain, self.seed)

    def run(self, new: int, *, rounds: int = 1) -> Sampled:
        """Evaluate the function at the start and at ``new`` points by interest, chosen in so many rounds."""
        if self.function is None:
            raise InputError(
                "run must have a function to evaluate, got none. Pass one, or use ask() and tell()."
            )
        integer("new", new, 0), integer("rounds", rounds)
        self._evaluate(self.pending)
        if self._trail.begun < self.initial:
            self._evaluate(self.ask(self.initial - self._trail.begun))
        for turn in range(rounds):
            count = new * (turn + 1) // rounds - new * turn // rounds
            if count:
                self._evaluate(self.ask(count))
        return self.found()

    def close(self) -> None:
        """Let another process write the session."""
        if self._journal is not None:
            self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _starts(self) -> Tensor:
        if self._start is None:
            self._start = start_points(self.start, self.initial, self.domain, self.seed)
        return self._start

    def _next(self, count: int) -> Tensor:
        points = self.points
        random = generator((self.seed * 1_000_003 + len(self._trail)) % 2**62)
        if len(points) < max(self.interest.needed(self.domain), 1):
            return self.domain.uniform(count, random)
        function, anywhere = self.function, None
        if function is not None and self.interest.calls:
            anywhere = lambda rows: self.interest.anywhere(function, rows, self.seed)  # noqa: E731
        known = self.interests() if self.density.density != "exact" else torch.ones(len(points))
        even = not bool(self._trail.known()[2].any())
        return self.density.points(count, self.domain, points, known, anywhere, random, even=even)

    def _evaluate(self, asked: Sequence[Asked]) -> None:
        if not asked:
            return
        assert self.function is not None
        points = torch.tensor([one.point for one in asked], dtype=torch.float64)
        with torch.no_grad():
            values = torch.as_tensor(self.function(points)).detach().double()
        if values.ndim == 0 or len(values) != len(points):
            raise InputError(
                f"The function must give a value for each of {len(points)} rows, got the shape "
                f"{tuple(values.shape)}. "
                "Return one row for each row."
            )
        self.tell_many(zip(asked, values.reshape(len(points), -1), strict=True))

    def _write(self, events: list[dict[str, Any]]) -> None:
        if self._journal is not None:
            self._journal.append(events)


def _interest(given: str | Interest | None, function: Function | None) -> Interest:
    if isinstance(given, Interest):
        return given
    kind = given or ("neighbors" if function is None else "derivative")
    return Interest(kind=choice("interest", kind, KINDS))  # type: ignore[arg-type]


def _density(given: str | Draw | None, interest: Interest, function: Function | None) -> Draw:
    if isinstance(given, Draw):
        return given
    kind = given or ("exact" if interest.kind == "derivative" and function is not None else "pool")
    return Draw(density=choice("density", kind, DENSITIES))  # type: ignore[arg-type]


def _events(asked: Sequence[Asked]) -> list[dict[str, Any]]:
    return [{"asked": one.number, "x": list(one.point), "why": one.why} for one in asked]


def _number(given: int | Asked) -> int:
    return given.number if isinstance(given, Asked) else given


def _numbers(value: Value) -> list[float]:
    found = torch.as_tensor(value, dtype=torch.float64).flatten().tolist()
    return [number if math.isfinite(number) else math.nan for number in found]
