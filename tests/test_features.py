"""FEATURES.md has a row for every method, short enough to read; its files are generated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mindgap.core import catalog, functions

ROOT = Path(__file__).parent.parent
LIST = ROOT.parent / "shared" / "METHODS.md"
LONGEST = 420  # characters of a row, the generated files aside


def rows() -> dict[str, list[str]]:
    lines = re.findall(r"^\| ([VTPKES]\d+) \|(.*)\|$", (ROOT / "FEATURES.md").read_text(), re.M)
    return {id_: [cell.strip() for cell in rest.split(" | ")] for id_, rest in lines}


@pytest.mark.shared
def test_every_method_has_a_row() -> None:
    if not LIST.exists():
        pytest.skip("the list of methods lies outside the repository and is not here")
    wanted = set(re.findall(r"^\| ([VTPKES]\d+) \|", LIST.read_text(), re.M)) | {"S9"}
    assert set(rows()) == wanted


def test_methods_of_specs_and_functions_have_a_row() -> None:
    entries = [*catalog().values(), *functions().values()]
    assert {method for entry in entries for method in entry.method} <= set(rows())


@pytest.mark.parametrize("method", rows())
def test_rows_are_short_and_complete(method: str) -> None:
    name, where, verified, measured = rows()[method]
    assert len(name) + len(verified) + len(measured) <= LONGEST
    assert name
    assert bool(verified) == (where != "not yet")
