"""Files written in one piece: a crash leaves the old content, never half of the new."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from mindgap.core.errors import InputError


def write_atomically(path: str | Path, fill: Callable[[BinaryIO], object] | str | bytes) -> None:
    """Write text, bytes or whatever ``fill(file)`` writes to a file beside ``path``, then rename it."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise InputError(
            f"The file must go to a writable path, got {str(path)!r} ({error.strerror}). Choose another path."
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            _fill(file, fill)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())  # mkstemp makes files that only their owner reads
        Path(name).replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        if isinstance(error, IsADirectoryError):
            raise InputError(f"The file must go to a file path, got the folder {str(path)!r}. Name a file.") from error
        raise


def _fill(file: BinaryIO, fill: Callable[[BinaryIO], object] | str | bytes) -> None:
    if callable(fill):
        fill(file)
    else:
        file.write(fill.encode() if isinstance(fill, str) else fill)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
