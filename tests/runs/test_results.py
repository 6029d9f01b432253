"""Results: the JSON goes there and back, and the page is made of it alone."""

from __future__ import annotations

import json
import math

import pytest

from mindgap.core.errors import InputError
from mindgap.core.spec import REGISTRY
from mindgap.runs import SerialExecutor, load_results, results_page, save_results, sweep
from mindgap.runs.results import claims_of, study_of, table_of


def swept(toy, **fields):
    return sweep(
        toy.ToyStudy(**fields), store=":memory:", executor=SerialExecutor(), progress=False
    )


def saved(toy, tmp_path, **fields):
    return load_results(save_results(swept(toy, **fields), tmp_path / "deep" / "toy.json"))


def test_round_trip(toy, tmp_path):
    result = swept(toy)
    results = load_results(save_results(result, tmp_path / "toy.json"))
    assert table_of(results) == result.table
    assert results["study"] == "toy-study"
    assert results["fields"]["count"] == 6
    assert results["expected"] == {"1": 1.0}
    assert [trial["record"] for trial in results["trials"]] == [
        record for _, record in result.records
    ]
    assert results["trials"][0]["record"]["ratio"] == math.inf
    assert [trial["seed"] for trial in results["trials"]] == list(range(6))
    assert results["cost"]["wall_seconds"] == sum(row.wall_seconds for row in result.rows)
    assert results["complete"]
    json.loads((tmp_path / "toy.json").read_text(), parse_constant=pytest.fail)


def test_the_page_says_what_the_file_says(toy, tmp_path):
    page = results_page(saved(toy, tmp_path))
    assert page.startswith(
        "# Squares\n\nSquares of small numbers.\n\nlarger numbers have larger squares.\n"
    )
    assert "| 3 | 9 | — |" in page
    assert "- toy\n" in page
    assert "- 1: 1\n" in page
    assert "Trials: 6 finished of 6" in page
    assert "Incomplete" not in page
    assert "torch" in page


def test_the_page_of_an_incomplete_sweep(toy, tmp_path):
    page = results_page(saved(toy, tmp_path, raises=(2,)))
    assert "**Incomplete**: of 6 trials 1 failed and 0 were not run." in page
    assert "- `ValueError: no square for 2`" in page


def test_an_unknown_study_has_a_page_without_words(toy, tmp_path, monkeypatch):
    results = saved(toy, tmp_path)
    monkeypatch.delitem(REGISTRY["study"], "toy-study")
    monkeypatch.setattr("mindgap.core.registry.load_family", lambda family: None)
    assert results_page(results).startswith("# Squares\n\n| number |")


def test_files_that_are_no_results(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        load_results(tmp_path / "none.json")
    for text, words in (
        ("{", "must be a JSON file"),
        ("[]", "got no 'study'"),
        ('{"study": "x"}', "got no 'fields'"),
    ):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InputError, match=words):
            load_results(tmp_path / "bad.json")


def test_a_newer_schema_of_results(toy, tmp_path):
    path = save_results(swept(toy), tmp_path / "toy.json")
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 9'))
    with pytest.raises(InputError, match="must have schema 1, got 9"):
        load_results(path)


class TestClaims:
    """Claims come from the file if it has any, else from the records."""

    def test_stored_claims_win(self, toy, tmp_path):
        results = saved(toy, tmp_path)
        results["table"]["claims"] = [{"text": "So it is.", "held": "yes"}]
        assert [str(claim) for claim in claims_of(results)] == ["Holds: So it is."]

    def test_an_unknown_study_says_nothing(self, toy, tmp_path):
        results = saved(toy, tmp_path)
        del results["table"]["claims"]
        assert claims_of({**results, "study": "unheard-of"}) == ()
        assert study_of({**results, "study": "unheard-of"}) is None

    def test_records_that_no_study_can_read_say_nothing(self, toy, tmp_path):
        results = saved(toy, tmp_path)
        del results["table"]["claims"]
        for trial in results["trials"]:
            trial["record"] = {}
        assert claims_of(results) == ()

    def test_a_study_is_made_with_the_fields_that_it_still_has(self, toy, tmp_path):
        results = saved(toy, tmp_path, count=4)
        results["fields"] |= {"gone": 1, "raises": "no longer allowed"}
        made = study_of(results)
        assert made.count == 4
        assert made.raises == type(made)().raises
