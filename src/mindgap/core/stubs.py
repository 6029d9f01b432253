"""Writes the ``__init__.pyi`` of every family, so that mypy and editors see the names that are found at run time.

Run ``python -m mindgap.core.stubs`` after adding a file.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from mindgap.core.registry import ROOMS


def stub(room: str) -> str:
    """The text of a family's stub file."""
    package = importlib.import_module(room)
    lines = [f"from {getattr(package, name).__module__} import {name} as {name}" for name in package.__all__]
    return "\n".join(["# Written by mindgap.core.stubs; do not edit.", *sorted(lines), "", "__all__: list[str]", ""])


def main() -> None:
    """Write all of them beside their packages."""
    for room in ROOMS.values():
        folder = Path(next(iter(importlib.import_module(room).__path__)))
        (folder / "__init__.pyi").write_text(stub(room), encoding="utf-8")


if __name__ == "__main__":
    main()
