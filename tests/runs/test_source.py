"""What is kept of source files between programs: the same as what reading gives, damaged or not."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

source = importlib.import_module("mindgap.runs.source")
TEXT = '"""Words."""\nimport os\nfrom ..core import a, b\nlazy(__name__, {"home": "x y"})\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    return tmp_path / "cache" / "mindgap"


def forget() -> None:
    """As a new program does."""
    source._read.cache_clear()
    source._kept.cache_clear()


def test_a_new_program_finds_what_the_last_one_read(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some.py"
    path.write_text(TEXT)
    first = source.source_of(path)
    assert first.imports == ((0, "os", ()), (2, "core", ("a", "b")))
    assert first.lazy == {"x": "home", "y": "home"}
    source.keep_sources()
    forget()
    monkeypatch.setattr(source, "_parsed", lambda _: pytest.fail("parsed a second time"))
    assert source.source_of(path) == first


def test_only_the_code_counts_and_an_edit_is_seen(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    digests = []
    for text in (TEXT, TEXT.replace("Words", "Others") + "# comment\n", TEXT + "c = 1\n"):
        path.write_text(text)
        digests.append(source.source_of(path).digest)
        source.keep_sources()
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"a": 1}', '{"a": ["b", [[1]], {}]}', "\0"])
def test_a_damaged_cache_is_read_again(damage: str, cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(TEXT)
    first = source.source_of(path)
    cache.mkdir(parents=True, exist_ok=True)
    source._file().write_text(damage)
    forget()
    assert source.source_of(path) == first
    source.keep_sources()
    assert len(source._loaded(source._file())) == 1


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(TEXT)
    cache.parent.write_text("a file where the folder should be")
    assert source.source_of(path).digest
    source.keep_sources()
