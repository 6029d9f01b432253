"""Bad input gets one sentence and exit code 2, never a traceback, and nothing of the user's is lost."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mindgap.cli import main

HEADER = """import torch, mindgap
from mindgap import Subject
from torch import nn
x, y = torch.randn(20, 4), torch.arange(20) % 2
"""


def subject_file(folder: Path, body: str) -> str:
    """A user's file whose make_subject has this body."""
    path = folder / "mine.py"
    path.write_text(HEADER + "def make_subject():\n    " + body.replace("\n", "\n    ") + "\n")
    return f"{path}:make_subject"


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run the command; it must fail with code 2 and one line on stderr, and print nothing else."""
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert err.startswith("mindgap: ")
    assert err.count("\n") == 1, err
    assert err.rstrip()[-1] in ".?'", err
    return err


SUBJECTS = {
    "empty data": (
        "return Subject(nn.Linear(4, 2), 'cross_entropy', (x[:0], y[:0]))",
        "at least one sample",
    ),
    "NaN inputs": (
        "x[3, 1] = float('nan')\nreturn Subject(nn.Linear(4, 2), 'cross_entropy', (x, y))",
        "1 of 80",
    ),
    "infinite targets": (
        "return Subject(nn.Linear(4, 1), 'mse', (x, y.float() / 0))",
        "must be finite numbers",
    ),
    "wrong input shape": (
        "return Subject(nn.Linear(5, 2), 'cross_entropy', (x, y))",
        "shape (20, 4)",
    ),
    "wrong output shape": ("return Subject(nn.Linear(4, 3), 'mse', (x, x[:, :2]))", "(20, 3)"),
    "lengths differ": (
        "return Subject(nn.Linear(4, 2), 'cross_entropy', (x, y[:9]))",
        "as many inputs as targets",
    ),
    "one class only": (
        "return Subject(nn.Linear(4, 2), 'cross_entropy', (x, y * 0))",
        "at least two classes",
    ),
    "labels out of range": (
        "return Subject(nn.Linear(4, 2), 'cross_entropy', (x, y + 1))",
        "from 0 to 1",
    ),
    "negative labels": ("return Subject(nn.Linear(4, 2), 'cross_entropy', (x, y - 1))", "got -1"),
    "fractions as labels": (
        "return Subject(nn.Linear(4, 2), 'cross_entropy', (x, y + 0.5))",
        "got fractions",
    ),
    "matrix of labels": (
        "return Subject(nn.Linear(4, 2), 'cross_entropy', (x, torch.ones(20, 2).long()))",
        "one class number per sample",
    ),
    "words as data": (
        "return Subject(nn.Linear(4, 2), 'cross_entropy', (['a', 'b'], [0, 1]))",
        "as numbers",
    ),
    "no targets": (
        "return Subject(nn.Linear(4, 2), 'cross_entropy', x)",
        "together with their targets",
    ),
    "unknown loss": (
        "return Subject(nn.Linear(4, 2), 'cross-entropy', (x, y))",
        "Did you mean 'cross_entropy'",
    ),
    "class instead of a model": ("return Subject(nn.Linear, 'mse', (x, y))", "Pass an instance"),
    "foreign initial weights": (
        "return Subject(nn.Linear(4, 2), 'cross_entropy', (x, y), initial=nn.Linear(3, "
        "2).state_dict())",
        "state dict of this model",
    ),
    "dict without a target": (
        "return Subject(nn.Linear(4, 2), 'cross_entropy', {'input': x, 'answer': y})",
        "target='…'",
    ),
    "random augmentation": (
        "class Noisy(torch.utils.data.Dataset):\n    __len__ = lambda self: 20\n"
        "    __getitem__ = lambda self, i: (x[i] + torch.rand(4), y[i])\n"
        "return Subject(nn.Linear(4, 2), 'cross_entropy', Noisy())",
        "read the same twice",
    ),
    "model that gives NaN": (
        "model = nn.Linear(4, 2)\nnn.init.constant_(model.weight, float('nan'))\n"
        "return Subject(model, 'cross_entropy', (x, y))",
        "outputs on the training data must be finite",
    ),
    "model that returns a word": (
        "model = nn.Linear(4, 2)\nmodel.forward = lambda x: 'cat'\nreturn Subject(model, "
        "'cross_entropy', (x, y))",
        "must return a tensor",
    ),
    "not a subject": ("return nn.Linear(4, 2)", "must return a mindgap.Subject, got Linear"),
    "function that raises": ("return 1 / 0", "ZeroDivisionError: division by zero in line 6"),
}


@pytest.mark.parametrize("case", SUBJECTS)
def test_bad_subjects(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body, expected = SUBJECTS[case]
    assert expected in complaint(capsys, "examine", subject_file(tmp_path, body), "-q")


COMMANDS = {
    "unknown command": (["exmaine"], "Did you mean 'examine'"),
    "no command": ([], "COMMAND"),
    "unknown option": (["list", "--jsn"], "Did you mean '--json'"),
    "unknown name": (["explain", "magin"], "Did you mean 'margin'"),
    "unknown bound": (["bound", "binomial-tale", "--errors", "3"], "Did you mean 'binomial-tail'"),
    "unknown study": (["run", "batch-size-gab"], "Did you mean 'batch-size-gap'"),
    "unknown data": (["train", "--data", "digit", "-q"], "Did you mean 'digits'"),
    "unknown net": (["train", "--net", "mpl", "-q"], "Did you mean 'mlp'"),
    "unknown remedy": (["train", "--remedy", "dropot", "-q"], "Did you mean 'dropout'"),
    "unknown remedy field": (
        ["train", "--remedy", "dropout:rat=0.1", "-q"],
        "Did you mean '--rate'",
    ),
    "remedy out of range": (
        ["train", "--remedy", "dropout:rate=1.5", "-q"],
        "at least 0 and below 1, got 1.5",
    ),
    "remedy without a value": (["train", "--remedy", "dropout:rate", "-q"], "name:field=value"),
    "unknown optimizer": (["train", "--optimizer", "adm", "-q"], "Did you mean 'adam'"),
    "batch of nothing": (
        ["train", "--batch-size", "0", "-q"],
        "batch_size must be a number at least 1, got 0",
    ),
    "more held out than there is": (
        ["train", "--validation", "0.99999", "-q"],
        "samples on both sides",
    ),
    "not a number": (["bound", "kl-inverse", "--samples", "many"], "invalid int value"),
    "number missing": (["bound", "kl-inverse", "--samples", "10"], "Add empirical"),
    "no samples": (
        ["bound", "statistical-error", "--samples", "0", "--empirical", "0"],
        "at least 1, got 0",
    ),
    "more errors than samples": (
        ["bound", "binomial-tail", "--errors", "9", "--samples", "5"],
        "from 0 to 5",
    ),
    "delta of one": (
        ["bound", "kl-inverse", "--delta", "1", "--samples", "5", "--empirical", "0"],
        "below 1, got 1.0",
    ),
    "rate above one": (
        ["bound", "kl-inverse", "--samples", "5", "--empirical", "7"],
        "from 0 to 1, got 7",
    ),
    "missing file": (["examine", "not_there.py:make_subject"], "existing file, got 'not_there.py'"),
    "no function": (["examine", "file.py"], "path/to/file.py:make_subject"),
    "missing module": (["examine", "no_such_module:make"], "ModuleNotFoundError"),
    "unknown measure": (
        ["train", "--epochs", "1", "--measure", "gapp", "-q"],
        "Did you mean 'gap'",
    ),
    "results that are not there": (["report", "not_there.json"], "existing file"),
    "seeds below the least": (
        ["run", "batch-size-gap", "--seeds", "1"],
        "seeds must be a number at least 2, got 1",
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_bad_commands(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, expected = COMMANDS[case]
    assert expected in complaint(capsys, *words)


def test_misspelled_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = subject_file(tmp_path, "return 1").replace("make_subject", "make_subjct")
    assert "Did you mean 'make_subject'" in complaint(capsys, "examine", target)


def test_more_folds_than_samples() -> None:
    from mindgap.core.errors import InputError
    from mindgap.data import stratified_folds

    with pytest.raises(
        InputError, match=r"folds must be an integer from 2 to 300 .* got 500\. Lower folds"
    ):
        stratified_folds(torch.zeros(300), 500)


def test_missing_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    words = ("train", "--epochs", "1", "-q", "--report", str(tmp_path / "r.html"))
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert "pip install 'mindgap[report]'" in err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("option", ["--report", "--save", "--checkpoint"])
def test_unwritable_path(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file" / "below.html", tmp_path / "no" / "folder.html", tmp_path):
        assert "Choose another path" in complaint(
            capsys, "train", "--epochs", "1", "-q", option, str(path)
        )
    assert (tmp_path / "file").read_text() == "mine"


class Bomb:
    """A pickle that runs a command when it is opened."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def damaged_checkpoints(folder: Path) -> dict[str, bytes]:
    whole = io.BytesIO()
    torch.save({"format": "mindgap-checkpoint-2", "weights": torch.ones(1000)}, whole)
    foreign = io.BytesIO()
    torch.save(torch.nn.Linear(2, 2).state_dict(), foreign)
    return {
        "empty": b"",
        "garbage": os.urandom(500),
        "truncated": whole.getvalue()[:-700],
        "foreign": foreign.getvalue(),
        "pickle bomb": pickle.dumps(Bomb(folder / "exploded")),
        "torch pickle bomb": bomb_archive(folder / "exploded"),
    }


