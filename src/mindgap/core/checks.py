"""Checks of arguments. Every error says what was expected, what came and what to do."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import numbers
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mindgap.core.errors import InputError, shown, unknown_name

if TYPE_CHECKING:
    import torch

C = TypeVar("C", bound=Callable[..., Any])
LARGEST = 2**63 - 1  # of an integer that torch and NumPy can hold
_SEQUENCES = (collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_NAMES = {int: "an integer", float: "a number", bool: "True or False", str: "a string"}


def validated(call: C) -> C:
    """Refuse arguments of a function or class that are not of their annotated type.

    Every public callable has this decorator, so that a wrong type is one sentence where it came
    in, not a TypeError somewhere below. Ranges remain the business of the callable.

    Args:
        call: The function or class; its ``__init__`` is wrapped.

    >>> @validated
    ... def half(size: int) -> float:
    ...     return size / 2
    >>> half("many")
    Traceback (most recent call last):
    mindgap.core.errors.InputError: size must be an integer, got 'many'. See help(half).
    """
    if isinstance(call, type):
        call.__init__ = _guarded(call.__init__, call.__name__)  # type: ignore[misc]
        return call
    return typing.cast("C", _guarded(call, call.__name__))


def check_settings(instance: object) -> None:
    """Check what a constructor stored against its annotations, all but named choices.

    For estimators in the manner of scikit-learn, whose constructors may refuse nothing and whose
    ``fit`` checks instead.

    Args:
        instance: Has one attribute per argument of its constructor.
    """
    kind = type(instance)
    for name, hint in _signature(kind.__init__)[1].items():
        if name != "return" and not _literals(hint):
            check_type(name, getattr(instance, name), hint, f"See help({kind.__name__}).")


def _guarded(function: Callable[..., Any], title: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        signature, hints = _signature(function)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python says best which argument is missing
        for name, hint in hints.items():
            if name in given:
                check_type(name, given[name], hint, f"See help({title}).")
        if given.get("seed") is not None:  # everywhere the same thing, and torch would take -1
            integer("seed", given["seed"], 0, LARGEST)
        return function(*args, **kwargs)

    return guarded


def resolved_hints(call: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotation of every argument that :func:`validated` checks.

    >>> resolved_hints(number)["name"]
    <class 'str'>
    """
    function = inspect.getattr_static(call, "__init__") if isinstance(call, type) else call
    return _signature(inspect.unwrap(function))[1]


@functools.cache
def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    signature = inspect.signature(function)
    names = getattr(inspect.unwrap(function), "__globals__", {})
    spread = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return signature, {
        parameter.name: _resolved(parameter.annotation, names)
        for parameter in signature.parameters.values()
        if parameter.annotation is not inspect.Parameter.empty and parameter.kind not in spread
    }


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    """Evaluate a postponed annotation; one that only type checkers can read checks nothing."""
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, names)  # noqa: S307  (our own source)
    except NameError:
        return Any


def check_type(name: str, value: object, hint: Any, advice: str) -> None:
    """Refuse a value that is not of its annotated type.

    NaN is no number, a string no sequence, and a bool no integer. An integer must fit 64 bits.

    Args:
        name: The argument's name, for the message.
        value: What the user passed.
        hint: The annotation.
        advice: What to do, as a sentence.

    >>> check_type("ks", [5, "10"], list[int], "Pass a list.")
    Traceback (most recent call last):
    mindgap.core.errors.InputError: ks must be a sequence of integers, got [5, '10']. Pass a list.
    """
    if matches(value, hint):
        return
    known = [word for word in _literals(hint) if isinstance(word, str)]
    if isinstance(value, str) and known:
        raise unknown_name(name, value, known)
    raise InputError(f"{name} must be {_described(hint)}, got {shown(value)}. {advice}")


def matches(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; True for a type that cannot be tested.

    >>> matches(3, float | None), matches(float("nan"), float), matches("ab", list[str])
    (True, False, False)
    """
    origin, inner, sure = _parts(hint)
    if type(value) in sure:
        return True
    if origin is typing.Union or origin is types.UnionType:
        return any(matches(value, part) for part in inner)
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if hint is None:
        return value is None
    if hint in (int, float, bool):
        return _is_number(value, hint)
    if origin is tuple and Ellipsis not in inner:
        fits = isinstance(value, tuple | list) and len(value) == len(inner)
        return fits and all(map(matches, value, inner))
    if origin in (tuple, list, *_SEQUENCES):
        return _is_sequence(value, inner[0] if inner else Any)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and (
            len(inner) < 2 or all(matches(item, inner[1]) for item in value.values())
        )
    return _is_instance(value, origin or hint)


@functools.cache  # an ensemble checks the same annotations for every member
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...], frozenset[type]]:
    """Take an annotation apart, with the types whose values it allows without a look at them."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return origin, inner, frozenset().union(*(_parts(part)[2] for part in inner))
    plain = isinstance(hint, type) and origin is None and hint not in (int, float)
    return origin, inner, frozenset({hint} if plain else {type(None)} if hint is None else ())


def _is_number(value: Any, hint: type) -> bool:
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool)
    if isinstance(value, numbers.Integral):
        return -LARGEST <= int(value) <= LARGEST  # torch fails on a larger one, also as a float
    return hint is float and isinstance(value, numbers.Real) and not math.isnan(value)


