"""`mindgap list`: everything that has a name, by family and topic, with its paper."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mindgap.core import catalog, functions
from mindgap.data import available
from mindgap.jobs.explain import KINDS

Out = Callable[..., str]


def test_names_every_spec_data_set_and_function(out: Out) -> None:
    rows = json.loads(out("list", "--json"))
    assert {row["name"] for row in rows} == {*catalog(), *available(), *functions()}
    assert {row["family"] for row in rows} == set(KINDS)
    # Other tests may have registered toys.
    own = [row for row in rows if row["source"].startswith("mindgap.")]
    for row in own:
        assert {"name", "family", "topic", "methods", "summary", "source"} <= set(row)
        assert row["methods"] or row["family"] in ("dataset", "diagnosis")
    text = out("list")
    assert all(f" {row['name']} " in text for row in rows)


def test_prints_the_paper_and_not_the_method(out: Out) -> None:
    text = out("list", "--family", "measure")
    line = next(line for line in text.splitlines() if " margin " in line)
    assert "Bartlett et al. 2017" in line
    assert "K" not in line.split()
    assert text.startswith("Measures\n  basic\n    ")


def test_is_sorted_by_topic(out: Out) -> None:
    rows = json.loads(out("list", "--family", "study", "--json"))
    topics = [row["topic"] for row in rows if row["source"].startswith("mindgap.")]
    assert topics == sorted(topics)
    assert {"vbsw", "tbs", "pacgen"} <= set(topics)


@pytest.mark.parametrize("family", KINDS)
def test_bare_names_of_one_family(family: str, out: Out) -> None:
    rows = json.loads(out("list", "--family", family, "--json"))
    assert {row["family"] for row in rows} == {family}
    assert out("list", "--family", family, "--names").split() == [row["name"] for row in rows]
