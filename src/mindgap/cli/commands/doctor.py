"""Check the installation: versions, threads, extras, data sets and plug-ins.

  mindgap doctor

The exit code is 1 if something is wrong.
"""

import argparse
import os
import platform
import re
import warnings
from collections.abc import Iterator
from importlib import metadata
from typing import Any, NamedTuple

from mindgap._version import __version__
from mindgap.cli.output import write, write_json


class Requirement(NamedTuple):
    """A package that mindgap depends on, from the metadata of the installation."""

    name: str
    minimum: str
    extra: str  # empty for a package that is always needed


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Look at everything and say what is wrong."""
    facts, problems = diagnose()
    if arguments.json:
        write_json({**facts, "problems": problems})
    else:
        write("\n".join(f"{name:12} {_shown(value)}" for name, value in facts.items()))
        write("\n".join(f"problem      {text}" for text in problems) or "all is well")
    return 1 if problems else 0


def diagnose() -> tuple[dict[str, Any], list[str]]:
    """Collect facts, and sentences about what is wrong."""
    import torch

    from mindgap.data.store import folders

    specs, problems = _specs()
    needed = list(requirements())
    facts: dict[str, Any] = {
        "mindgap": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.is_available(),
        "specs": specs,
        "extras": _extras(needed),
        "data": [str(folder) for folder in folders()],
    }
    problems += [
        f"the folder {folder} cannot be read"
        for folder in folders()
        if folder.exists() and not os.access(folder, os.R_OK)
    ]
    return facts, [*problems, *_outdated(needed)]


def requirements() -> Iterator[Requirement]:
    """Read what the installed package depends on, its extras included.

    >>> "search" in {one.extra for one in requirements() if one.name == "optuna"}
    True
    """
    for line in metadata.requires("mindgap") or ():
        need, _, marker = line.partition(";")
        name = re.match(r"[\w.-]+", need)
        least, extra = (
            re.search(r">=\s*([\d.]+)", need),
            re.search(r"extra == ['\"](.+?)['\"]", marker),
        )
        if name and name[0] != "mindgap":
            yield Requirement(name[0], least[1] if least else "0", extra[1] if extra else "")


def _extras(needed: list[Requirement]) -> dict[str, bool]:
    """Whether all packages of an extra are installed; extras for developers are left out."""
    wanted: dict[str, list[str]] = {}
    for one in needed:
        if one.extra and one.extra not in ("dev", "docs", "test"):
            wanted.setdefault(one.extra, []).append(one.name)
    return {extra: all(map(_version, names)) for extra, names in sorted(wanted.items())}


def _outdated(needed: list[Requirement]) -> list[str]:
    found = {one: _version(one.name) for one in needed if not one.extra}
    return [
        f"{one.name} must be at least {one.minimum}, got {version or 'none'}: install it"
        for one, version in found.items()
        if not version or _numbers(version) < _numbers(one.minimum)
    ]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]


def _specs() -> tuple[dict[str, int], list[str]]:
    from mindgap.core import FAMILIES, catalog
    from mindgap.core.registry import load_plugins

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a plug-in that does not load is a problem below
        counts = {family: len(catalog(family)) for family in FAMILIES}
    return counts, list(load_plugins())


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
