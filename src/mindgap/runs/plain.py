"""Plain data: one JSON text for equal values in every process, with numbers that JSON lacks as words."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
from collections.abc import Mapping
from typing import Any

from mindgap.core.errors import InputError
from mindgap.core.json_numbers import unworded, worded


def plain(value: Any, where: str = "value") -> Any:
    """``value`` as dicts, lists, strings, numbers and None; ``where`` names it in the error.

    >>> plain({"width": (1, 2), "rate": float("inf")})
    {'width': [1, 2], 'rate': 'Infinity'}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, where)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return worded(float(value))
    return _container(value, where)


def _container(value: Any, where: str) -> Any:
    if isinstance(value, Mapping):
        return {_key(key, where): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{k}]") for k, item in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"kind": f"{type(value).__module__}.{type(value).__qualname__}", **plain(fields, where)}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if callable(getattr(value, "tolist", None)):  # arrays and scalars of numpy and torch, without importing either
        return plain(_listed(value, where), where)
    raise InputError(
        f"{where} must be plain data (numbers, text, lists, dicts), got {type(value).__name__}. "
        "Pass its name or its numbers instead."
    )


def _key(key: Any, where: str) -> str:
    if isinstance(key, str | int | float):
        return str(key)
    raise InputError(f"The keys of {where} must be text or numbers, got {type(key).__name__}. Use text as keys.")


def _listed(value: Any, where: str) -> Any:
    found = value.tolist()
    if type(found) is type(value):
        raise InputError(f"{where} must be plain data, got {type(value).__name__}. Pass its parts as real numbers.")
    return found


def canonical(value: Any, where: str = "value") -> str:
    """Strict JSON with sorted keys and exact floats.

    >>> canonical({"b": 0.1, "a": (1, None)})
    '{"a":[1,null],"b":0.1}'
    """
    return json.dumps(plain(value, where), allow_nan=False, sort_keys=True, separators=(",", ":"))


def ordered(value: Any, where: str = "value") -> str:
    """Strict JSON that keeps the order of keys, for what people read."""
    return json.dumps(plain(value, where), allow_nan=False)


def restored(text: str) -> Any:
    """What :func:`canonical` or :func:`ordered` wrote, with the words turned back into numbers.

    >>> restored(canonical([float("-inf"), 1]))
    [-inf, 1]
    """
    return unworded(json.loads(text))
