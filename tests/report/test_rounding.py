"""Upper bounds round up and lower bounds down, wherever they are written."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mindgap.core.certificate import Certificate
from mindgap.core.chart import numbers
from mindgap.core.result import Interval, Result
from mindgap.report import wording
from mindgap.report.pages.certificate import certificate_html
from mindgap.report.parts import Card, Facts
from mindgap.report.text import bound_row
from mindgap.report.verdict.verdict import guarantee

VALUE = 0.131012
FACTS = Facts(
    name="net",
    task="classification",
    loss="cross_entropy",
    train_samples=100,
    test_samples=100,
    parameters=1,
    train_loss=0.1,
    train_error=0.1,
    baseline=0.9,
)
CERTIFICATE = Certificate(
    bound=VALUE,
    bounds=dict.fromkeys(("kl", "quadratic", "mcallester", "catoni"), VALUE),
    loss_bounds={"kl": VALUE},
    error_limit=VALUE,
    prior_bound=VALUE,
    kl=3.0,
    samples=100,
    error=0.1,
    prior_error=0.1,
    loss=0.1,
    loss_limit=VALUE,
    draws=1000,
    baseline=0.5,
    prior="learned",
)


def read(text: str) -> float:
    plain = text.replace(numbers.SPACE, "").replace(",", "").replace("−", "-")
    return float(plain.rstrip("%")) / (100 if "%" in plain else 1)


@given(st.floats(1e-12, 1e9), st.integers(2, 10))
def test_a_bound_is_never_written_below_its_value(value: float, digits: int) -> None:
    written = read(numbers.rounded_up(value, digits))
    # A number that is exact but for floating point stays as it is.
    assert value * (1 - 1e-8) <= written <= value + 10 ** (1 + math.log10(value) - digits) + 1
    assert read(numbers.rounded_down(value, digits)) <= value * (1 + 1e-8)


@given(st.floats(0, 9.99), st.sampled_from([None, 0, 1, 2]))
def test_a_share_is_never_written_below_its_value(share: float, places: int | None) -> None:
    assert read(numbers.at_most(share, places)) >= share - 1e-11
    assert read(numbers.at_least(share, places)) <= share + 1e-11


def test_zero_has_no_sign() -> None:
    assert (
        f"{numbers.round_down(0.0, 2):.2f} {numbers.round_up(-0.001, 2) + 0.0:.2f}" == "0.00 0.00"
    )


@pytest.mark.parametrize("value", [0.0, 1.0, math.inf, -math.inf, math.nan])
def test_special_numbers_are_written_as_always(value: float) -> None:
    assert numbers.rounded_up(value) == numbers.number(value) == numbers.rounded_down(value)
    assert numbers.at_most(value).rstrip("%").strip()


def card(value: float, **changes: Any) -> Card:
    result = Result(
        name="tail",
        family="bound",
        value=value,
        terms={"empirical": 0.1, "complexity": value - 0.1, "ceiling": 1.0, **changes},
        valid=True,
        vacuous=False,
        provenance={"parameters": {"delta": 0.05}},
    )
    return Card(result=result, title="Tail", summary="")


def test_the_verdict_rounds_a_guarantee_up() -> None:
    told = guarantee(FACTS, [card(0.1319)]).replace(numbers.SPACE, " ")
    assert "is below 13.2 %" in told
    assert "95 % confidence" in told


def test_the_verdict_says_whom_it_guarantees() -> None:
    told = guarantee(FACTS, [card(0.1319, shared=0.05)])
    assert "unseen data that are not in the training data" in told


def test_the_table_in_the_terminal_rounds_up() -> None:
    assert bound_row(card(VALUE))[1] == "0.1311"


def test_the_certificate_rounds_up_in_words() -> None:
    told = str(CERTIFICATE)
    assert "at most 13.11 % of the answers" in told
    assert "13.10 %" not in told
    assert "13.1 %" not in told
    assert told.count("13.11 %") == 7


def test_the_certificate_rounds_up_on_its_page() -> None:
    text = re.sub(r"<script.*?</script>", "", certificate_html(CERTIFICATE), flags=re.S)
    shown = set(re.findall(r"13\.1\d*", text.replace(numbers.SPACE, " ")))
    assert shown == {"13.11"}


def test_intervals_round_outwards() -> None:
    interval = Interval(low=0.10199, high=0.2301, level=0.95)
    assert wording.ends(FACTS, interval) == "10.1 and 23.1"
    loss = dataclasses.replace(FACTS, task="regression")
    assert wording.ends(loss, Interval(low=0.123456, high=0.123412)) == "0.1234 and 0.1235"
    assert wording.span(interval) == "0.1019 … 0.2301"


@pytest.mark.parametrize(
    ("value", "vacuous"), [(0.3, False), (0.4999, False), (0.49999, True), (0.5, True)]
)
def test_vacuous_to_display_precision(value: float, vacuous: bool) -> None:
    assert dataclasses.replace(CERTIFICATE, bound=value).vacuous is vacuous
