"""Check the installation: versions, threads, extras, data sets, plug-ins. Exit code 1 if something is wrong."""

import argparse
import importlib.util
import os
import platform
import warnings
from typing import Any

from mindgap._version import __version__
from mindgap.cli.output import write, write_json

EXTRAS = {
    "report": ("plotly", "latex2mathml"),
    "dashboard": ("starlette", "uvicorn"),
    "neighbors": ("faiss", "scipy"),
    "search": ("optuna",),
    "dask": ("distributed",),
    "ray": ("ray",),
    "lightning": ("lightning",),
    "hf": ("transformers",),
    "skorch": ("skorch",),
    "speed": ("numba",),
}


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
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
    """Facts, and sentences about what is wrong."""
    import torch

    from mindgap.data.store import folders

    specs, problems = _specs()
    facts: dict[str, Any] = {
        "mindgap": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.is_available(),
        "specs": specs,
        "extras": {name: all(map(_installed, packages)) for name, packages in EXTRAS.items()},
        "data": [str(folder) for folder in folders()],
    }
    problems += [
        f"the folder {folder} cannot be read"
        for folder in folders()
        if folder.exists() and not os.access(folder, os.R_OK)
    ]
    if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 6):
        problems.append(f"torch must be at least 2.6, got {torch.__version__}: upgrade it")
    return facts, problems


def _specs() -> tuple[dict[str, int], list[str]]:
    from mindgap.core import FAMILIES, catalog

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        counts = {family: len(catalog(family)) for family in FAMILIES}
    return counts, [str(warning.message) for warning in caught if "plug-in" in str(warning.message)]


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
