"""Result: a number with everything needed to believe it."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, Literal, Self, cast

from mindgap.core.chart import Chart
from mindgap.core.errors import InputError
from mindgap.core.plain import fields_of, plain, unworded

Status = Literal["exact", "estimate", "heuristic", "undefined"]
SCHEMA = 1
LISTED = 6  # names of layers in one sentence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A confidence interval and its level."""

    low: float
    high: float
    level: float = 0.95

    def __str__(self) -> str:
        return f"[{self.low:.4g}, {self.high:.4g}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a spec gave, with everything needed to believe it.

    Args:
        name: The spec's name.
        family: ``"measure"`` or ``"bound"``.
        value: The number; None if it is undefined.
        status: ``"exact"``, ``"estimate"``, ``"heuristic"`` or ``"undefined"``.
        reason: Why the value is undefined.
        interval: A confidence interval of the value.
        standard_error: The standard error of a stochastic value.
        terms: Numbers that the value is made of, or that are read with it.
        details: Further plain data, such as one number per layer.
        charts: Figures that belong to the value.
        valid: Whether the assumptions of a bound hold; None for a measure.
        vacuous: Whether a bound says no more than the best constant prediction.
        cost: Wall-clock and CPU seconds.
        provenance: Settings, versions, sizes of the data.

    >>> result = Result(name="gap", family="measure", value=0.25)
    >>> float(result), Result.from_json(result.to_json()) == result
    (0.25, True)
    """

    name: str
    family: str
    value: float | None
    status: Status = "exact"
    reason: str = ""
    interval: Interval | None = None
    standard_error: float | None = None
    terms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    charts: tuple[Chart, ...] = ()
    valid: bool | None = None
    vacuous: bool | None = None
    cost: Mapping[str, float] = dataclasses.field(default_factory=dict)
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status == "undefined" and (self.value is not None or not self.reason):
            raise InputError(
                f"{self.name}: an undefined result must have a reason and no value, got "
                f"{self.value!r}."
            )
        if self.status != "undefined" and self.value is None:
            raise InputError(
                f"The result of {self.name} must have a value or be undefined, got None."
            )

    def __float__(self) -> float:
        if self.value is None:
            return math.nan
        return self.value

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name}: undefined ({self.reason})"
        return f"{self.name}: {self.value:.6g}" + (f" {self.interval}" if self.interval else "")

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the value leaves out or approximates, and whether an iteration did not converge.

        >>> details = {"skipped": {"words": "is an Embedding"}, "converged": False}
        >>> Result(name="norm", family="measure", value=1.0, details=details).caveats
        ('leaves out words', 'has not converged')
        """
        found = [
            f"{verb} {_listed(list(self.details[key]))}"
            for key, verb in (("skipped", "leaves out"), ("approximated", "approximates"))
            if self.details.get(key)
        ]
        unfinished = self.details.get("converged") is False
        return (*found, "has not converged") if unfinished else tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold; numbers that JSON lacks become words."""
        return cast("dict[str, Any]", plain({"schema": SCHEMA, **fields_of(self)}, fallback=repr))

    def to_json(self) -> str:
        """Return one line of strict JSON."""
        return json.dumps(self.to_dict(), allow_nan=False, sort_keys=True)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read back what :meth:`to_dict` wrote."""
        fields = {name: unworded(value) for name, value in data.items() if name != "schema"}
        if data.get("schema", SCHEMA) != SCHEMA:
            raise InputError(
                f"A result must have schema {SCHEMA}, got {data.get('schema')!r}. Upgrade mindgap."
            )
        if fields.get("interval") is not None:
            fields["interval"] = Interval(**fields["interval"])
        fields["charts"] = tuple(Chart.from_dict(chart) for chart in fields.get("charts", ()))
        return cls(**fields)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read back what :meth:`to_json` wrote."""
        return cls.from_dict(json.loads(text))


def _listed(names: list[str]) -> str:
    names = [name or "the model itself" for name in names]
    rest = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {rest} more" if rest > 0 else "")
