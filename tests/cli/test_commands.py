"""The commands, as a user types them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mindgap._version import __version__
from mindgap.cli import main
from mindgap.cli.commands.explain import plain_math
from mindgap.cli.parser import COMMANDS
from mindgap.core.registry import catalog

USER_FILE = """
import torch, mindgap
from torch import nn

torch.manual_seed(0)
x = torch.randn(80, 5)
y = (x[:, 0] > 0).long()

def make_subject():
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    return mindgap.Subject(model, "cross_entropy", (x[:50], y[:50]), (x[50:], y[50:]), name="mine")

def make_recipe():
    factory = lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    return mindgap.Recipe(model=factory, train=(x[:50], y[:50]), test=(x[50:], y[50:]), epochs=3, name="mine")
"""


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(USER_FILE)
    return path


def out(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_everywhere(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: mindgap {command}".rstrip())
    assert all(len(line) <= 120 for line in text.splitlines())


@pytest.mark.parametrize("words", [["bound", "kl-inverse"], ["run", "batch-size-gap"]])
def test_help_of_a_spec_shows_its_fields(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    text = capsys.readouterr().out
    for field in catalog()[words[1]]().parameters:
        assert f"--{field.replace('_', '-')}" in text


def test_version_and_module_entry() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mindgap", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"mindgap {__version__}"


def test_list_names_every_spec(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(out(capsys, "list", "--json"))
    assert {row["name"] for row in rows} == set(catalog())
    own = [
        row for row in rows if row["source"].startswith("mindgap.")
    ]  # other tests may have registered toys
    assert own
    for row in own:
        assert {"name", "family", "methods", "summary", "source"} <= set(row)
        assert row["methods"]
    text = out(capsys, "list")
    assert all(name in text for name in catalog())
    assert {
        row["family"] for row in json.loads(out(capsys, "list", "--family", "bound", "--json"))
    } == {"bound"}


@pytest.mark.parametrize("name", catalog())
def test_explain(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "explain", name)
    words = catalog()[name].words()
    flat = " ".join(text.split())
    assert "\\" not in text
    assert " ".join(plain_math(words.formula).split()) in flat
    assert words.reading.replace("``", "") in flat
    assert "References" in text
    facts = json.loads(out(capsys, "explain", name, "--json"))
    assert facts["references"]
    assert facts["reading"] == words.reading


def test_bound_on_numbers_gives_the_slides_example(capsys: pytest.CaptureFixture[str]) -> None:
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
    text = out(capsys, "bound", "validation-set-guarantee", *words)
    assert "validation-set-guarantee = 0.06939646097 " in text
    assert "valid, non-vacuous" in text
    data = json.loads(out(capsys, "bound", "validation-set-guarantee", *words, "--json"))
    assert data["value"] == pytest.approx(0.0693964610, abs=5e-11)
    assert data["vacuous"] is False


def test_bound_on_a_subject(user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(
        out(capsys, "bound", "binomial-tail", "--subject", f"{user_file}:make_subject", "--json")
    )
    assert data["provenance"]["test_samples"] == 30
    assert data["value"] > data["terms"]["empirical"]


def test_examine_a_users_model(
    user_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    text = out(capsys, "examine", f"{user_file}:make_subject", "--html", str(page), "-q")
    assert "mine" in text
    assert all(
        name in text.lower().replace(" ", "-") for name in ("gap", "margin", "binomial-tail")
    )
    assert page.read_text().startswith("<!doctype html>") or page.read_text().startswith(
        "<!DOCTYPE html>"
    )
    data = json.loads(out(capsys, "examine", f"{user_file}:make_subject", "--json"))
    assert data["verdict"]


def test_saved_report_becomes_a_page(
    user_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, page = tmp_path / "report.json", tmp_path / "page.html"
    out(capsys, "examine", f"{user_file}:make_subject", "--report", str(saved), "-q")
    out(capsys, "report", str(saved), "-o", str(page))
    assert "mine" in page.read_text()


def test_train_with_remedies_saves_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = (
        "train",
        "-q",
        "--remedy",
        "dropout:rate=0.2",
        "--remedy",
        "weight-decay:decay=0.01",
        "--json",
    )
    whole = json.loads(out(capsys, *common, "--epochs", "3", "--save", str(tmp_path / "whole.pt")))
    for epochs in ("1", "3"):
        words = (
            "--epochs",
            epochs,
            "--checkpoint",
            str(tmp_path / "run.pt"),
            "--save",
            str(tmp_path / "part.pt"),
        )
        parts = json.loads(out(capsys, *common, *words))
    first, second = (
        torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("whole", "part")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert whole["verdict"] == parts["verdict"]


def test_train_a_users_recipe(user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "train", "--recipe", f"{user_file}:make_recipe", "-q")
    assert "mine" in text


def test_divergence_is_a_failure_not_a_crash(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("train", "-q", "--epochs", "2", "--optimizer", "sgd", "--learning-rate", "1e25")
    assert main(list(words)) == 1
    assert "Training stopped: diverged" in capsys.readouterr().err


def test_run_keeps_results_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, results = tmp_path / "runs.sqlite", tmp_path / "results.json"
    words = ("run", "batch-size-gap", "--tiny", "-q", "--store", str(store), "--workers", "1")
    assert main([*words, "--limit", "2"]) == 1
    assert "2 of 4 trials are done and kept" in capsys.readouterr().err
    text = out(capsys, *words, "--results", str(results))
    assert "equal steps" in text
    data = json.loads(results.read_text())
    assert data["study"] == "batch-size-gap"
    for name in ("page.html", "page.md"):
        out(capsys, "report", str(results), "-o", str(tmp_path / name))
        assert "Batch size against generalization gap" in (tmp_path / name).read_text()
    table = json.loads(out(capsys, *words, "--json"))
    assert len(table["rows"]) == 4


def test_weights_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 3)), random.integers(0, 3, 60)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    words = ("weights", str(tmp_path / "data.npz"), "--k", "5", "--max-weight", "8", "-q")
    text = out(capsys, *words, "-o", str(tmp_path / "weights.npy"))
    near = np.argsort(((x[:, None] - x) ** 2).sum(2), axis=1)[:, :5]
    variance = np.eye(3)[y][near].var(axis=1, ddof=1).sum(1)
    expected = 1 + 7 * variance / variance.max()
    assert np.allclose(np.load(tmp_path / "weights.npy"), expected, atol=1e-10)
    assert "60 samples" in text
    facts = json.loads(out(capsys, *words, "--json"))
    assert facts["heaviest"][0]["weight"] == pytest.approx(8)
    assert facts["mean"] == pytest.approx(expected.mean())


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "doctor")
    assert "all is well" in text
    data = json.loads(out(capsys, "doctor", "--json"))
    assert data["problems"] == []
    assert data["extras"]["report"] is True
    assert data["specs"]["measure"] >= 6


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m mindgap explain margin | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.match(r"margin ", done.stdout)
    assert done.stderr == ""


def test_remedies_are_read_with_numbers_and_flags() -> None:
    from mindgap.cli.commands.train import parse_remedy
    from mindgap.remedies import WeightDecay

    assert parse_remedy("weight-decay") == WeightDecay()
    assert parse_remedy("weight-decay:decay=0.3,decoupled=false") == WeightDecay(
        decay=0.3, decoupled=False
    )
    assert parse_remedy("weight_decay: decay = 0.3, decoupled = True") == WeightDecay(decay=0.3)


def test_measures_take_settings_as_remedies_do(
    user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [
        "--measure",
        "margin:quantile=0.5",
        "--measure",
        "pacgen:curvature=gauss-newton,draws=1",
    ]
    report = json.loads(out(capsys, "examine", f"{user_file}:make_subject", "--json", *wanted))
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
