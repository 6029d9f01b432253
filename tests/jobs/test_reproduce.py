"""reproduce: what is kept, tiny, other or missing, what is run, and what it says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import mindgap
from mindgap.core import DataUnavailableError, InputError, UnknownNameError, catalog
from mindgap.jobs.reproduce import reproduce
from mindgap.report import study_page
from mindgap.report.pages.reproduce import Reproduction, Row
from mindgap.runs import SerialExecutor, load_results, save_results, sweep
from mindgap.studies import LinearFailure, WorkedExamples
from mindgap.studies.documents import DOCUMENTS

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def kept(folder: Path, study: Any, **settings: Any) -> Path:
    """Run a study and keep its results."""
    settings = {"store": ":memory:", "executor": SerialExecutor(), "progress": False, **settings}
    return save_results(sweep(study, **settings), folder / f"{study.name}.json")


def run(folder: Path, *studies: str, **settings: Any) -> Reproduction:
    where = {"results": folder, "store": folder / "runs.sqlite", "executor": SerialExecutor()}
    return reproduce(studies or None, **{**where, **settings})


def row(found: Reproduction, study: str) -> Row:
    return next(one for one in found.rows if one.study == study)


class TestList:
    def test_every_item_and_every_study_is_listed(self, tmp_path: Path) -> None:
        found = reproduce(results=tmp_path)
        items = {(one.document, one.item) for one in found.rows}
        assert {(one.name, item) for one in DOCUMENTS for item in one.items} <= items
        assert {one.study for one in found.rows} - {""} == set(catalog("study"))
        assert {one.state for one in found.rows} == {"never run", "no study"}
        assert all(
            one.document == "own"
            for one in found.rows
            if not catalog("study").get(one.study, WorkedExamples).reproduces
        )

    @pytest.mark.parametrize(
        ("study", "state"),
        [
            (LinearFailure().tiny(), "tiny only"),
            (LinearFailure(seeds=2), "other settings"),
            (WorkedExamples(), "kept"),
        ],
    )
    def test_states(self, tmp_path: Path, study: Any, state: str) -> None:
        kept(tmp_path, study)
        found = row(reproduce(results=tmp_path), study.name)
        assert found.state == state
        assert found.verdict == ("" if state == "tiny only" else "Reproduced")
        results = load_results(tmp_path / f"{study.name}.json")
        assert found.cpu_seconds == results["cost"]["cpu_seconds"]
        assert found.date == results["date"][:10]

    def test_an_incomplete_result_is_not_judged(self, tmp_path: Path) -> None:
        path = kept(tmp_path, WorkedExamples())
        data = json.loads(path.read_text())
        data["trials"][0] = {"parameters": {}, "seed": 0, "status": "missing"}
        path.write_text(json.dumps(data))
        found = row(reproduce(results=tmp_path), "worked-examples")
        assert (found.state, found.verdict, found.kind) == ("incomplete", "", "")

    def test_the_verdict_is_that_of_the_study_page(self, tmp_path: Path) -> None:
        names = ("linear-failure", "darc-by-epoch", "good-data-set")
        found = reproduce(names, results=RESULTS, run=False)
        for one in found.rows:
            page = study_page(load_results(one.path), tmp_path / "page.html").read_text()
            assert f'<p class="badge">{one.verdict}</p>' in page
        assert len({one.verdict for one in found.rows}) == 3

    def test_a_damaged_file_is_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "worked-examples.json").write_text("{}")
        with pytest.raises(InputError, match="must hold results of a sweep"):
            reproduce(results=tmp_path)

    def test_the_default_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        other = tmp_path / "docs" / "results"
        other.mkdir(parents=True)
        (other / "of-another-project.json").write_text("{}")
        assert reproduce(document="darc", run=False).folder == "mindgap-results"
        kept(other, WorkedExamples())
        found = reproduce(document="darc", run=False)
        assert Path(found.folder) == Path("docs/results")
        assert row(found, "worked-examples").state == "kept"

    @pytest.mark.parametrize(
        ("settings", "error", "words"),
        [
            ({"studies": ["vbsw-tabel-1"]}, UnknownNameError, "Did you mean 'vbsw-table-1'"),
            ({"document": "nowhere"}, UnknownNameError, "document must be one of"),
            ({"results": __file__}, InputError, "results must be a folder, got the file"),
            ({"results": f"{__file__}/x", "missing": True}, InputError, "got the file"),
            ({"results": "x" * 300}, InputError, "folder that can be made"),
        ],
    )
    def test_bad_input(self, settings: dict[str, Any], error: type, words: str) -> None:
        with pytest.raises(error, match=words):
            reproduce(**settings)


class TestRun:
    def test_runs_what_is_missing_and_nothing_else(self, tmp_path: Path) -> None:
        kept(tmp_path, WorkedExamples())
        before = (tmp_path / "worked-examples.json").read_bytes()
        found = run(tmp_path, "worked-examples", "linear-failure")
        assert found.ran == ("linear-failure",)
        assert {one.state for one in found.rows} == {"kept"}
        assert (tmp_path / "worked-examples.json").read_bytes() == before
        again = run(tmp_path, "worked-examples", "linear-failure", again=True)
        assert again.ran == ("worked-examples", "linear-failure")
        assert run(tmp_path, "worked-examples", missing=True).rows == ()

    def test_nothing_runs_unless_it_is_asked_for(self, tmp_path: Path) -> None:
        for settings in ({}, {"document": "darc", "run": False}, {"missing": True, "run": False}):
            assert run(tmp_path, **settings).ran == ()
        assert not list(tmp_path.glob("*.json"))

    def test_resumes_from_the_store(self, tmp_path: Path) -> None:
        store = tmp_path / "runs.sqlite"
        sweep(LinearFailure(), store=store, executor=SerialExecutor(), limit=30, progress=False)
        ran = list[Any]()
        own = LinearFailure.run
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                LinearFailure, "run", lambda self, trial: ran.append(trial) or own(self, trial)
            )
            run(tmp_path, "linear-failure", store=store)
        assert len(ran) == 10
        assert len(load_results(tmp_path / "linear-failure.json")["trials"]) == 40

    def test_tiny_results_stay_missing(self, tmp_path: Path) -> None:
        found = run(tmp_path, "linear-failure", tiny=True)
        assert found.rows[0].state == "tiny only"
        assert run(tmp_path, "linear-failure", missing=True).ran == ("linear-failure",)

    def test_a_study_that_cannot_run_does_not_stop_the_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(self: object) -> None:
            raise DataUnavailableError("MNIST must be here, got nothing. Download it.")

        monkeypatch.setattr(LinearFailure, "prepare", refuse)
        found = run(tmp_path, "linear-failure", "worked-examples")
        assert found.ran == ("worked-examples",)
        assert "MNIST must be here" in found.failed["linear-failure"]
        assert "Not finished: linear-failure. MNIST must be here" in str(found)

    def test_failed_trials_are_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(self: object, trial: object) -> None:
            raise ValueError("no luck")

        monkeypatch.setattr(WorkedExamples, "run", fail)
        found = run(tmp_path, "worked-examples")
        assert found.failed == {"worked-examples": "3 of 3 trials failed: ValueError: no luck"}
        assert found.rows[0].state == "never run"

    def test_the_outlook_adds_kept_costs(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for study, seconds in ((WorkedExamples(), 100.0), (LinearFailure(), 500.0)):
            path = kept(tmp_path, study)
            data = json.loads(path.read_text())
            path.write_text(
                json.dumps({**data, "cost": {"wall_seconds": 1.0, "cpu_seconds": seconds}})
            )
        names = ("linear-failure", "worked-examples")
        run(tmp_path, *names, again=True, progress=True, workers=None)
        told = [line for line in capsys.readouterr().err.splitlines() if " of 2: " in line]
        assert "1 of 2: worked-examples; it took 1.7 min of CPU time; about" in told[0]
        assert "2 of 2: linear-failure; it took 8.3 min of CPU time; about" in told[1]


class TestShow:
    def found(self) -> Reproduction:
        rows = [
            Row(document="vbsw", item="Table 1", about="moons", study="one", state="kept", kind="not",
                verdict="Not reproduced", cpu_seconds=90.0, date="2026-01-02", path="/data/one.json"),
            Row(document="vbsw", item="Table 2", about="digits", study="two", state="never run"),
            Row(document="own", item="E5", about="ours", study="three", state="never run"),
        ]  # fmt: skip
        return Reproduction(folder="/data", rows=tuple(rows))

    def test_text(self) -> None:
        text = str(self.found())
        assert text.startswith(
            "0 OF 1 REPRODUCED. 1 of 2 tables, figures and claims have a result."
        )
        assert "holds results of 1 of 3 studies" in text
        assert (
            "Table 1                 one    kept       1.5 min   2026-01-02  Not reproduced" in text
        )
        assert text.index("Novello et al. 2020") < text.index("Experiments of our own")

    def test_json_holds_every_row(self, tmp_path: Path) -> None:
        data = json.loads(self.found().save(tmp_path / "x.json").read_text())
        assert [Row(**one) for one in data["rows"]] == list(self.found().rows)

    def test_the_page_links_to_results_and_begins_with_the_verdict(self, tmp_path: Path) -> None:
        own = dataclasses.replace(self.found().rows[0], path=str(tmp_path / "kept" / "one.json"))
        found = dataclasses.replace(self.found(), rows=(own, *self.found().rows[1:]))
        page = found.save(tmp_path / "pages" / "page.html").read_text()
        assert 'href="../kept/one.json"' in page
        assert 'href="https://inria.hal.science/hal-02885827"' in page
        assert page.index('id="verdict"') < page.index('id="vbsw"') < page.index('id="own"')
        assert '<span class="flag bad">Not reproduced</span>' in page
        assert len(page) < 100_000, "no plotting library without a chart"

    def test_another_ending_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"must end in \.html or \.json"):
            self.found().save(tmp_path / "x.pdf")

    def test_the_public_verb(self) -> None:
        assert mindgap.reproduce is reproduce
