"""What a trial id needs of a source file: a hash that ignores words, and its imports.

Parsing the hundreds of files that a study may reach takes seconds. What was found is therefore kept
in the cache folder, under the hash of the file's content, for the next program.
"""

import ast
import contextlib
import functools
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from mindgap._version import __version__
from mindgap.core import InputError, write_whole
from mindgap.data.store import cache_folder

_MOST = 5000  # files that are kept; old ones are forgotten first


class Source(NamedTuple):
    """What is read from a file.

    Args:
        digest: Hash of the code; comments, layout and docstrings do not count.
        imports: Level, module and names of every import statement.
        lazy: The modules that define the names of a lazy package.
    """

    digest: str
    imports: tuple[tuple[int, str, tuple[str, ...]], ...] = ()
    lazy: Mapping[str, str] = {}


def source_of(path: Path) -> Source:
    """Read a file, or remember what was read if its content is the same.

    >>> source_of(Path(__file__)).imports[0]
    (0, 'ast', ())
    """
    status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=4096)
def _read(path: Path, *stamp: int) -> Source:  # noqa: ARG001
    """Read a file; the stamp makes an edited file a new entry of the cache."""
    content = path.read_bytes()
    key, kept = hashlib.sha256(content).hexdigest(), _kept(_file())
    if key not in kept:
        kept[key] = _parsed(content)
    return kept[key]


def keep_sources() -> None:
    """Write what was read to the cache folder; a folder that cannot be written is no reason to fail."""
    file = _file()
    kept, before = _kept(file), _loaded(file)
    if kept.keys() <= before.keys():
        return
    entries = list((before | kept).items())[-_MOST:]
    with contextlib.suppress(InputError, OSError):
        write_whole(file, json.dumps(dict(entries)))


def _file() -> Path:
    # Another version of Python or of this package may read the same content differently.
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cache_folder() / f"sources-{version}-{__version__}.json"


@functools.cache
def _kept(file: Path) -> dict[str, Source]:
    return _loaded(file)


def _loaded(file: Path) -> dict[str, Source]:
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        return {key: _restored(*row) for key, row in rows.items()}
    except (OSError, ValueError, TypeError, AttributeError):  # missing or damaged: read again
        return {}


def _restored(digest: str, imports: list[tuple[int, str, list[str]]], lazy: object) -> Source:
    rows = tuple((int(level), str(base), tuple(names)) for level, base, names in imports)
    if not isinstance(lazy, dict):
        raise TypeError
    return Source(str(digest), rows, lazy)


def _parsed(content: bytes) -> Source:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return Source(hashlib.sha256(content).hexdigest())
    imports, lazy = tuple(_imports(tree)), _lazy(tree)
    _strip_docstrings(tree)
    digest = hashlib.sha256(ast.dump(tree, annotate_fields=False).encode()).hexdigest()
    return Source(digest, imports, lazy)


def _lazy(tree: ast.Module) -> dict[str, str]:
    """Where the names of a package that calls ``mindgap._lazy.lazy`` with a table are defined."""
    for node in tree.body:
        match node:
            case ast.Expr(ast.Call(ast.Name("lazy"), [_, ast.Dict() as table])):
                homes = ast.literal_eval(table)
                return {name: home for home, names in homes.items() for name in names.split()}
    return {}


def _imports(tree: ast.AST) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", tuple(alias.name for alias in node.names)


def _strip_docstrings(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                del node.body[0]
