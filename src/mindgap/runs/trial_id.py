"""Trial id: equal if and only if the same code would do the same work.

An id covers the source that a study runs, which is found by reading imports, without importing
anything. Comments, layout and docstrings do not count, so that an edit of words does not throw away
computed trials.
"""

import functools
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mindgap._version import __version__
from mindgap.core import FAMILIES, InputError, Study, Trial, canonical, validated
from mindgap.runs.source import keep_sources, source_of

PACKAGE = "mindgap"
# Whoever imports one of these functions may reach any module of the folders by a name in a string.
_LOOKUPS: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {
    "mindgap.core.registry": (
        frozenset({"find", "catalog"}),
        tuple(folder for family, folder in FAMILIES.items() if family != "study"),
    ),
    "mindgap.data.catalog": (frozenset({"load"}), ("mindgap.data",)),
}


def code_version(module: str) -> str:
    """Hash mindgap's version, a module's source, and the source of all that it imports.

    Imports are followed into ``mindgap``, into the module's own top-level package, and into plain
    files next to a top-level module. A name of a lazy package leads to the file that defines it. A
    package that is imported as such counts with its whole folder, because it may import its
    submodules dynamically.

    >>> code_version("mindgap.core.table") == code_version("mindgap.core.table")
    True
    """
    return _hashed(reachable(module))


def _hashed(files: Mapping[str, Path]) -> str:
    digest = hashlib.sha256(__version__.encode())
    for name, path in sorted(files.items()):
        digest.update(f"\0{name}\0{source_of(path).digest}".encode())
    return digest.hexdigest()[:16]


def _bytecode(cls: type) -> str:
    """Hash the methods of a class that was typed into a session and has no file."""
    functions = [value for value in vars(cls).values() if isinstance(value, types.FunctionType)]
    return hashlib.sha256(
        repr([_instructions(function.__code__) for function in functions]).encode()
    ).hexdigest()[:16]


def _instructions(code: types.CodeType) -> list[object]:
    constants = [
        _instructions(item) if isinstance(item, types.CodeType) else item for item in code.co_consts
    ]
    return [code.co_name, code.co_code, code.co_names, constants]


def reachable(module: str) -> dict[str, Path]:
    """Find the files of all modules that ``module`` depends on, itself included."""
    before = _walks.get(module)
    if before is None or before[1] != _state(module, before[0]):
        found = _walked(module)
        before = _walks[module] = found, _state(module, found)
    return dict(before[0])


# What was found for a module, and the state of all files and folders that decided it.
_walks: dict[str, tuple[dict[str, Path], list[object]]] = {}


def _state(module: str, found: Mapping[str, Path]) -> list[object]:
    """Describe files, the folders in which a new one would be seen, and what is imported."""
    elsewhere = [
        loaded
        for name, path in found.items()
        if (loaded := getattr(sys.modules.get(name), "__file__", None)) not in (None, str(path))
    ]
    folders = sorted({path.parent for path in found.values()})
    _locate.cache_clear()
    home = _locate(module, module)
    return [home, elsewhere, *map(_stamp, found.values()), *map(_stamp, folders)]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return status.st_mtime_ns, status.st_size


def _walked(module: str) -> dict[str, Path]:
    _locate.cache_clear()  # what is imported, and where files are, may have changed
    start = _locate(module, module)
    found: dict[str, Path] = {} if start is None else {module: start}
    waiting = list(found)
    while waiting:
        name = waiting.pop()
        fresh = {key: path for key, path in _direct(name, found[name], module) if key not in found}
        found.update(fresh)
        waiting += fresh
    keep_sources()
    return found


def _direct(name: str, path: Path, home: str) -> Iterator[tuple[str, Path]]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for level, base, names in source_of(path).imports:
        for module, imported in _resolved(_absolute(level, base, package), names, home):
            for wanted in (module, *_looked_up(module, imported)):
                yield from _expand(wanted, home)


def _looked_up(module: str, imported: str) -> tuple[str, ...]:
    """The folders that an import may reach by name; none for most imports."""
    functions, folders = _LOOKUPS.get(module, (frozenset(), ()))
    return folders if imported in functions or imported in ("", "*") else ()


def _absolute(level: int, base: str, package: str) -> str:
    if not level:
        return base
    parts = package.split(".")[: len(package.split(".")) - level + 1]
    return ".".join([*parts, base] if base else parts)