def _is_sequence(value: Any, hint: Any) -> bool:
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return False
    # An iterator would be used up, and the entries of arrays have one type.
    return not isinstance(value, list | tuple) or all(matches(item, hint) for item in value)


def _is_instance(value: Any, hint: Any) -> bool:
    try:
        return isinstance(value, hint)
    except TypeError:  # Any, a type variable, a protocol
        return True


def _literals(hint: Any) -> list[Any]:
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return [word for part in typing.get_args(hint) for word in _literals(part)]


def _described(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_described, inner)))
    if origin is typing.Literal:
        return " or ".join(map(repr, inner))
    if hint in (None, type(None)):
        return "None"
    if origin in (tuple, list, *_SEQUENCES):
        return f"a sequence of {_plural(_described(inner[0]) if inner else 'a value')}"
    if origin is collections.abc.Callable:
        return "a function"
    if hint in _NAMES:
        return _NAMES[hint]
    name = getattr(origin or hint, "__name__", str(hint))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _plural(words: str) -> str:
    """Turn 'a sequence of strings' into 'sequences of strings'; a list of choices stays."""
    article, _, rest = words.partition(" ")
    noun, gap, more = rest.partition(" ")
    return f"{noun}s{gap}{more}" if article in ("a", "an") else words


def integer(
    name: str,
    value: object,
    low: int = 1,
    high: int | None = None,
    meaning: str = "",
    advice: str = "",
) -> int:
    """Return ``value`` if it is an integer in [low, high].

    Args:
        name: The argument's name, for the message.
        value: What the user passed.
        low: Smallest allowed value.
        high: Largest allowed value; no limit if None.
        meaning: What ``high`` is, such as "the number of samples".
        advice: What the user can do other than lower the value.

    >>> integer("size", 9, 1, 5, "the number of samples", "pass more data")
    Traceback (most recent call last):
    mindgap.core.errors.InputError: size must be an integer from 1 to 5 (the number of samples), got 9. \
Lower size or pass more data.
    """
    wanted = (
        f"of at least {low}"
        if high is None
        else f"from {low} to {high}" + (f" ({meaning})" if meaning else "")
    )
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError(
            f"{name} must be an integer {wanted}, got {shown(value)}. Pass a whole number."
        )
    found = int(value)
    if found < low:
        raise InputError(f"{name} must be an integer {wanted}, got {shown(found)}. Raise {name}.")
    if found > (LARGEST if high is None else high):
        more = f" or {advice}" if advice else ""
        raise InputError(
            f"{name} must be an integer {wanted}, got {shown(found)}. Lower {name}{more}."
        )
    return found


def number(name: str, value: float, low: float = 0.0, high: float = math.inf) -> float:
    """Return ``value`` as a float if it is a finite number in [low, high].

    >>> number("fraction", 1.5, 0, 1)
    Traceback (most recent call last):
    mindgap.core.errors.InputError: fraction must be a number from 0 to 1, got 1.5. Lower fraction.
    """
    wanted = f"of at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
    if not matches(value, float) or math.isinf(value):
        raise InputError(
            f"{name} must be a number {wanted}, got {shown(value)}. Pass a finite number."
        )
    if not low <= value <= min(high, sys.float_info.max):
        raise InputError(
            f"{name} must be a number {wanted}, got {shown(value)}. "
            f"{'Raise' if value < low else 'Lower'} {name}."
        )
    return float(value)


def rate(name: str, value: float) -> float:
    """Return ``value`` if it is a probability below one.

    >>> rate("dropout", 1.0)
    Traceback (most recent call last):
    mindgap.core.errors.InputError: dropout must be a number from 0 to below 1, got 1.0. Use 0 to switch it off.
    """
    if not matches(value, float) or not 0 <= value < 1:
        raise InputError(
            f"{name} must be a number from 0 to below 1, got {shown(value)}. Use 0 to switch it "
            "off."
        )
    return float(value)


def choice(name: str, value: str, known: Iterable[str]) -> str:
    """Return ``value`` if it is one of the known names, else suggest the nearest one.

    >>> choice("kind", "pair", ["pair", "symmetric"])
    'pair'
    """
    names = list(known)
    if not isinstance(value, str):
        raise InputError(
            f"{name} must be one of {', '.join(map(repr, names))}, got {shown(value)}. Pass a name."
        )
    if value not in names:
        raise unknown_name(name, value, names)
    return value


def generator(seed: int) -> torch.Generator:
    """Create a seeded generator, so that torch's global one stays untouched.

    >>> import torch
    >>> torch.equal(torch.rand(3, generator=generator(0)), torch.rand(3, generator=generator(0)))
    True
    """
    import torch  # a driver of trials checks its arguments without it

    return torch.Generator().manual_seed(integer("seed", seed, 0, LARGEST))
