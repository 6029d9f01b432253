"""Bad input gets one sentence and exit code 2, never a traceback, and nothing of the user's is lost."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import subprocess
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
    monkeypatch.setitem(sys.modules, "optuna", None)
    data = "(torch.randn(40, 4), torch.arange(40) % 2)"
    target = subject_file(
        tmp_path, f'return Subject(nn.Linear(4, 2), "cross_entropy", {data}, {data})'
    )
    told = complaint(capsys, "choose-head", target, "--search", "optuna", "-q")
    assert "pip install 'mindgap[search]'" in told


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


@pytest.mark.parametrize("stop", ["sys.exit(0)", "exit()", "raise SystemExit"])
@pytest.mark.parametrize("when", ["called", "imported", "read"])
def test_code_that_ends_the_program(
    stop: str, when: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands would exit 0 in silence, with nothing done."""
    bodies = {
        "called": f"import sys\n{stop}",
        "imported": "pass",
        "read": "class Ends(torch.utils.data.Dataset):\n    __len__ = lambda self: 20\n"
        f"    def __getitem__(self, i):\n        import sys\n        {stop}\n"
        "return Subject(nn.Linear(4, 2), 'cross_entropy', Ends(), check_determinism=False)",
    }
    target = subject_file(tmp_path, bodies[when])
    if when == "imported":
        path = tmp_path / "mine.py"
        path.write_text(f"import sys\n{stop}\n" + path.read_text())
    assert "sys.exit(" in complaint(capsys, "examine", target, "-q")


