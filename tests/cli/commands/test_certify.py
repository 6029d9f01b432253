"""`mindgap certify`: the certificate in the terminal, as JSON and as a page; bad input in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mindgap.cli import main
from mindgap.core.certificate import Certificate
from mindgap.core.chart.numbers import at_most
from mindgap.report.html import library
from mindgap.report.pages.certificate import certificate_html, shares

QUICK = ["--prior-epochs", "2", "--epochs", "1", "--draws", "700", "-q"]
OWN = """
import torch
from torch import nn
from mindgap import Recipe, Subject

def data(seed):
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (200,), generator=source)
    return torch.randn(200, 2, generator=source) + 4 * labels[:, None] - 2, labels

def make_recipe():
    return Recipe(model=lambda: nn.Linear(2, 2), train=data(0), test=data(1), learning_rate=0.1, name="own recipe")

def make_pair():
    model = nn.Linear(2, 2)
    model.weight.data = torch.tensor([[-1.0, -1.0], [1.0, 1.0]])
    model.bias.data.zero_()
    return Subject(model, "cross_entropy", data(0)), data(2)

def overlapping():
    return make_pair()[0], data(0)

def regression():
    inputs, labels = data(0)
    return Recipe(model=lambda: nn.Linear(2, 1), train=(inputs, labels[:, None].float()), loss="mse")

def nothing():
    return 3
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return str(tmp_path / "own.py")


def test_words_page_json_and_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, saved = tmp_path / "page.html", tmp_path / "model.pt"
    assert main(["certify", "digits", *QUICK, "--report", str(page), "--save", str(saved)]) == 0
    words = capsys.readouterr().out
    assert words.startswith("mlp on digits: valid")
    text = page.read_text(encoding="utf-8").replace(library(), "")
    assert "With a confidence of 0.95" in text
    assert "held-out bound" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "shift" in torch.load(saved, weights_only=True)
    assert main(["certify", "digits", *QUICK, "--json"]) == 0
    found = Certificate.from_json(capsys.readouterr().out)
    assert found.verdict in words
    assert at_most(found.bound, 2) in text


def test_parts_of_the_figure_add_up(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [*QUICK, "--scale", "0.01", "--scale", "0.1", "--tried", "10", "--json"]
    assert main(["certify", f"{own}:make_recipe", *options]) == 0
    found = Certificate.from_json(capsys.readouterr().out)
    assert found.name == "own recipe"
    for name, bound in found.bounds.items():
        parts = shares(found, name)
        assert min(parts.values()) >= 0
        assert parts["paid"] > 0
        assert sum(parts.values()) == pytest.approx(bound)


@pytest.mark.parametrize(("mode", "words"), [("held-out", "fixed"), ("progressive", "stream")])
def test_modes_in_words_json_and_page(
    mode: str, words: str, own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    options = ["--mode", mode, "--tried", "10", "-q", "--report", str(page)]
    assert main(["certify", f"{own}:make_recipe", *options]) == 0
    assert "mode for one fixed model" in (out := capsys.readouterr().out) or "stream" in out
    assert "2.3 nats for the priors that were tried" in out
    text = page.read_text(encoding="utf-8").replace(library(), "")
    assert words in text
    assert "draw new weights for every answer" not in text.lower()
    assert main(["certify", f"{own}:make_recipe", *options[:-2], "--json"]) == 0
    found = Certificate.from_json(capsys.readouterr().out)
    assert (found.mode, found.draws) == (mode, 0)
    assert found.recommendation in out
    parts = shares(found, found.theorem)
    assert parts["paid"] > 0
    assert sum(parts.values()) == pytest.approx(found.bound)


def test_a_trained_model_with_held_out_data(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["certify", f"{own}:make_pair", *QUICK[2:], "--posterior", "uniform", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["prior"], found["posterior"], found["samples"]) == ("learned", "uniform", 200)


def test_a_page_of_a_certificate_that_is_not_valid() -> None:
    numbers = {
        "kl": 3.0,
        "samples": 100,
        "error": 0.1,
        "error_limit": 0.12,
        "loss": 0.1,
        "loss_limit": 0.1,
    }
    bounds = dict.fromkeys(("mixture", "kl", "quadratic", "mcallester", "catoni"), 0.4)
    common = {
        "bound": 0.4,
        "bounds": bounds,
        "loss_bounds": bounds,
        "draws": 1000,
        "baseline": 0.9,
        **numbers,
    }
    text = certificate_html(
        Certificate(name="<b>", broken="an answer depends on <i>others</i>", **common)
    )  # type: ignore[arg-type]
    assert "No promise follows" in text
    assert "An answer depends on &lt;i&gt;others" in text
    assert "<b>" not in text.replace(library(), "")
    assert "No promise" not in certificate_html(Certificate(**common))  # type: ignore[arg-type]


def test_a_certificate_that_was_saved_before_the_mixture_still_has_its_page() -> None:
    bounds = {"kl": 0.30, "quadratic": 0.31, "mcallester": 0.4, "catoni": 0.32}
    saved = {
        "schema": 1,
        "verdict": "valid, non-vacuous",
        "bound": 0.30,
        "bounds": bounds,
        "loss_bounds": bounds,
        "kl": 3.0,
        "samples": 100,
        "error": 0.1,
        "error_limit": 0.12,
        "loss": 0.1,
        "loss_limit": 0.1,
        "draws": 1000,
        "baseline": 0.9,
        "prior": "initial",
        "settings": {"candidates": 2, "epochs": 5},
    }
    found = Certificate.from_dict(saved)
    assert sum(shares(found, "kl").values()) == pytest.approx(0.30)
    assert "by the kl inverse" in certificate_html(found)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["digits", "--delta", "2"], "delta"),
        (["digits", "--prior", "learnt"], "learned"),
        (["digits", "--objective", "x"], "objective"),
        (["digits", "--report", "page.pdf"], ".html"),
        (["digits", "--mode", "held-out", "--draws", "100"], "no use of draws"),
        (["digit"], "digits"),
        (["OWN:regression"], "classification"),
        (["OWN:overlapping"], "no sample of the prior data"),
        (["OWN:nothing"], "must return"),
        (["digits", "--held"], "--"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str],
    told: str,
    own: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(Path(own).parent)
    code = main(["certify", *[word.replace("OWN", own) for word in words]])
    error = capsys.readouterr().err
    assert code == 2
    assert told in error
    assert len(error.strip().splitlines()) == 1
