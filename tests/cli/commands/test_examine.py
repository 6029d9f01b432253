"""`mindgap examine` and `mindgap report`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mindgap.cli import main
from mindgap.measures import TrainingLoss

Out = Callable[..., str]


def test_examine_a_users_model(user_file: Path, tmp_path: Path, out: Out) -> None:
    page = tmp_path / "report.html"
    text = out("examine", f"{user_file}:make_subject", "--html", str(page), "-q")
    assert "mine" in text
    assert all(
        name in text.lower().replace(" ", "-") for name in ("gap", "margin", "binomial-tail")
    )
    assert page.read_text().startswith("<!doctype html>") or page.read_text().startswith(
        "<!DOCTYPE html>"
    )
    data = json.loads(out("examine", f"{user_file}:make_subject", "--json"))
    assert data["verdict"]


def test_saved_report_becomes_a_page(user_file: Path, tmp_path: Path, out: Out) -> None:
    saved, page = tmp_path / "report.json", tmp_path / "page.html"
    out("examine", f"{user_file}:make_subject", "--report", str(saved), "-q")
    out("report", str(saved), "-o", str(page))
    assert "mine" in page.read_text()


def test_measures_take_settings_as_remedies_do(user_file: Path, out: Out) -> None:
    wanted = [
        "--measure",
        "margin:quantile=0.5",
        "--measure",
        "pacgen:curvature=gauss-newton,draws=1",
    ]
    report = json.loads(out("examine", f"{user_file}:make_subject", "--json", *wanted))
    found = {
        card["result"]["name"]: card["result"]["provenance"]["parameters"]
        for card in report["cards"]
    }
    assert found["margin"]["quantile"] == 0.5
    assert found["pacgen"]["curvature"] == "gauss-newton"
    assert found["pacgen"]["draws"] == 1


def test_a_measure_with_a_broken_setting_is_one_sentence(
    user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["examine", f"{user_file}:make_subject", "--measure", "pacgen:curvature"]) == 2
    text = capsys.readouterr().err
    assert "A measure must look like name:field=value, got 'pacgen:curvature'" in text
    assert "Traceback" not in text


NAN = """

def make_broken():
    subject = make_subject()
    with torch.no_grad():
        subject.model[2].weight[0, 0] = float("nan")
    return subject
"""


def test_a_model_without_numbers_gets_a_report(user_file: Path, out: Out) -> None:
    user_file.write_text(user_file.read_text() + NAN)
    text = out("examine", f"{user_file}:make_broken", "-q")
    assert "NOT FINITE. " in text
    assert "2.weight" in text


def test_suspects_are_written_as_csv(
    user_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "suspects.csv"
    words = ["examine", f"{user_file}:make_subject", "-q", "--diagnosis", "not-finite"]
    assert main([*words, "--suspects", str(path)]) == 0
    assert path.read_text() == "finding,split,index\n"
    assert f"0 samples to look at are at {path}" in capsys.readouterr().err
    assert main([*words, "--suspects", str(tmp_path / "no" / "such.csv")]) == 2


def test_an_interrupt_keeps_what_is_done_and_has_its_exit_code(
    user_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainingLoss, "compute", interrupted)
    wanted = ["--measure", "gap", "--measure", "training-loss", "-q"]
    assert main(["examine", f"{user_file}:make_subject", *wanted]) == 130
    out, err = capsys.readouterr()
    assert "on unseen data" in out
    assert err == "interrupted; what was done is kept.\n"


def test_diagnoses_can_be_chosen(user_file: Path, out: Out) -> None:
    words = ("--diagnosis", "not-finite", "--measure", "gap")
    report = json.loads(out("examine", f"{user_file}:make_subject", "--json", *words))
    assert [row["name"] for row in report["checked"]] == ["not-finite"]


def test_several_models_side_by_side(user_file: Path, tmp_path: Path, out: Out) -> None:
    page, other = tmp_path / "page.html", tmp_path / "other.py"
    other.write_text(user_file.read_text().replace("manual_seed(0)", "manual_seed(1)"))
    targets = f"{user_file}:make_subject", f"{other}:make_subject"
    words = ("--measure", "margin", "--diagnosis", "not-finite", "-q")
    text = out("examine", targets[0], "--compare", targets[1], *words, "--report", str(page))
    assert "test error" in text
    assert "margin" in text
    assert page.read_text().startswith("<!doctype html>")
    data = json.loads(out("examine", targets[0], "--compare", *targets, *words, "--json"))
    assert data["kind"] == "comparison"
    assert [report["title"] for report in data["reports"]] == ["mine", "mine (2)", "mine (3)"]
    named = json.loads(out("examine", targets[0], "--compare", targets[1], *words, "--json"))
    assert [report["title"] for report in named["reports"]] == list(targets)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--compare"], "expected at least one argument"),
        (["--compare", "nowhere.py:f"], "existing file, got 'nowhere.py'"),
        (["--compare", "{}:make_recipe"], "must return a mindgap.Subject"),
        (["--compare", "{}:make_subject", "--suspects", "x.csv"], "--suspects must not come with"),
        (["--diagnosis", "not-finit"], "Did you mean 'not-finite'"),
    ],
)
def test_bad_words_are_one_sentence(
    user_file: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    given = [word.format(user_file) for word in words]
    assert main(["examine", f"{user_file}:make_subject", *given, "-q"]) == 2
    text = capsys.readouterr().err
    assert told in text
    assert text.count("\n") == 1