def bomb_archive(mark: Path) -> bytes:
    file = io.BytesIO()
    torch.save({"format": "mindgap-checkpoint-2", "model": Bomb(mark)}, file)
    return file.getvalue()


@pytest.mark.parametrize(
    "kind", ["empty", "garbage", "truncated", "foreign", "pickle bomb", "torch pickle bomb"]
)
def test_damaged_checkpoint(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, path = damaged_checkpoints(tmp_path)[kind], tmp_path / "run.pt"
    path.write_bytes(content)
    text = complaint(capsys, "train", "--epochs", "1", "-q", "--checkpoint", str(path))
    assert "The checkpoint" in text
    assert path.read_bytes() == content
    assert not (tmp_path / "exploded").exists()


def test_checkpoint_of_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.pt"
    assert main(["train", "--epochs", "1", "-q", "--checkpoint", str(path)]) == 0
    content = path.read_bytes()
    capsys.readouterr()
    text = complaint(
        capsys, "train", "--epochs", "1", "-q", "--seed", "1", "--checkpoint", str(path)
    )
    assert "another run" in text
    assert path.read_bytes() == content


def test_truncated_data_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{name}-ubyte.gz").write_bytes(
            gzip.compress(b"\0\0\x08\x03" + b"\0" * 400)[:-20]
        )
    monkeypatch.setenv("MINDGAP_DATA", str(tmp_path))
    assert "mnist" in complaint(capsys, "train", "--data", "mnist", "-q")


