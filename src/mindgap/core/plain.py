"""Plain data: what JSON can hold, with one text for equal values, and the way back.

Numbers that JSON lacks (NaN and the infinities) become words and are turned back into numbers on
reading.
"""

import dataclasses
import enum
import json
import math
import os
import reprlib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mindgap.core.errors import InputError

Fallback = Callable[[Any], str]
DEEPEST = 100  # levels of a file that is read; ours have less than 20
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def plain(value: Any, where: str = "value", *, fallback: Fallback | None = None) -> Any:
    """Turn a value into dicts, lists, strings, numbers and None.

    Args:
        value: Anything; dataclasses become dicts of their fields, objects with a ``to_dict`` what
            it returns.
        where: The name of the value in the error.
        fallback: Makes a text of what is no plain data, as ``repr`` does. Without it such a value
            is refused, and dataclasses carry their ``kind``, so that equal texts mean equal values.

    >>> plain({"width": (1, 2), "rate": float("inf")})
    {'width': [1, 2], 'rate': 'Infinity'}
    >>> plain({"size": 1j}, fallback=repr)
    {'size': '1j'}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, where, fallback=fallback)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _worded(float(value))
    return _container(value, where, fallback)


def _container(value: Any, where: str, fallback: Fallback | None) -> Any:
    if isinstance(value, Mapping):
        return {
            _key(key, where): plain(item, f"{where}.{key}", fallback=fallback)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{k}]", fallback=fallback) for k, item in enumerate(value)]
    if fallback is not None and hasattr(value, "to_dict"):
        return plain(value.to_dict(), where, fallback=fallback)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = {} if fallback else {"kind": f"{type(value).__module__}.{type(value).__qualname__}"}
        return {**kind, **plain(fields_of(value), where, fallback=fallback)}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # Arrays and scalars of numpy and torch, without importing either.
    if callable(getattr(value, "tolist", None)):
        return plain(_listed(value, where), where, fallback=fallback)
    if fallback is not None:
        return fallback(value)
    raise InputError(
        f"{where} must be plain data (numbers, text, lists, dicts), got {type(value).__name__}. "
        "Pass its name or its numbers instead."
    )


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, as they are."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def unworded(value: Any) -> Any:
    """Turn the words in plain data back into numbers.

    >>> unworded({"a": ["Infinity", "text"]})
    {'a': [inf, 'text']}
    """
    if isinstance(value, dict):
        return {key: unworded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unworded(item) for item in value]
    return _WORDS.get(value, value) if isinstance(value, str) else value


def canonical(value: Any, where: str = "value") -> str:
    """Write strict JSON with sorted keys and exact floats.

    >>> canonical({"b": 0.1, "a": (1, None)})
    '{"a":[1,null],"b":0.1}'
    """
    return json.dumps(plain(value, where), allow_nan=False, sort_keys=True, separators=(",", ":"))


def ordered(value: Any, where: str = "value") -> str:
    """Write strict JSON that keeps the order of keys, for what people read.

    >>> ordered({"b": 1, "a": (2, 3)})
    '{"b": 1, "a": [2, 3]}'
    """
    return json.dumps(plain(value, where), allow_nan=False)


def restored(text: str) -> Any:
    """Read what :func:`canonical` or :func:`ordered` wrote.

    >>> restored(canonical([float("-inf"), 1]))
    [-inf, 1]
    """
    return unworded(parsed(text))


def parsed(text: str) -> Any:
    """Read JSON of unknown origin, however hostile.

    >>> parsed("[" * 1000 + "]" * 1000)
    Traceback (most recent call last):
    mindgap.core.errors.InputError: JSON must be nested at most 100 levels deep, got more. \
Write the file again.
    """
    try:
        value = json.loads(text)
        _check_depth(value, DEEPEST)
    except RecursionError:
        raise InputError(
            f"JSON must be nested at most {DEEPEST} levels deep, got more. Write the file again."
        ) from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"JSON must be whole, got: {error}. Write the file again.") from error
    return value


def _check_depth(value: Any, left: int) -> None:
    if not left:
        raise RecursionError
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            _check_depth(part, left - 1)


def check_types(value: Any, hint: Any, where: str = "value") -> None:
    """Raise unless a value that was read from a file has the type that was declared for it.

    Args:
        value: The value; dataclasses are checked field by field.
        hint: The type, as in an annotation.
        where: The name of the value in the error.

    >>> check_types({"a": [1, 2.5]}, dict[str, list[float]])
    >>> check_types({"a": [1, "2"]}, dict[str, list[float]], "table")
    Traceback (most recent call last):
    mindgap.core.errors.InputError: table.a[1] must be of type float, got '2'. Write the file again.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if not any(_has_type(value, part) for part in inner):
            raise _wrong_type(where, hint, value)
        return
    if not _is_instance(value, hint, origin, inner):
        raise _wrong_type(where, hint, value)
    for name, part, part_hint in _parts(value, hint, origin, inner):
        check_types(part, part_hint, f"{where}{name}")


def _has_type(value: Any, hint: Any) -> bool:
    try:
        check_types(value, hint)
    except InputError:
        return False
    return True


def _is_instance(value: Any, hint: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    if hint is Any:
        return True
    if origin is typing.Literal:
        return value in inner
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float)
    if origin is tuple and inner[-1] is not Ellipsis:
        return isinstance(value, tuple) and len(value) == len(inner)
    return isinstance(value, origin or hint)


def _parts(
    value: Any, hint: Any, origin: Any, inner: tuple[Any, ...]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the value and the type of everything inside a value."""
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(type(value))  # of the kind of chart that it is
        for name, part in fields_of(value).items():
            yield f".{name}", part, hints[name]
    elif inner and isinstance(value, Mapping):
        for name, part in value.items():
            yield f".{name}", part, inner[1]
    elif inner and isinstance(value, list | tuple):
        fixed = len(inner) == len(value) and inner[-1] is not Ellipsis
        for k, part in enumerate(value):
            yield f"[{k}]", part, inner[k] if fixed and origin is tuple else inner[0]


def _wrong_type(where: str, hint: Any, value: Any) -> InputError:
    wanted = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return InputError(
        f"{where} must be of type {wanted}, got {reprlib.repr(value)}. Write the file again."
    )


def _worded(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _key(key: Any, where: str) -> str:
    if isinstance(key, str | int | float):
        return str(key)
    raise InputError(
        f"The keys of {where} must be text or numbers, got {type(key).__name__}. Use text as keys."
    )


def _listed(value: Any, where: str) -> Any:
    found = value.tolist()
    if type(found) is type(value):
        raise InputError(
            f"{where} must be plain data, got {type(value).__name__}. Pass its parts as real "
            "numbers."
        )
    return found
