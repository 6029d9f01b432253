"""`mindgap explain`: specs, functions and data sets in words."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mindgap.core import catalog
from mindgap.jobs.explain import plain_math

Out = Callable[..., str]


@pytest.mark.parametrize("name", catalog())
def test_every_spec(name: str, out: Out) -> None:
    text = out("explain", name)
    words = catalog()[name].words()
    flat = " ".join(text.split())
    assert "\\" not in text
    assert " ".join(plain_math(words.formula).split()) in flat
    assert words.reading.replace("``", "") in flat
    assert "References" in text
    facts = json.loads(out("explain", name, "--json"))
    assert facts["references"]
    assert facts["reading"] == words.reading


def test_a_remedy_says_what_it_treats(out: Out) -> None:
    assert "Treats\n  hard samples\n" in out("explain", "variance-weighting")


def test_a_function(out: Out) -> None:
    text = out("explain", "local_variance")
    assert text.startswith("local-variance  (function, Novello et al. 2020)")
    assert "k nearest neighbors" in text
    assert json.loads(out("explain", "local-variance", "--json"))["methods"]


def test_a_data_set(out: Out) -> None:
    text = out("explain", "two-moons")
    assert text.startswith("two-moons  (dataset)")
    assert "seed = 0" in text
    assert "Source  mindgap.data.generators.two_moons" in text