def test_corrupt_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"this is no database, but it is mine" * 40)
    content = path.read_bytes()
    assert "store" in complaint(
        capsys, "run", "batch-size-gap", "--tiny", "-q", "--store", str(path)
    )
    assert path.read_bytes() == content


@pytest.mark.parametrize("text", ["", "[]", "{", '{"hello": 1}'])
def test_results_that_are_not_results(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    assert "The results must" in complaint(
        capsys, "report", str(path), "-o", str(tmp_path / "page.html")
    )
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "kind", ["missing", "garbage", "pickle", "no labels", "k too large", "lengths"]
)
def test_weights_of_a_bad_file(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, x, y = tmp_path / "data.npz", np.zeros((9, 2)), np.arange(9)
    if kind == "garbage":
        path.write_bytes(b"PK\x03\x04 no archive")
    elif kind == "pickle":
        np.savez(path, x=x, y=np.array([Bomb(tmp_path / "exploded")] * 9, dtype=object))
    elif kind != "missing":
        np.savez(
            path, x=x, **{"n" if kind == "no labels" else "y": y[:4] if kind == "lengths" else y}
        )
    expected = {
        "k too large": "k must be an integer from 2 to 9",
        "no labels": "Rename the arrays",
        "lengths": "4",
    }
    assert expected.get(kind, "The data must be") in complaint(capsys, "weigh", str(path), "-q")
    assert not (tmp_path / "exploded").exists()
