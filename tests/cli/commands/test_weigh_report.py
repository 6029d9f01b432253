"""`mindgap weigh --report`: the page shows the heaviest samples as what they are."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindgap.cli import main
from mindgap.report.html import library

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 3, 60)
Page = Callable[..., str]


@pytest.fixture
def page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Page:
    """Writes arrays, runs the command and gives the page without Plotly's own megabytes."""

    def run(*words: str, **arrays: Any) -> str:
        np.savez(tmp_path / "data.npz", **arrays)
        target = tmp_path / "page.html"
        code = main(
            [
                "weigh",
                str(tmp_path / "data.npz"),
                "-q",
                "--k",
                "8",
                "--report",
                str(target),
                *words,
            ]
        )
        assert code == 0, capsys.readouterr().err
        return target.read_text(encoding="utf-8").replace(library(), "")

    return run


def heaviest(text: str) -> str:
    """Return the gallery of the heaviest samples."""
    return text.partition(" heaviest</h3>")[2].partition("</figure>")[0]


def test_terminal_page_json_and_csv_tell_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.concatenate([RANDOM.normal(size=(60, 2)), 9 + RANDOM.normal(size=(60, 2))])
    y = np.arange(120) // 60
    y[[3, 17, 70]] = 1, 1, 0
    np.savez(tmp_path / "data.npz", x=x, y=y)
    saved, target = tmp_path / "suspects.csv", tmp_path / "page.html"
    words = ["weights", str(tmp_path / "data.npz"), "-q", "--k", "9", "--heaviest", "4"]
    assert main([*words, "--suspects", str(saved), "--report", str(target)]) == 0
    told = capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    rows = list(csv.DictReader(io.StringIO(saved.read_text(encoding="utf-8"))))
    assert sorted(int(row["index"]) for row in rows) == [3, 17, 70]
    assert [row["index"] for row in facts["suspect_samples"]] == [int(r["index"]) for r in rows]
    assert all(float(row["agree"]) <= 0.1 for row in rows)
    page_text = heaviest(target.read_text(encoding="utf-8"))
    assert "The 4 heaviest" in target.read_text(encoding="utf-8")
    shown = re.findall(r'<th scope="row">(\d+)', page_text)
    listed = told.partition("labels around it")[2].splitlines()[2:]
    assert [line.split()[0] for line in listed] == shown
    assert [str(row["index"]) for row in facts["heaviest"]] == shown
    assert "3 labels may be wrong" in told


@pytest.mark.parametrize("shape", [(60, 6, 8), (60, 1, 6, 8), (60, 3, 6, 8), (60, 6, 8, 3)])
def test_images(page: Page, shape: tuple[int, ...]) -> None:
    text = page("--heaviest", "12", x=RANDOM.random(shape), y=LABELS)
    assert heaviest(text).count('<img src="data:image/png') == 12
    assert 'class="inputs"' not in text


@pytest.mark.parametrize("shape", [(60, 5), (60,), (60, 2, 3), (60, 5, 6, 4)])
def test_other_shapes_are_rows(page: Page, shape: tuple[int, ...]) -> None:
    text = page(x=RANDOM.random(shape), y=LABELS)
    assert "<img" not in text
    assert heaviest(text).count('class="inputs"') == 10


def test_texts_are_shown_and_harmless(page: Page) -> None:
    texts = np.array([f"sentence {k} <script>alert(1)</script>" for k in range(60)])
    text = page(x=RANDOM.random((60, 4)), y=LABELS, texts=texts)
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert(1)" not in text
    again = page(x=texts, features=RANDOM.random((60, 4)), y=LABELS)
    assert "&lt;script&gt;alert(1)" in again


def test_names_of_features_and_classes(page: Page) -> None:
    names = np.array(["cat", "dog <b>", "owl"])[LABELS]
    text = page(
        x=RANDOM.random((60, 3)), y=names, feature_names=np.array(["width", "height", "<i>depth"])
    )
    for words in ("width", "&lt;i&gt;depth", "dog &lt;b&gt;", "owl\u00a0("):
        assert words in text
    assert "<i>depth" not in text


