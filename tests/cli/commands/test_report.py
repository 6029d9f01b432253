"""`mindgap report`: pages from files, whole, damaged and hostile."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mindgap import Subject, examine
from mindgap.cli import main
from mindgap.report import html
from mindgap.runs import SerialExecutor, save_results, sweep
from mindgap.studies import CertificateCoverage

WRONG = (None, "x", -1, True, 1e300, "Infinity", [], {}, [["a"]], {"a": {"b": 1}})
Run = Callable[[Any, str], tuple[int, str]]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    source = torch.Generator().manual_seed(0)
    data = (torch.randn(40, 4, generator=source), torch.arange(40) % 2)
    subject = Subject(nn.Linear(4, 2), "cross_entropy", data, data)
    found: dict[str, Any] = examine(subject, measures=["gap", "margin"]).to_dict()
    return found


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    swept = sweep(
        CertificateCoverage().tiny(), store=":memory:", executor=SerialExecutor(), progress=False
    )
    path = save_results(swept, tmp_path_factory.mktemp("study") / "results.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Write data to a file and make a page of it; return the exit code and what was said."""
    monkeypatch.setattr(html, "library", str)  # megabytes that no test here reads

    def made(data: Any, ending: str = ".html") -> tuple[int, str]:
        text = data if isinstance(data, str) else json.dumps(data)
        (tmp_path / "in.json").write_text(text)
        code = main(["report", str(tmp_path / "in.json"), "-o", str(tmp_path / f"out{ending}")])
        return code, capsys.readouterr().err

    return made


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something can be damaged: every key, and the ends of every list."""
    if place:
        yield place
    if isinstance(value, dict):
        for name, part in value.items():
            yield from places(part, (*place, name))
    elif isinstance(value, list):
        for k in sorted({0, len(value) - 1} if value else ()):
            yield from places(value[k], (*place, k))


def damaged(data: Any, place: tuple[Any, ...], how: int) -> Any:
    whole = copy.deepcopy(data)
    part = whole
    for name in place[:-1]:
        part = part[name]
    if how < len(WRONG):
        part[place[-1]] = WRONG[how]
    else:
        del part[place[-1]]
    return whole


@pytest.mark.parametrize("ending", [".html", ".md", ".txt"])
@pytest.mark.parametrize("kind", ["report", "study"])
def test_whole_files(
    kind: str, ending: str, run: Run, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    code, said = run(request.getfixturevalue(kind), ending)
    assert code == 0, said
    assert (tmp_path / f"out{ending}").stat().st_size > 200


@pytest.mark.parametrize("kind", ["report", "study"])
def test_damaged_files_are_one_sentence(
    kind: str, run: Run, request: pytest.FixtureRequest
) -> None:
    data, chance = request.getfixturevalue(kind), random.Random(0)
    everywhere, refused = list(places(data)), 0
    for number in range(120):
        place, how = chance.choice(everywhere), chance.randrange(len(WRONG) + 1)
        code, said = run(damaged(data, place, how), (".html", ".md", ".txt")[number % 3])
        assert code in (0, 2), (place, how, said)
        assert "Traceback" not in said
        assert said.count("\n") == 1, (place, how, said)
        refused += code == 2
    assert refused > 40


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be a JSON file"),
        ("{", "must be a JSON file"),
        ("[" * 100_000, "nested at most 100 levels deep"),
        ('{"study": ' * 500 + "1" + "}" * 500, "nested at most 100 levels deep"),
        ('{"study": ' + "9" * 5000 + "}", "must be a JSON file"),
        ("[1, 2]", "got other JSON"),
        ('{"study": "x"}', "got no 'fields' in it"),
        ('{"cards": []}', "must have schema 1 and kind 'report'"),
        ('{"cards": 1, "schema": 1, "kind": "report"}', "got damaged data"),
    ],
)
def test_hostile_files_are_one_sentence(text: str, words: str, run: Run) -> None:
    code, said = run(text, ".html")
    assert code == 2
    assert words in said
    assert said.count("\n") == 1
    assert len(said) < 600


def test_a_number_that_none_can_be_is_blamed_on_the_file(study: dict[str, Any], run: Run) -> None:
    code, said = run(study | {"cost": {"wall_seconds": "Infinity"}}, ".html")
    assert (code, "Traceback" in said) == (2, False)
    assert "got damaged data in" in said
