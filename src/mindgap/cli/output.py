"""Writing to the terminal and to files, and refusing paths before the work is done."""

import json
import sys
from pathlib import Path
from typing import Any

from mindgap.core import InputError, write_whole


def write(text: str) -> None:
    """Write a block of text to stdout."""
    sys.stdout.write(text.rstrip("\n") + "\n")


def write_json(data: Any) -> None:
    """Write strict JSON to stdout."""
    write(json.dumps(data, indent=2, allow_nan=False))


def note(text: str) -> None:
    """Write a remark to stderr, so that stdout holds the output alone."""
    sys.stderr.write(text.rstrip("\n") + "\n")


def save_weights(model: Any, path: str, what: str) -> None:
    """Write a state dict whole or not at all, and say where it is."""
    import torch

    write_whole(path, lambda file: torch.save(model.state_dict(), file))
    note(f"{what} at {Path(path).resolve()}")


def check_page(path: str | None) -> None:
    """Refuse the path of a page that cannot be written or does not end in .html."""
    check_writable(path)
    if path and Path(path).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"The page's path must end in .html, got {path!r}. Rename it.")


def check_writable(*paths: str | None) -> None:
    """Refuse paths that cannot be written before the work is done, not after."""
    for path in paths:
        if path is not None:
            _check(path)


def _check(path: str) -> None:
    folder = Path(path).resolve().parent
    if Path(path).is_dir() or not folder.is_dir():
        missing = f"a path in a folder that does not exist ({folder})"
        what = "a folder" if Path(path).is_dir() else missing
        raise InputError(
            f"The output must go to a file that can be written, got {what}: {path!r}. Choose "
            "another path."
        )
    probe = folder / f".{Path(path).name}.probe"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"The output must go to a writable path, got {path!r} ({error.strerror}). Choose "
            "another path."
        ) from error
