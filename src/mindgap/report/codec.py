"""Frozen dataclasses to strict JSON data and back, guided by their annotations."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from mindgap.core.json_numbers import worded
from mindgap.core.result import Result

T = TypeVar("T")


def encode(value: Any) -> Any:
    """Plain data for JSON; numbers that JSON lacks become words."""
    if isinstance(value, Result):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, float):
        return worded(value)
    return value if isinstance(value, str | int) or value is None else str(value)


def decode(cls: type[T], data: Any) -> T:
    """Read back what :func:`encode` wrote; fields that this version does not know are left out."""
    hints = typing.get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: _value(hints[name], item) for name, item in data.items() if name in known})


def _value(hint: Any, item: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return None if item is None else _value(arguments[0], item)
    if origin is tuple:
        return tuple(_value(arguments[0], part) for part in item)
    if origin is Mapping:
        return {key: _value(arguments[1], part) for key, part in item.items()}
    if hint is Result:
        return Result.from_dict(item)
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast("type", hint), item)
    return float(item) if hint is float else item
