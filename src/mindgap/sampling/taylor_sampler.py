"""TaylorSampler: choose where to evaluate a function, in one call or by ask and tell."""

import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, implements, integer, validated
from mindgap.ops.mixture.points import as_numbers, as_rows
from mindgap.sampling.acquisition import ACQUISITIONS, Acquisition, Function
from mindgap.sampling.box import Domain
from mindgap.sampling.initial_design import DESIGNS, Design, initial_design
from mindgap.sampling.proposal import PROPOSALS, Proposal
from mindgap.sampling.trail import Asked, Journal, Trail

Value = float | Sequence[float] | Tensor


@dataclasses.dataclass(frozen=True)
class Sampled:
    """Points and their values.

    Args:
        points: One row per point.
        values: One row per point.
        new: True where the acquisition function chose the point.

    >>> from mindgap.sampling import Box, TaylorSampler
    >>> found = TaylorSampler(lambda x: torch.tanh(9 * x[:, 0]), Box(-1, 1), initial=4).run(2)
    >>> isinstance(found, Sampled), found.points.shape, int(found.new.sum())
    (True, torch.Size([6, 1]), 2)
    """

    points: Tensor
    values: Tensor
    new: Tensor


@implements("T1", "T2", cites=("novello2020variance",))
@validated
class TaylorSampler:
    r"""Taylor Based Sampling: evaluates an expensive function where it changes quickly.

    Formula: $X_{N+1}, …, X_{N+N'} \sim p, \quad p(x) ∝ Df_\epsilon^n(x), \quad x \in S$

    Reading: A model learns more from points where the function changes than from as many uniform
    points. The first N points fill the domain S; further ones are drawn from a density that follows
    the acquisition function. Compare with as many uniform points before you rely on it: where the
    function changes everywhere alike, there is nothing to gain.

    Assumes: The initial design meets the places where the function changes. Values have no noise,
    or less noise than the changes to be found.

    ``run`` evaluates a function of your own. ``ask`` and ``tell`` leave the evaluation to you: an
    external program, a queue, a cluster. With a ``session`` file every point is on disk before you
    get it and every value before ``tell`` returns. A new sampler with the same file resumes where
    the old one stopped.

    Args:
        function: Takes n rows and returns n values or rows; None where values are only told.
        domain: A :class:`Box`, :class:`Simplex`, :class:`Product` or :class:`Where`.
        initial: Number of points of the initial design.
        initial_design: How they fill the domain: ``"sobol"``, ``"grid"``, ``"uniform"`` or
            ``"latin-hypercube"``.
        acquisition: A kind or an :class:`Acquisition`; ``"derivative"`` with a function and
            ``"neighbors"`` without one, if None.
        proposal: A kind or a :class:`Proposal`; ``"exact"`` with derivatives of a function, else
            ``"pool"``, if None.
        seed: Seed of everything that is drawn.
        session: Path of the session's journal; nothing is written if None.

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
        initial_design: Design = "sobol",
        acquisition: str | Acquisition | None = None,
        proposal: str | Proposal | None = None,
        seed: int = 0,
        session: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(domain, Domain):
            raise InputError(
                f"domain must be a Box, Simplex, Product or Where, got {domain!r}. Try Box(0, 1)."
            )
        self.function, self.domain = function, domain
        self.initial, self.seed = integer("initial", initial, 0), integer("seed", seed, 0, 2**62)
        choice("initial_design", initial_design, DESIGNS)
        self.initial_design: Design = initial_design
        self.acquisition = _acquisition(acquisition, function)
        self.proposal = _proposal(proposal, self.acquisition, function)
        self._initial_points: Tensor | None = None
        self._journal = None if session is None else Journal(session, self.settings())
        self._trail = Trail(domain.dimension)
        for event in self._journal.events if self._journal else ():
            self._trail.replay(event)

    def settings(self) -> dict[str, Any]:
        """Return what a session is bound to, as plain data.

        A domain with a rule in Python is bound by its box alone.
        """
        try:
            domain = self.domain.to_dict()
        except InputError:
            domain = {"kind": "rule", "box": self.domain.box.to_dict()}
        return {
            "domain": domain,
            "initial": self.initial,
            "initial_design": self.initial_design,
            "acquisition": dataclasses.asdict(self.acquisition),
            "proposal": dataclasses.asdict(self.proposal),
            "seed": self.seed,
        }

    def ask(self, count: int = 1) -> list[Asked]:
        """Choose points to evaluate: what is left of the initial design, then by acquisition.

        Points whose values are not told yet do not influence the choice. While too few values are
        known, points are uniform.

        Args:
            count: Number of points.

        >>> from mindgap.sampling import Box
        >>> sampler = TaylorSampler(None, Box(0, 1), initial=2, initial_design="grid")
        >>> [(one.number, one.point, one.why) for one in sampler.ask(2)]
        [(0, (0.0,), 'initial'), (1, (1.0,), 'initial')]
        """
        integer("count", count)
        first = self._trail.initial
        left = max(0, min(self.initial - first, count))
        parts = [self._design()[first : first + left]] if left else []
        if count > left:
            parts.append(self._next(count - left))
        asked = self._trail.asked(
            torch.cat(parts), ["initial"] * left + ["acquisition"] * (count - left)
        )
        self._write(_events(asked))
        self._trail.add(asked)
        return asked

    def tell(self, number: int | Asked, value: Value) -> None:
        """Record the value of a point that was asked; one that is not finite counts as a failure.

        Args:
            number: The point, or its number.
            value: One number, or one per output.
        """
        self.tell_many([(number, value)])

    def tell_many(self, answers: Iterable[tuple[int | Asked, Value]]) -> None:
        """Record several values at once, all or none of them."""
        events = [self._trail.answer(_number(number), _numbers(value)) for number, value in answers]
        self._trail.check(events)
        self._write(events)
        for event in events:
            self._trail.replay(event)

    def fail(self, number: int | Asked, reason: str) -> None:
        """Record that a point could not be evaluated; it has no further influence.

        Args:
            number: The point, or its number.
            reason: Why it failed, in words.
        """
        event = self._trail.failure(_number(number), reason)
        self._trail.check([event])
        self._write([event])
        self._trail.replay(event)

    def know(self, points: Any, values: Any) -> list[Asked]:
        """Record points that were evaluated elsewhere, all or none of them.

        They belong neither to the initial design nor to the new points, may lie outside the domain,
        and get numbers like points that were asked.

        Args:
            points: One row per point.
            values: One number or row per point.

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
        """All points so far in the order of their numbers, evaluated or not."""
        return list(self._trail.points)

    @property
    def answers(self) -> dict[int, list[float]]:
        """The values that are known, by number."""
        return dict(self._trail.answers)

    @property
    def width(self) -> int | None:
        """Number of outputs of the function; None until a value is known."""
        return self._trail.width

    @property
    def session(self) -> Path | None:
        """Path of the session's journal."""
        return None if self._journal is None else self._journal.path

    @property
    def session_id(self) -> str:
        """Identifier that distinguishes this session from another at the same path."""
        return "" if self._journal is None else self._journal.id

    @property
    def pending(self) -> list[Asked]:
        """Points that were asked and have neither a value nor a failure."""
        return self._trail.pending

    @property
    def failed(self) -> dict[int, str]:
        """Numbers of the points that failed, and why."""
        return dict(self._trail.failures)

    @property
    def points(self) -> Tensor:
        """Points whose values are known, in the order in which they were asked."""
        return self._trail.known()[0]

    @property
    def values(self) -> Tensor:
        """Their values, one row per point."""
        return self._trail.known()[1]

    def found(self) -> Sampled:
        """Return all points whose values are known, with their values."""
        points, values, new = self._trail.known()
        return Sampled(points, values, new)

    def acquisition_values(self) -> Tensor:
        """Compute the acquisition function at every known point."""
        points, values, _ = self._trail.known()
        if not len(points):
            return torch.empty(0, dtype=torch.float64)
        return self.acquisition.of(self.function, points, values, self.domain, self.seed)

    def run(self, new: int, *, rounds: int = 1) -> Sampled:
        """Evaluate the function at the initial design and at new points.

        Args:
            new: Number of new points.
            rounds: Rounds in which they are chosen; later rounds use the values of earlier ones.
        """
        if self.function is None:
            raise InputError(
                "run must have a function to evaluate, got none. Pass one, or use ask() and tell()."
            )
        integer("new", new, 0)
        integer("rounds", rounds)
        self._evaluate(self.pending)
        if self._trail.initial < self.initial:
            self._evaluate(self.ask(self.initial - self._trail.initial))
        for turn in range(rounds):
            count = new * (turn + 1) // rounds - new * turn // rounds
            if count:
                self._evaluate(self.ask(count))
        return self.found()

    def close(self) -> None:
        """Release the session, so that another process can open it."""
        if self._journal is not None:
            self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _design(self) -> Tensor:
        if self._initial_points is None:
            self._initial_points = initial_design(
                self.initial_design, self.initial, self.domain, self.seed
            )
        return self._initial_points

    def _next(self, count: int) -> Tensor:
        points = self.points
        # Seeded by the number of points so far, so that a resumed session draws what an
        # uninterrupted one would have drawn.
        random = generator((self.seed * 1_000_003 + len(self._trail)) % 2**62)
        if len(points) < max(self.acquisition.needed(self.domain), 1):
            return self.domain.uniform(count, random)
        anywhere = None
        if self.function is not None and self.acquisition.calls:
            anywhere = functools.partial(self.acquisition.anywhere, self.function, seed=self.seed)
        exact = self.proposal.kind == "exact"  # which evaluates candidates, not known points
        known = torch.ones(len(points)) if exact else self.acquisition_values()
        even = not bool(self._trail.known()[2].any())
        return self.proposal.points(count, self.domain, points, known, anywhere, random, even=even)

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
                f"{tuple(values.shape)}. Return one row for each row."
            )
        self.tell_many(zip(asked, values.reshape(len(points), -1), strict=True))

    def _write(self, events: list[dict[str, Any]]) -> None:
        if self._journal is not None:
            self._journal.append(events)


def _acquisition(given: str | Acquisition | None, function: Function | None) -> Acquisition:
    if isinstance(given, Acquisition):
        return given
    kind = given or ("neighbors" if function is None else "derivative")
    return Acquisition(kind=choice("acquisition", kind, ACQUISITIONS))  # type: ignore[arg-type]


def _proposal(
    given: str | Proposal | None, acquisition: Acquisition, function: Function | None
) -> Proposal:
    if isinstance(given, Proposal):
        return given
    exact = acquisition.kind == "derivative" and function is not None
    kind = given or ("exact" if exact else "pool")
    return Proposal(kind=choice("proposal", kind, PROPOSALS))  # type: ignore[arg-type]


def _events(asked: Sequence[Asked]) -> list[dict[str, Any]]:
    return [{"asked": one.number, "x": list(one.point), "why": one.why} for one in asked]


def _number(given: int | Asked) -> int:
    return given.number if isinstance(given, Asked) else given


def _numbers(value: Value) -> list[float]:
    found = torch.as_tensor(value, dtype=torch.float64).flatten().tolist()
    return [number if math.isfinite(number) else math.nan for number in found]