def _resolved(target: str, names: tuple[str, ...], home: str) -> Iterator[tuple[str, str]]:
    """The modules that an import needs, each with the name taken from it ("" for the whole)."""
    if not names:
        yield target, ""
    lazy = _lazy_homes(target, home) if names else {}
    for name in names:
        if _locate(f"{target}.{name}", home) is not None:
            yield f"{target}.{name}", ""
        else:
            yield (f"{target}.{lazy[name]}" if name in lazy else target), name


def _lazy_homes(package: str, home: str) -> Mapping[str, str]:
    path = _locate(package, home)
    return {} if path is None or path.name != "__init__.py" else source_of(path).lazy


def _expand(name: str, home: str) -> Iterator[tuple[str, Path]]:
    path = _locate(name, home)
    if path is None:
        return
    if path.name != "__init__.py":
        yield name, path
        return
    for file in sorted(path.parent.rglob("*.py")):
        parts = file.relative_to(path.parent).with_suffix("").parts
        yield ".".join([name, *(part for part in parts if part != "__init__")]), file


@functools.cache
def _locate(name: str, home: str) -> Path | None:
    """The source file of a followed module, from what is already imported; None for all others."""
    top, own = name.partition(".")[0], home.partition(".")[0]
    if top not in (PACKAGE, own) and not _beside(top, own):
        return None
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if loaded and loaded.endswith(".py") and Path(loaded).is_file():
        return Path(loaded)
    return next((path for path in _candidates(name, own) if path.is_file()), None)


def _candidates(name: str, own: str) -> Iterator[Path]:
    top, *rest = name.split(".")
    for folder in _folders(top, own):
        stem = folder.joinpath(*rest)
        yield stem / "__init__.py"
        yield stem.with_suffix(".py")


def _folders(top: str, own: str) -> list[Path]:
    """Where the parts of a top-level package are; a file next to the study is its own part."""
    package = getattr(sys.modules.get(top), "__path__", None)
    if package is not None:
        return [Path(entry) for entry in package]
    file = getattr(sys.modules.get(own), "__file__", None)
    return [Path(file).parent / top] if file else []


def _beside(top: str, own: str) -> bool:
    module = sys.modules.get(own)
    file = getattr(module, "__file__", None)
    if file is None or hasattr(module, "__path__") or "site-packages" in Path(file).parts:
        return False
    return (Path(file).parent / f"{top}.py").is_file()


_LARGEST_SEED = 2**63 - 1


@validated
def trial_id(study: Study, trial: Trial) -> str:
    """Hash what a trial does: study, fields, parameters, seed and code.

    Args:
        study: The study that the trial belongs to.
        trial: The trial.

    >>> from mindgap.core import Trial
    >>> from mindgap.studies import CertificateCoverage
    >>> ids = {trial_id(CertificateCoverage(), Trial(parameters={}, seed=n)) for n in (0, 1, 1)}
    >>> len(ids)
    2
    """
    return trial_ids(study, [trial])[0]


def trial_ids(study: Study, trials: list[Trial]) -> list[str]:
    """Hash many trials; the code is read once."""
    head = [study.family, study.name, fields_of(study), version_of(study)]
    return [_digest([*head, parameters_of(trial), seed_of(trial)]) for trial in trials]


def version_of(study: Study) -> str:
    """Hash the code that a study runs, unless the study has been told the hash."""
    if known := str(getattr(study, "code_version", "")):
        return known
    files = reachable(type(study).__module__)
    return _hashed(files) if files else _hashed(files) + _bytecode(type(study))


def fields_of(study: Study) -> str:
    """Write a study's fields as canonical JSON."""
    return canonical(study.parameters, f"field of {study.name}")


def parameters_of(trial: Trial) -> str:
    """Write a trial's parameters as canonical JSON."""
    if not isinstance(trial.parameters, Mapping):
        raise InputError(
            f"The parameters of a trial must be a mapping from names to plain data, got "
            f"{type(trial.parameters).__name__}. Pass Trial(parameters={{'name': value}})."
        )
    return canonical(trial.parameters, "trial parameter")


def seed_of(trial: Trial) -> int:
    """Check that a trial's seed is an integer of 64 bits, and return it."""
    seed: Any = trial.seed
    if (
        isinstance(seed, bool)
        or not hasattr(seed, "__index__")
        or not 0 <= int(seed) <= _LARGEST_SEED
    ):
        raise InputError(
            f"The seed of a trial must be an integer from 0 to 2**63 - 1, got {seed!r}. Choose "
            "another."
        )
    return int(seed)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:32]
