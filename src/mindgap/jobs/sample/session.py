"""A sampler from what is given, what its session remembers, and the defaults."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError
from mindgap.jobs.sample.evaluate import Command
from mindgap.ops.mixture.points import as_numbers, as_rows
from mindgap.sampling import Box, Domain, Draw, Interest, TaylorSampler
from mindgap.sampling.domain import from_dict
from mindgap.sampling.journal import saved_settings

Evaluator = Callable[[Any], Any] | Command
Known = tuple[Tensor, Tensor]


def open_sampler(
    evaluator: Evaluator | None,
    domain: Domain | None = None,
    *,
    known: tuple[Any, Any] | None = None,
    differentiable: bool = False,
    session: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> TaylorSampler:
    """A sampler with the settings given, those of its session, or the defaults, in this order.

    ``interest`` and ``density`` may be names, mappings of some fields, or an :class:`Interest` and
    a :class:`Draw`. Known points that the session holds already are not taken in again.
    """
    known = None if known is None else _tables(*known)
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    saved = saved_settings(session) if session is not None and _begun(Path(session)) else {}
    kind = "derivative" if differentiable else "neighbors"
    interest = _merged(Interest, given.pop("interest", {}), saved.get("interest", {"kind": kind}))
    exact = interest.kind == "derivative" and evaluator is not None
    plain = {"density": "exact" if exact else "pool"}
    density = _merged(Draw, given.pop("density", {}), saved.get("density", plain))
    given = {name: saved[name] for name in ("initial", "start", "seed") if name in saved} | given
    given.setdefault("initial", 16 if known is None else 0)
    place = domain or (from_dict(saved["domain"]) if saved else _around(known))
    function = _function(evaluator, interest, differentiable)
    sampler = TaylorSampler(
        function, place, interest=interest, density=density, session=session, **given
    )
    try:
        if known is not None:
            _take(sampler, known)
    except BaseException:
        sampler.close()
        raise
    return sampler


def _begun(session: Path) -> bool:
    path = session.expanduser()
    return path.is_file() and path.stat().st_size > 0


def _merged(cls: Any, given: Any, base: Mapping[str, Any]) -> Any:
    if isinstance(given, cls):
        return given
    word = "kind" if cls is Interest else "density"
    return cls(**{**base, **({word: given} if isinstance(given, str) else given)})


def _tables(points: Any, values: Any) -> Known:
    rows = as_rows(points)
    found = as_numbers(values, "values")
    if not len(rows) or found.ndim not in (1, 2) or len(found) != len(rows):
        raise InputError(
            f"known must be points and a value for each, got {len(rows)} points and values of "
            "shape "
            f"{tuple(found.shape)}. Pass one row per point."
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


def _function(evaluator: Evaluator | None, interest: Interest, differentiable: bool) -> Any:
    """What the sampler may call: a torch function, or one of single points where its interest needs further calls."""
    if differentiable or evaluator is None or not interest.calls:
        return evaluator if differentiable else None
    if isinstance(evaluator, Command) or interest.kind == "derivative":
        word = (
            "torch function (differentiable)"
            if interest.kind == "derivative"
            else "Python function"
        )
        raise InputError(
            f"interest={interest.kind!r} must have a {word} to call, got another evaluator. Use "
            "'neighbors', which "
            "needs no further calls."
        )
    return lambda rows: torch.stack(
        [torch.as_tensor(evaluator(row.numpy())).reshape(-1) for row in rows]
    )


def _take(sampler: TaylorSampler, known: Known) -> None:
    held = {
        (one.point, tuple(sampler.answers[one.number]))
        for one in sampler.asked
        if one.why == "given"
    }
    pairs = zip(*(table.tolist() for table in known), strict=True)
    fresh = [pair for pair in pairs if (tuple(pair[0]), tuple(pair[1])) not in held]
    if fresh:
        sampler.know([point for point, _ in fresh], [value for _, value in fresh])
