"""Write what is derived from the code: stubs of lazy packages, and a column of FEATURES.md.

Run ``make generate`` after adding, moving or renaming a file. A test compares what is there with
what this writes.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

from mindgap.core import catalog, functions

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
HEADER = "# Written by `make generate`; do not edit."


def lazy_packages() -> list[str]:
    """Packages whose ``__init__`` calls ``lazy``."""
    found = [
        path
        for path in SOURCE.rglob("__init__.py")
        if re.search(r"^lazy\(", path.read_text(encoding="utf-8"), re.M)
    ]
    return sorted(".".join(path.parent.relative_to(SOURCE).parts) for path in found)


def stub(package: str) -> str:
    """The text of a package's ``__init__.pyi``, for type checkers and editors."""
    module = importlib.import_module(package)
    lines = [_stub_line(package, name, getattr(module, name)) for name in module.__all__]
    extra = ["from mindgap._version import __version__ as __version__"]
    lines += extra if package == "mindgap" else []
    return "\n".join([HEADER, *sorted(lines), "", "__all__: list[str]", ""])


def _stub_line(package: str, name: str, value: object) -> str:
    if inspect.ismodule(value):
        return f"from {package} import {name} as {name}"
    home = getattr(value, "__module__", "")
    if not home.startswith(package + "."):  # a constant does not know where it was defined
        loaded = sorted(key for key in sys.modules if key.startswith(package + "."))
        home = next(key for key in loaded if _assigns(sys.modules[key], name))
    return f"from {home} import {name} as {name}"


def _assigns(module: ModuleType, name: str) -> bool:
    """Tell the module that defines a constant from those that import it."""
    text = Path(module.__file__ or "").read_text(encoding="utf-8")
    return re.search(rf"^{name}\b[^=\n]*= ", text, re.M) is not None


def homes() -> dict[str, list[str]]:
    """The files of every method: those of its specs and of the functions that implement it."""
    found: dict[str, set[str]] = {}
    for entry in [*catalog().values(), *functions().values()]:
        module = getattr(entry, "call", entry).__module__
        for method in entry.method:
            found.setdefault(method, set()).add(module.removeprefix("mindgap.").replace(".", "/"))
    return {method: sorted(paths) for method, paths in found.items()}


def where(paths: list[str]) -> str:
    """One cell of the table: files by folder.

    >>> where(["ops/variance/local", "studies/vbsw/table1", "studies/vbsw/table2"])
    '`ops/variance/local.py`, `studies/vbsw/{table1,table2}.py`'
    """
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    cells = [
        f"`{folder}/{names[0] if len(names) == 1 else '{' + ','.join(names) + '}'}.py`"
        for folder, names in folders.items()
    ]
    return ", ".join(cells) or "not yet"


def features() -> str:
    """FEATURES.md with its column "where" filled in."""
    known = homes()
    row = re.compile(r"^(\| ([VTPKES]\d+) \| [^|]* \|)[^|]*\|", re.M)
    text = (ROOT / "FEATURES.md").read_text(encoding="utf-8")
    return row.sub(lambda m: f"{m[1]} {where(known.get(m[2], []))} |", text)


def generated() -> dict[Path, str]:
    """Every generated file and its text."""
    stubs = {
        SOURCE / package.replace(".", "/") / "__init__.pyi": stub(package)
        for package in lazy_packages()
    }
    return {**stubs, ROOT / "FEATURES.md": features()}


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