def test_features_are_searched_and_x_is_shown(page: Page, tmp_path: Path) -> None:
    features, images = RANDOM.random((60, 5)), RANDOM.random((60, 6, 6))
    target = str(tmp_path / "weights.npy")
    text = page("-o", target, inputs=images, features=features, y=LABELS)
    assert "features, by euclidean distance" in text
    assert heaviest(text).count('<img src="data:image/png') == 10
    near = np.argsort(((features[:, None] - features) ** 2).sum(2), axis=1)[:, :8]
    variance = np.eye(3)[LABELS][near].var(axis=1, ddof=1).sum(1)
    assert np.allclose(np.load(target), 1 + 39 * variance / variance.max())
    assert target in text


def test_a_plane_has_a_map_and_suspects_are_marked(page: Page) -> None:
    x = RANDOM.normal(size=(60, 2)) + 9 * (np.arange(60) % 2)[:, None]
    y = np.arange(60) % 2
    y[10] = 1
    text = page(x=x, y=y)
    assert "Local variance over the plane" in text
    assert "1 suspect" in text
    assert '<span class="flag bad">suspect</span>' in text
    assert "Local variance over the plane" not in page("--metric", "cosine", x=x, y=y)
    assert "its deviation" in page("--standardize", x=x, y=y)


def test_a_value_far_from_those_around_is_a_suspect(page: Page) -> None:
    x = np.random.default_rng(0).random((60, 3))
    assert "No sample carries a value that lies more than five" in page(x=x, y=x.sum(1))
    text = page(x=x, y=np.where(np.arange(60) == 7, 50, x.sum(1)))
    assert "1 suspect of 60 samples carries a value that lies more than five" in text
    assert "mean 1." in text


def test_calm_labels_are_told(page: Page) -> None:
    text = page(x=RANDOM.random((60, 3)), y=np.zeros(60, dtype=int))
    assert "there is nothing to weight" in text


def test_the_settings_and_the_control_are_told(page: Page) -> None:
    text = page(
        "--normalize", "--max-weight", "12", "--noise", "cap", x=RANDOM.random((60, 3)), y=LABELS
    )
    for words in (
        "12 where labels vary most; then divided",
        "kept at weight 1",
        "permuted.npy",
        "also the mark of a",
    ):
        assert words in text


def test_the_terminal_says_what_it_said_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "data.npz", x=RANDOM.random((60, 3)), y=LABELS)
    words = ["weigh", str(tmp_path / "data.npz"), "-q", "--k", "5"]
    assert main(words) == 0
    plain = capsys.readouterr().out
    assert main([*words, "--report", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == plain
    assert main([*words, "--json", "--report", str(tmp_path / "page.html")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["suspects"] == len(facts["suspect_samples"]) > 0


BAD = {
    "a number": {"x": np.array(3.0), "y": LABELS},
    "no samples": {"x": np.zeros((0, 3)), "y": np.zeros(0)},
    "no features": {"x": np.zeros((60, 0)), "y": LABELS},
    "other lengths": {"x": np.zeros((59, 3)), "y": LABELS},
    "features of another length": {
        "x": np.zeros((60, 3)),
        "features": np.zeros((7, 3)),
        "y": LABELS,
    },
    "texts of another length": {"x": np.zeros((60, 3)), "y": LABELS, "texts": np.array(["a"])},
    "texts of numbers": {"x": np.zeros((60, 3)), "y": LABELS, "texts": np.zeros(60)},
    "too few names": {"x": np.zeros((60, 3)), "y": LABELS, "feature_names": np.array(["a"])},
    "words without features": {"x": np.array(["a"] * 60), "y": LABELS},
    "one label": {"x": np.zeros((60, 3)), "y": np.array(1)},
    "labels that are not numbers": {"x": np.zeros((60, 3)), "y": np.full(60, np.nan)},
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arrays_are_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "data.npz", **BAD[name])
    target = tmp_path / "page.html"
    assert (
        main(["weigh", str(tmp_path / "data.npz"), "-q", "--k", "8", "--report", str(target)]) == 2
    )
    message = capsys.readouterr().err
    assert message.startswith("mindgap: ")
    assert len(message.splitlines()) == 1
    assert not target.exists()


@pytest.mark.parametrize("target", ["page.pdf", "nowhere/page.html", "."])
def test_bad_paths_are_told_first(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "data.npz", x=RANDOM.random((60, 3)), y=LABELS)
    assert main(["weigh", str(tmp_path / "data.npz"), "--report", str(tmp_path / target)]) == 2
    assert capsys.readouterr().out == ""
