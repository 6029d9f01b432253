"""Files: written whole or not at all, and where the runs are kept by default."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from mindgap.core.errors import InputError


def default_store() -> Path:
    """``$MINDGAP_RUNS``, or ``mindgap/runs.sqlite`` in ``$XDG_CACHE_HOME`` (``~/.cache`` if unset)."""
    named = os.environ.get("MINDGAP_RUNS")
    if named:
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "mindgap" / "runs.sqlite"


def write_whole(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file so that a reader, or a crash, never sees half of it."""
    target = Path(path).expanduser()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise unwritable(target, error) from error
    try:
        _fill(descriptor, text)
        Path(name).chmod(_mode(target))
        Path(name).replace(target)
    except OSError as error:
        raise unwritable(target, error) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
    return target


def unwritable(path: Path, error: OSError) -> InputError:
    """Say that a path cannot be written."""
    return InputError(f"{path} must be a file that can be written, got: {error.strerror}. Choose another path.")


def _fill(descriptor: int, text: str) -> None:
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _mode(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
