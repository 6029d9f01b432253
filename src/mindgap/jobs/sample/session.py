"""Make a sampler from the settings given, those of its session, and the defaults."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError, expanded
from mindgap.jobs.sample.command import Command
from mindgap.ops.mixture.points import as_numbers, as_rows
from mindgap.sampling import Acquisition, Box, Domain, Proposal, TaylorSampler
from mindgap.sampling.domain import from_dict
from mindgap.sampling.trail import saved_settings

Evaluable = Callable[[Any], Any] | Command
Known = tuple[Tensor, Tensor]
KEPT = ("initial", "initial_design", "seed")  # settings that a session keeps as they are


def open_sampler(
    evaluator: Evaluable | None,
    domain: Domain | None = None,
    *,
    known: tuple[Any, Any] | None = None,
    differentiable: bool = False,
    session: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> TaylorSampler:
    """Make a sampler with the settings given, those of its session, or the defaults.

    Args:
        evaluator: What will be evaluated; None where values are only told.
        domain: Where to sample; that of the session, or the box around ``known``, if None.
        known: Points and values to start from; those that the session holds are not added twice.
        differentiable: Whether the evaluator is a torch function of a table of points.
        session: Path of the session's journal; nothing is kept if None.
        settings: Settings of :class:`TaylorSampler` by name; None means not given. ``acquisition``
            and ``proposal`` may be kinds or mappings of some of their fields.
    """
    known = None if known is None else _tables(*known)
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    saved = saved_settings(session) if session is not None and _begun(Path(session)) else {}
    plain = {"kind": "derivative" if differentiable else "neighbors"}
    acquisition = _merged(
        Acquisition, given.pop("acquisition", {}), saved.get("acquisition", plain)
    )
    exact = acquisition.kind == "derivative" and evaluator is not None
    plain = {"kind": "exact" if exact else "pool"}
    proposal = _merged(Proposal, given.pop("proposal", {}), saved.get("proposal", plain))
    given = {name: saved[name] for name in KEPT if name in saved} | given
    given.setdefault("initial", 16 if known is None else 0)
    place = domain or (from_dict(saved["domain"]) if saved else _around(known))
    sampler = TaylorSampler(
        _function(evaluator, acquisition, differentiable),
        place,
        acquisition=acquisition,
        proposal=proposal,
        session=session,
        **given,
    )
    try:
        if known is not None:
            _add(sampler, known)
    except BaseException:
        sampler.close()
        raise
    return sampler


def _begun(session: Path) -> bool:
    path = expanded(session)
    return path.is_file() and path.stat().st_size > 0


def _merged(cls: Any, given: Any, base: Mapping[str, Any]) -> Any:
    if isinstance(given, cls):
        return given
    return cls(**{**base, **({"kind": given} if isinstance(given, str) else given)})


def _tables(points: Any, values: Any) -> Known:
    rows = as_rows(points)
    found = as_numbers(values, "values")
    if not len(rows) or found.ndim not in (1, 2) or len(found) != len(rows):
        raise InputError(
            f"known must be points and a value for each, got {len(rows)} points and values of "
            f"shape {tuple(found.shape)}. Pass one row per point."
        )
    return rows, found.reshape(len(rows), -1)


def _around(known: Known | None) -> Domain:
    if known is None:
        raise InputError(
            "There must be a domain to sample, got none. Pass low and high, or points that are "
            "known."
        )
    low, high = known[0].amin(0), known[0].amax(0)
    if not bool((low < high).all()):
        raise InputError(
            "The known points must differ in every coordinate to span a domain, got one value "
            "alone. Pass low and high."
        )
    return Box(low, high)


def _function(evaluator: Evaluable | None, acquisition: Acquisition, differentiable: bool) -> Any:
    """Return what the sampler may call for its acquisition function, as a function of rows."""
    if differentiable or evaluator is None or not acquisition.calls:
        return evaluator if differentiable else None
    derivative = acquisition.kind == "derivative"
    if derivative or isinstance(evaluator, Command):
        word = "torch function (differentiable)" if derivative else "Python function"
        raise InputError(
            f"acquisition={acquisition.kind!r} must have a {word} to call, got another evaluator. "
            "Use 'neighbors', which needs no further calls."
        )
    return lambda rows: torch.stack(
        [torch.as_tensor(evaluator(row.numpy())).reshape(-1) for row in rows]
    )


def _add(sampler: TaylorSampler, known: Known) -> None:
    outside = ~sampler.domain.contains(known[0])
    if bool(outside.any()):
        raise InputError(
            f"The known points must lie in the domain, got {int(outside.sum())} of {len(outside)} "
            f"outside, such as {known[0][outside][0].tolist()}. Widen the domain or remove them."
        )
    held = {
        (one.point, tuple(sampler.answers[one.number]))
        for one in sampler.asked
        if one.why == "given"
    }
    pairs = zip(*(table.tolist() for table in known), strict=True)
    fresh = [pair for pair in pairs if (tuple(pair[0]), tuple(pair[1])) not in held]
    if fresh:
        sampler.know([point for point, _ in fresh], [value for _, value in fresh])
