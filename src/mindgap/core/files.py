"""Files written in one piece: a crash leaves the old content, never half of the new."""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from mindgap.core.errors import InputError

Content = Callable[[BinaryIO], object] | str


def write_whole(path: str | os.PathLike[str], content: Content) -> Path:
    """Write text, or whatever ``content(file)`` writes, to a file beside ``path``, then rename it."""
    target = Path(path).expanduser()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise unwritable(target, error) from error
    try:
        _fill(descriptor, content)
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
    return InputError(
        f"{path} must be a file that can be written, got: {error.strerror}. Choose another path."
    )


def _fill(descriptor: int, content: Content) -> None:
    with os.fdopen(descriptor, "wb") as stream:
        if callable(content):
            content(stream)
        else:
            stream.write(content.encode())
        stream.flush()
        os.fsync(stream.fileno())


def _mode(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
