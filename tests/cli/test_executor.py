"""`--executor` on run, improve and sample: a real Dask cluster answers as this machine does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import dask_address

from mindgap.cli import main

Out = Callable[..., str]


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with dask_address(tmp_path_factory.mktemp("cluster"), workers=1) as address:
        yield f"dask:{address}"


def test_run(dask: str, tmp_path: Path, out: Out) -> None:
    found = []
    for number, where in enumerate((dask, "local")):
        store = str(tmp_path / f"{number}.sqlite")
        words = ("run", "simulated-races", "--tiny", "--json", "--store", store)
        found.append(out(*words, "--executor", where))
    assert found[0] == found[1]


def test_improve(dask: str, user_file: Path, tmp_path: Path, out: Out) -> None:
    found = []
    for number, where in enumerate((["--executor", dask], ["--workers", "1"])):
        store = str(tmp_path / f"{number}.sqlite")
        words = ("improve", f"{user_file}:make_recipe", "--trainings", "40", "--json")
        data = json.loads(out(*words, "--store", store, *where))
        data.pop("provenance")
        found.append(data)
    assert found[0] == found[1]


def test_sample(dask: str, tmp_path: Path, out: Out) -> None:
    (tmp_path / "squares.py").write_text("def f(point):\n    return point[0] ** 2\n")
    words = ("sample", f"{tmp_path}/squares.py:f", "--low", "-1", "--high", "1")
    few = ("--initial", "4", "--new", "2", "-q")
    assert out(*words, *few, "--executor", dask) == out(*words, *few, "--workers", "1")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--executor", "slurm"], "executor must be local, dask:ADDRESS or ray, got 'slurm'"),
        (["--executor", "ray", "--workers", "2"], "--workers must not come with --executor ray"),
    ],
)
def test_bad_input(more: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "batch-size-gap", "--tiny", *more]) == 2
    assert told in capsys.readouterr().err
