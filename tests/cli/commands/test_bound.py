"""`mindgap bound`: on numbers, on a model, and its help."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Out = Callable[..., str]


def test_bound_on_numbers_gives_the_slides_example(out: Out) -> None:
    words = (
        "--delta",
        "0.1",
        "--hypotheses",
        "1000000000",
        "--samples",
        "10000",
        "--empirical",
        "0",
    )
    text = out("bound", "validation-set-guarantee", *words)
    assert "validation-set-guarantee = 0.06939646097 " in text
    assert "valid, non-vacuous" in text
    data = json.loads(out("bound", "validation-set-guarantee", *words, "--json"))
    assert data["value"] == pytest.approx(0.0693964610, abs=5e-11)
    assert data["vacuous"] is False


def test_bound_on_a_subject(user_file: Path, out: Out) -> None:
    data = json.loads(
        out("bound", "binomial-tail", "--subject", f"{user_file}:make_subject", "--json")
    )
    assert data["provenance"]["test_samples"] == 30
    assert data["value"] > data["terms"]["empirical"]
