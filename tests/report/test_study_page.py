import pytest

from mindgap.core.errors import InputError
from mindgap.report import study_page
from mindgap.report.html import library
from mindgap.runs.results import load_results

CHART = {
    "kind": "line",
    "title": "Error against width",
    "x_label": "width",
    "y_label": "test error",
    "series": [
        {
            "name": "plain </script>",
            "x": [1, 2],
            "y": [0.3, 0.2],
            "low": [0.2, 0.1],
            "high": [0.4, 0.3],
        }
    ],
}


def results(**changes):
    table = {
        "title": "Widths <b>",
        "columns": ["width", "error", "paper"],
        "rows": [[1, 0.3, 0.31], [2, 0.2, None]],
        "notes": ["Two seeds."],
        "charts": [CHART],
    }
    whole = {
        "schema": 1,
        "study": "unheard-of",
        "fields": {"widths": [1, 2], "noise": 0.2},
        "expected": {"width 1": 0.31},
        "table": table,
        "trials": [{"status": "done"}, {"status": "failed", "error": "ValueError: too wide"}],
        "versions": {"mindgap": ["0.1.0"], "torch": ["2.6"]},
        "code": "abc",
        "cost": {"wall_seconds": 90.0, "cpu_seconds": 180.0},
        "date": "2026-01-02T03:04:05",
    }
    return {**whole, **changes}


def body(path):
    return path.read_text(encoding="utf-8").replace(library(), "")


def test_the_page_holds_table_chart_paper_and_cost(tmp_path):
    text = body(study_page(results(), tmp_path / "study.html"))
    for words in (
        "Widths &lt;b&gt;",
        "Two seeds.",
        "0.31",
        "ValueError: too wide",
        "1 min 30 s",
        "1 of 2 trials",
    ):
        assert words in text
    assert text.count('class="plot"') == 1
    assert "plain </script>" not in text
    assert "Incomplete" in text


def test_a_complete_study_without_charts(tmp_path):
    table = {**results()["table"], "charts": [], "notes": []}
    text = body(
        study_page(
            results(table=table, trials=[{"status": "done"}], expected={}), tmp_path / "study.html"
        )
    )
    assert "Incomplete" not in text
    assert 'class="plot"' not in text
    assert "The paper" not in text


@pytest.mark.parametrize(("columns", "dense"), [(8, False), (9, True)])
def test_wide_tables_are_set_closer(tmp_path, columns, dense):
    table = {
        **results()["table"],
        "columns": [f"c{k}" for k in range(columns)],
        "rows": [["+1 [0, 2]"] * columns],
    }
    text = body(study_page(results(table=table), tmp_path / "study.html"))
    assert ('class="plain dense"' in text) is dense
    assert "+1 [0,\u00a02]" in text


def test_a_page_of_results_read_from_a_file(tmp_path):
    import json

    path = tmp_path / "results.json"
    path.write_text(json.dumps(results()))
    assert "Widths" in body(study_page(load_results(path), tmp_path / "study.html"))


def test_numbers_that_json_lacks_are_gaps_in_the_chart(tmp_path):
    chart = {**CHART, "series": [{"name": "a", "x": [1, 2], "y": ["Infinity", 0.5]}]}
    table = {**results()["table"], "rows": [["one", "Infinity", "NaN"]], "charts": [chart]}
    text = body(study_page(results(table=table), tmp_path / "study.html"))
    assert '"y":[null,0.5]' in text
    assert "∞" in text


def test_an_unwritable_path(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="must be a file that can be written"):
        study_page(results(), tmp_path / "file" / "study.html")


def test_a_tiny_run_is_stamped_and_judges_nothing(tmp_path):
    claims = [{"text": "Wide networks are better.", "held": "yes"}]
    table = {**results()["table"], "claims": claims}
    done = results(table=table, trials=[{"status": "done"}], tiny=True)
    whole = body(study_page({**done, "tiny": False}, tmp_path / "whole.html"))
    assert "Reproduced" in whole
    text = body(study_page(done, tmp_path / "tiny.html"))
    assert "Reproduced" not in text
    assert "Holds: Wide networks" not in text
    assert '<p class="badge">Tiny run</p>' in text
    assert "Widths &lt;b&gt; (tiny run)" in text
    assert "too few trials to judge anything" in text


def test_the_quick_form_knows_what_it_is():
    from mindgap.runs import SerialExecutor, sweep
    from mindgap.runs.results import as_results
    from mindgap.studies import CertificateCoverage

    study = CertificateCoverage().tiny()
    assert study.is_tiny
    assert not CertificateCoverage().is_tiny
    found = sweep(study, store=":memory:", executor=SerialExecutor(), progress=False)
    assert found.table.claims == ()
    assert "(tiny run)" in str(found.table)
    assert as_results(found)["tiny"] is True
