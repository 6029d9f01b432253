"""Write what is derived from the code: stubs of lazy packages, the "where" column of FEATURES.md.

Run ``make generate`` after adding, moving or renaming a file; a test compares what is there with
what this writes.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
HEADER = "# Written by `make generate`; do not edit."


def lazy_packages() -> list[str]:
    """Packages whose ``__init__`` calls ``lazy``."""
    found = [
        path
        for path in SOURCE.rglob("__init__.py")
        if re.search(r"^lazy\(", path.read_text(), re.M)
    ]
    return sorted(".".join(path.parent.relative_to(SOURCE).parts) for path in found)


def stub(package: str) -> str:
    """The text of a package's ``__init__.pyi``, so that type checkers and editors see its lazy names."""
    module = importlib.import_module(package)
    lines = [_stub_line(package, name, getattr(module, name)) for name in module.__all__]
    extra = (
        ["from mindgap._version import __version__ as __version__"] if package == "mindgap" else []
    )
    return "\n".join([HEADER, *sorted([*extra, *lines]), "", "__all__: list[str]", ""])


def _stub_line(package: str, name: str, value: object) -> str:
    if inspect.ismodule(value):
        return f"from {package} import {name} as {name}"
    home = getattr(value, "__module__", "")
    if not home.startswith(package + "."):  # a constant, which does not know where it was defined
        loaded = sorted(key for key in sys.modules if key.startswith(package + "."))
        home = next(key for key in loaded if name in vars(sys.modules[key]))
    return f"from {home} import {name} as {name}"


def generated() -> dict[Path, str]:
    """Every generated file and its text."""
    return {
        SOURCE / package.replace(".", "/") / "__init__.pyi": stub(package)
        for package in lazy_packages()
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
