"""Plain data: what JSON can hold, with one text for equal values, and the way back.

Numbers that JSON lacks (NaN and the infinities) become words and are turned back into numbers on
reading.
"""

import dataclasses
import enum
import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from mindgap.core.errors import InputError

Fallback = Callable[[Any], str]
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
    """Write strict JSON that keeps the order of keys, for what people read."""
    return json.dumps(plain(value, where), allow_nan=False)


def restored(text: str) -> Any:
    """Read what :func:`canonical` or :func:`ordered` wrote.

    >>> restored(canonical([float("-inf"), 1]))
    [-inf, 1]
    """
    return unworded(json.loads(text))


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
