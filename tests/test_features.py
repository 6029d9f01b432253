"""FEATURES.md has a row for every method, and tells the truth about what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mindgap.core.registry import catalog

ROOT = Path(__file__).parent.parent
LIST = ROOT.parent / "shared" / "METHODS.md"


def rows() -> dict[str, list[str]]:
    lines = re.findall(r"^\| ([VTPKES]\d+) \|(.*)\|$", (ROOT / "FEATURES.md").read_text(), re.M)
    return {id_: [cell.strip() for cell in rest.split("|")] for id_, rest in lines}


@pytest.mark.shared
def test_every_method_has_a_row() -> None:
    if not LIST.exists():
        pytest.skip("the list of methods lies outside the repository and is not here")
    wanted = set(re.findall(r"^\| ([VTPKES]\d+) \|", LIST.read_text(), re.M)) | {"S9"}
    assert set(rows()) == wanted


@pytest.mark.parametrize("name", catalog())
def test_every_spec_stands_in_the_rows_of_its_methods(name: str) -> None:
    cls = catalog()[name]
    file = cls.__module__.rpartition(".")[2] + ".py"
    for method in cls.method:
        assert file in rows()[method][1], f"{file} is missing in the row {method}"


@pytest.mark.parametrize("method", rows())
def test_files_named_in_a_row_exist(method: str) -> None:
    where = rows()[method][1]
    if where == "not yet":
        assert method not in {id_ for cls in catalog().values() for id_ in cls.method}
    folder = ""
    for path in re.findall(r"`([\w/]+\.py)`", where):
        folder = path.rpartition("/")[0] or folder
        assert (ROOT / "src" / "mindgap" / folder / path.rpartition("/")[2]).exists(), path
