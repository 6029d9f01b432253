"""A number next to the name of a results file is in that file, up to rounding."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Formulas, code, links and what a test is exact to are no results.
NO_RESULT = re.compile(
    r"```.*?```|\$[^$]*\$|`[^`]*`|\]\([^)]*\)|\bto [\d.]*e-\d+|\bgoal (?:was )?[\d.]+", re.S
)
NUMBER = re.compile(r"(?<![\w.,^/−-])[−-]?\d[\d,]*\.\d+(?:e-?\d+)?(?!\w)")
NAME = re.compile(r"[`(](?:docs/results/)?(?:(benchmarks)/)?([\w-]+)(?:\.json|\.py)?[`)]")
NUMBERS_IN_TEXT = re.compile(r"[−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
SCALES = (1, 100, 0.01, 1e3, 1e-3, 60, 1 / 60, 3600, 1 / 3600)  # %, thousands, minutes, hours


def test_numbers_next_to_a_file_are_in_it() -> None:
    strange = {page.name: list(unbacked(page.read_text(encoding="utf-8"))) for page in PAGES}
    assert not {page: found for page, found in strange.items() if found}


def unbacked(text: str) -> Iterator[tuple[str, list[str]]]:
    """Numbers with a decimal point of each paragraph or item that names files which lack them."""
    for part in re.split(r"\n\s*\n|\n(?=- |\| |\d\. )", re.sub(r"```.*?```", "", text, flags=re.S)):
        files = [path for path in map(file_of, NAME.findall(part)) if path.is_file()]
        known = {number for path in files for number in contents(path)}
        if files:
            for found in NUMBER.findall(NO_RESULT.sub(" ", part)):
                if not holds(found, known):
                    yield found, [path.name for path in files]


def file_of(named: tuple[str, str]) -> Path:
    """Where a study or a benchmark of that name keeps its numbers."""
    folder, name = named
    return (RESULTS / folder if folder else RESULTS) / f"{name}.json"


def contents(path: Path, kept: dict[Path, set[float]] = {}) -> set[float]:  # noqa: B006
    """All numbers of a file but those of single trials and charts."""
    if path not in kept:
        data = json.loads(path.read_text(encoding="utf-8"))
        if "table" in data:
            table = {key: value for key, value in data["table"].items() if key != "charts"}
            data = [table, data["fields"], data["expected"], data["cost"]]
        kept[path] = set(numbers(data))
    return kept[path]


def numbers(data: Any) -> Iterator[float]:
    if isinstance(data, str):
        yield from map(value_of, NUMBERS_IN_TEXT.findall(data))
    elif isinstance(data, dict | list):
        for part in data.values() if isinstance(data, dict) else data:
            yield from numbers(part)
    elif isinstance(data, int | float):
        yield float(data)


def value_of(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def holds(text: str, known: set[float]) -> bool:
    """Whether a number is one of those known, up to sign and unit, rounded or, as a bound, up."""
    digits, _, power = text.partition("e")
    last = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    wanted = abs(value_of(text))
    return any(
        -0.5001 * last <= wanted - abs(number) * scale < last
        for number in known
        for scale in SCALES
    )


@pytest.mark.parametrize("number", ["0.25", "25.0", "−0.2", "1.5e-3"])
def test_a_number_may_be_rounded_and_in_percent(number: str) -> None:
    assert holds(number, {0.25, 0.00151})
    assert not holds(number, {0.31, 0.0091})


def test_a_wrong_number_is_found() -> None:
    right, wrong = "The error is 0.246 (`tbs-table-4`).", "The error is 0.777 (`tbs-table-4`)."
    assert list(unbacked(right + "\n\n" + wrong)) == [("0.777", ["tbs-table-4.json"])]
