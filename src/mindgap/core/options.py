"""Fields of a spec: a default, a sentence of help and the range of allowed values, checked in one place."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from mindgap.core.errors import InputError


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,  # noqa: A002  (the word every command line uses)
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[Any, ...] = (),
) -> Any:
    """Declare a spec's field: ``low``/``high`` are allowed ends, ``above``/``below`` are excluded ends."""
    metadata = {"help": help, "low": low, "high": high, "above": above, "below": below, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


def allowed(metadata: Any) -> str:
    """Say in words which values a field takes.

    >>> allowed({"above": 0, "high": 1})
    'a number above 0 and at most 1'
    """
    if metadata.get("choices"):
        return "one of " + ", ".join(map(repr, metadata["choices"]))
    words = {"low": "at least", "above": "above", "high": "at most", "below": "below"}
    ends = [f"{word} {metadata[key]:g}" for key, word in words.items() if metadata.get(key) is not None]
    return "a number " + " and ".join(ends)


def inside(value: Any, metadata: Any) -> bool:
    """Whether ``value`` obeys what :func:`option` declared."""
    if value is None:
        return True
    if metadata.get("choices"):
        return value in metadata["choices"]
    if not isinstance(value, int | float):
        return not any(metadata.get(key) is not None for key in ("low", "high", "above", "below"))
    low, high, above, below = (metadata.get(key) for key in ("low", "high", "above", "below"))
    return (
        not math.isnan(value)
        and (low is None or value >= low)
        and (high is None or value <= high)
        and (above is None or value > above)
        and (below is None or value < below)
    )


def check(instance: Any) -> None:
    """Raise one sentence for the first field of a dataclass that is out of its range."""
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if field.metadata and not inside(value, field.metadata):
            raise InputError(
                f"{field.name} must be {allowed(field.metadata)}, got {value!r}. It is: {field.metadata['help']}."
            )
