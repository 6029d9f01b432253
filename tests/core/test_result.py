"""Results survive JSON, also with numbers that JSON lacks, and cannot contradict themselves."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, strategies as st

from mindgap.core import Line, Series
from mindgap.core.errors import InputError
from mindgap.core.result import Interval, Result

numbers = st.floats(allow_nan=False)


@given(numbers, numbers, st.dictionaries(st.text(), numbers), st.none() | st.booleans())
def test_json_both_ways(
    value: float, low: float, terms: dict[str, float], valid: bool | None
) -> None:
    result = Result(
        name="x",
        family="measure",
        value=value,
        interval=Interval(low=low, high=math.inf),
        terms=terms,
        valid=valid,
        details={"rows": [1, -math.inf, {"deep": None}]},
    )
    text = result.to_json()
    json.loads(text, parse_constant=pytest.fail)
    assert Result.from_json(text) == result


def test_nan_survives() -> None:
    result = Result(name="x", family="measure", value=1.0, terms={"a": math.nan})
    assert math.isnan(Result.from_json(result.to_json()).terms["a"])


def test_charts_survive() -> None:
    charts = (Line(title="t", series=[Series(name="a", x=[1, 2], y=[3.0, math.inf])]),)
    result = Result(name="x", family="measure", value=1.0, charts=charts)
    assert Result.from_json(result.to_json()) == result


def test_undefined_needs_a_reason_and_no_value() -> None:
    with pytest.raises(InputError, match="reason"):
        Result(name="x", family="measure", value=None, status="undefined")
    with pytest.raises(InputError, match="reason"):
        Result(name="x", family="measure", value=1.0, status="undefined", reason="because")
    with pytest.raises(InputError, match="must have a value"):
        Result(name="x", family="measure", value=None)
    undefined = Result(name="x", family="measure", value=None, status="undefined", reason="because")
    assert math.isnan(float(undefined))
    assert "because" in str(undefined)


def test_a_newer_schema_is_refused() -> None:
    data = Result(name="x", family="measure", value=1.0).to_dict()
    with pytest.raises(InputError, match="Upgrade"):
        Result.from_dict({**data, "schema": 99})