def test_a_closed_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["list"]) == 2
    monkeypatch.undo()
    assert capsys.readouterr().err == (
        "mindgap: The output must have somewhere to go, got a closed standard output. Redirect it "
        "to a file or to /dev/null.\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("words", [["list", "--names"], ["list", "--json"], ["--version"]])
def test_a_full_disk(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(words) == 1
        full.flush()  # nothing is left that would fail when Python ends
        monkeypatch.undo()
    err = capsys.readouterr().err
    assert "The output must be a place" in err
    assert "No space left on device" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [["explain", "pac-bayes-hessian"], ["train", "--help"]])
def test_an_encoding_without_all_characters(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    try:
        code = main(words)
    except SystemExit as stop:  # help ends so
        code = stop.code
    stream.flush()
    monkeypatch.undo()
    assert code == 0
    assert re.search(r"\\[ux]", written.getvalue().decode("ascii"))
    assert "Set PYTHONIOENCODING=utf-8" in capsys.readouterr().err


PATHS = {"name over 255 bytes": ("x" * 300, "File name too long"), "user": ("~nosuchuser/", "home")}


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize(
    "words",
    [
        ["examine", "{}.py:make_subject"],
        ["weigh", "{}.npz"],
        ["report", "{}.json"],
        ["run", "batch-size-gap", "--results", "{}.json"],
        ["sample", "--data", "{}.csv", "--ask", "1"],
        ["sample", "--session", "{}.jsonl", "--low", "0", "--high", "1", "--ask", "1"],
        ["train", "--checkpoint", "{}.pt"],
    ],
)
def test_paths_that_cannot_be(
    kind: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, expected = PATHS[kind]
    assert main([word.format(path) for word in words]) in (1, 2)
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert expected in err
    assert "x" * 201 not in err


IGNORED = {
    "recipe and data": (["train", "--recipe", "mine.py:r", "--data", "digits"], "--data"),
    "recipe and net": (["train", "--recipe", "mine.py:r", "--net", "mlp"], "--net"),
    "recipe and width": (["train", "--recipe", "mine.py:r", "--width", "3"], "--width"),
    "recipe and noise": (["train", "--recipe", "mine.py:r", "--label-noise", "0"], "--label-noise"),
    "subject and numbers": (
        ["bound", "binomial-tail", "--subject", "mine.py:s", "--errors", "0"],
        "--errors",
    ),
    "function and net": (["certify", "mine.py:r", "--net", "mlp"], "--net"),
    "trials of a grid": (["choose-head", "mine.py:s", "--trials", "3"], "--trials"),
    "shell without command": (
        ["sample", "mine.py:f", "--shell", "--low", "0", "--high", "1"],
        "--shell",
    ),
    "width of a fixed net": (["train", "--net", "lenet5", "--width", "3"], "fixed width"),
    "page of a head as PDF": (["choose-head", "mine.py:s", "--report", "x.pdf"], "end in .html"),
    "report as PDF": (["examine", "mine.py:s", "--report", "x.pdf"], "end in .html or .json"),
    "heaviest below zero": (["weigh", "data.npz", "--heaviest", "-1"], "--heaviest must be"),
}


@pytest.mark.parametrize("case", IGNORED)
def test_arguments_that_would_be_ignored(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, expected = IGNORED[case]
    assert expected in complaint(capsys, *words)


def test_known_points_outside_the_domain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "points.csv"
    path.write_text("x0,y0\n0.5,1\n7,2\n")
    text = complaint(
        capsys, "sample", "--data", str(path), "--low", "0", "--high", "1", "--ask", "1"
    )
    assert "1 of 2 outside, such as [7.0]" in text


SUBJECT_ARGUMENTS = {
    "too few classes": ({"classes": ("a",)}, r"every class from 0 to 1, got 1 names"),
    "key without a dict": ({"target": "nope"}, r"target must be left out"),
    "batches of nothing": ({"batch_size": 0}, r"batch_size must be an integer"),
    "task": ({"task": "clasification"}, r"Did you mean 'classification'"),
}


@pytest.mark.parametrize("case", SUBJECT_ARGUMENTS)
def test_arguments_of_a_subject(case: str) -> None:
    from mindgap import MindgapError, Subject

    given, expected = SUBJECT_ARGUMENTS[case]
    x, y = torch.randn(6, 2), torch.arange(6) % 2
    with pytest.raises(MindgapError, match=expected):
        Subject(torch.nn.Linear(2, 2), "cross_entropy", (x, y), **given)


def test_half_an_error() -> None:
    from mindgap import MindgapError
    from mindgap.bounds import BinomialTail

    with pytest.raises(MindgapError, match=r"errors must be an integer, got 0\.5"):
        BinomialTail().evaluate(errors=0.5, samples=10)


def test_more_draws_than_asked_for_are_told() -> None:
    from mindgap import Recipe, certify

    x, y = torch.randn(60, 2), torch.arange(60) % 2
    recipe = Recipe(model=lambda: torch.nn.Linear(2, 2), train=(x, y), epochs=1)
    certificate = certify(recipe, draws=50, epochs=0)
    assert certificate.draws == 54  # three for each of the 18 bound samples
    assert any("50 draws were asked for and 54 made" in note for note in certificate.notes)
    assert "50 draws" in str(certificate)


def lying_archives() -> dict[str, bytes]:
    """Archives whose headers are not true, or that Python cannot read."""
    file = io.BytesIO()
    np.savez(file, x=np.zeros((9, 2)), y=np.arange(9))
    whole = file.getvalue()
    return {
        "shape": whole.replace(b"(9, 2)", b"(8, 9)"),
        "huge shape": whole.replace(b"'shape': (9, 2), }   ", b"'shape': (9, 10**9)} "),
        "encrypted": whole.replace(
            b"PK\x01\x02\x2d\x03\x2d\0\0\0", b"PK\x01\x02\x2d\x03\x2d\0\1\0"
        ),
        "compression": whole.replace(
            b"PK\x01\x02\x2d\x03\x2d\0\0\0\0\0", b"PK\x01\x02\x2d\x03\x2d\0\0\0\x63\0"
        ),
    }


@pytest.mark.parametrize("kind", ["shape", "huge shape", "encrypted", "compression"])
def test_archives_that_lie(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, content = tmp_path / "data.npz", lying_archives()[kind]
    np.savez(path, x=np.zeros((9, 2)), y=np.arange(9))
    assert content != path.read_bytes()
    path.write_bytes(content)
    assert "must be an .npz file" in complaint(capsys, "weigh", str(path), "--k", "3", "-q")


def test_old_names_of_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.eye(9), y=np.arange(9) % 2)
    assert main(["weights", str(path), "--k", "3", "-q"]) == 0
    assert "9 samples" in capsys.readouterr().out
    assert "make_subject" in complaint(capsys, "head", "no_colon.py")
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "weights  " not in shown
    assert "head  " not in shown.replace("choose-head", "")


def test_certify_leaves_no_thread_and_no_variable() -> None:
    """In a process of its own: torch sets its variables once, tqdm starts its thread once."""
    program = (
        "import os, threading, torch, mindgap\n"
        "x, y = torch.randn(40, 2), torch.arange(40) % 2\n"
        "recipe = mindgap.Recipe(model=lambda: torch.nn.Linear(2, 2), train=(x, y), epochs=1)\n"
        "before = set(os.environ), set(threading.enumerate())\n"
        "mindgap.certify(recipe, draws=20, epochs=1, progress=True)\n"
        "assert before == (set(os.environ), set(threading.enumerate()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
