"""Certificates say whether they hold and whether they say something, and survive JSON."""

from __future__ import annotations

from typing import Any

import pytest

from mindgap.core.certificate import Certificate
from mindgap.core.errors import InputError

NUMBERS: dict[str, Any] = {
    "bound": 0.3,
    "bounds": {"kl": 0.3},
    "loss_bounds": {"kl": 0.2},
    "kl": 3.0,
    "samples": 100,
    "error": 0.1,
    "error_limit": 0.12,
    "loss": 0.1,
    "loss_limit": 0.1,
    "draws": 1000,
    "baseline": 0.9,
}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "valid, non-vacuous"),
        ({"broken": "answers depend on others"}, "not valid (answers depend on others)"),
        (
            {"baseline": 0.11},
            "valid, vacuous (the stochastic classifier errs on up to 12 % of the bound data, "
            "the majority class on 11.0 %)",
        ),
        (
            {"mode": "held-out", "error": 0.9, "error_limit": 0.9, "bound": 0.95},
            "valid, vacuous (the network errs on up to 90 % of the bound data, the majority class on "
            "90.0 %)",
        ),
        (
            {"bound": 1.0, "kl": 1234.0},
            "valid, vacuous (the KL of 1,234 nats is too much for 100 samples)",
        ),
    ],
)
def test_the_verdict_says_why(changes: dict[str, Any], verdict: str) -> None:
    assert Certificate(**{**NUMBERS, **changes}).verdict == verdict


def test_json_comes_back() -> None:
    found = Certificate(**NUMBERS, notes=("one",), name="digits")
    assert Certificate.from_json(found.to_json()) == found


def test_a_certificate_saved_under_former_names_is_read() -> None:
    found = Certificate(**NUMBERS)
    saved = found.to_dict()
    saved["guess"] = saved.pop("baseline")
    assert Certificate.from_dict(saved) == found


def test_a_certificate_saved_before_the_mixture_says_which_theorem_it_is_of() -> None:
    saved = Certificate(**NUMBERS).to_dict()
    for name in ("theorem", "paid", "inverse_temperature"):
        del saved[name]
    found = Certificate.from_dict(saved)
    assert (found.theorem, found.paid) == ("kl", {})
    assert "(kl inverse, δ = 0.05" in str(found)


def test_another_schema_is_refused() -> None:
    with pytest.raises(InputError, match="schema 1, got 7"):
        Certificate.from_dict({**Certificate(**NUMBERS).to_dict(), "schema": 7})
