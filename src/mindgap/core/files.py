"""Write files in one piece: a crash leaves the old content, never half of the new.

Only a regular file is replaced. Links are followed; devices and FIFOs are written into.
"""

import contextlib
import errno
import io
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from mindgap.core.errors import InputError

if sys.platform != "win32":
    import fcntl

Content = Callable[[BinaryIO], object] | str
_SUFFIX = ".mindgap-part"  # tells our temporary files from a user's files
_LONGEST = 60  # characters of a name that its temporary file repeats; file systems allow 255 bytes
_DESCRIPTORS = ("/dev/std", "/dev/fd/", "/proc/")  # paths that name a file some process has open


def write_whole(path: str | os.PathLike[str], content: Content) -> Path:
    """Write a file in one piece: to a temporary file next to it, which is then renamed.

    A link stays a link: the file that it points to is written. Devices and FIFOs are written into.
    A read-only file is refused. The temporary file of a writer that was killed is removed by the
    next writer of the same path.

    Args:
        path: Where to write; missing folders are made.
        content: The text, or a function that writes to an open binary file.

    Returns:
        The path, with ``~`` expanded.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "new" / "note.txt", "hello").read_text()
    'hello'
    """
    target = expanded(path)
    with _told(target):
        if _is_replaceable(target):
            _replace(Path(os.path.realpath(target)), content)
        else:
            _write_into(target, content)
    return target


def write_as(path: str | os.PathLike[str], makers: Mapping[str, Callable[[], Content]]) -> Path:
    """Write a file in the form that its name asks for.

    Args:
        path: The file to write.
        makers: What makes the content, by ending. ``.htm`` is ``.html``.

    >>> write_as("table.xls", {".csv": lambda: "a,b", ".json": lambda: "[]"})
    Traceback (most recent call last):
    mindgap.core.errors.InputError: The path must end in .csv or .json, got 'table.xls'. Rename it.
    """
    ending = Path(path).suffix.lower()
    make = makers.get(".html" if ending == ".htm" else ending)
    if make is None:
        *others, last = makers
        known = f"{', '.join(others)} or {last}" if others else last
        raise InputError(f"The path must end in {known}, got {os.fspath(path)!r}. Rename it.")
    return write_whole(path, make())


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that :func:`write_whole` could not write, without a trace on the disk.

    Unlike :func:`write_whole`, it also refuses a path in a folder that does not exist.

    Args:
        path: The file to be written later.

    >>> check_writable("no/such/folder/file.txt")
    Traceback (most recent call last):
    mindgap.core.errors.InputError: no/such/folder/file.txt must be a file that can be written, \
got: No such file or directory. Choose another path.
    """
    target = expanded(path)
    with _told(target):
        if _is_replaceable(target):
            tempfile.TemporaryFile(dir=Path(os.path.realpath(target)).parent).close()


def expanded(path: str | os.PathLike[str]) -> Path:
    """Expand ``~`` and ``~user``; an unknown user or a null character becomes one sentence.

    >>> expanded("~/data").is_absolute()
    True
    """
    if "\0" in str(path):
        raise InputError(f"{path!r} must be a path, got: a null character in it. Remove it.")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(
            f"{path} must begin with a known home folder, got: {error} Write the path in full, or "
            f"./{path} for a file of that name."
        ) from error


def unwritable(path: Path, error: OSError) -> InputError:
    """Make the error for a path that cannot be written."""
    return InputError(
        f"{path} must be a file that can be written, got: {error.strerror}. Choose another path."
    )


@contextlib.contextmanager
def _told(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(target, error) from error


def _is_replaceable(target: Path) -> bool:
    """Whether to rename a new file over the target; refuse what must not be written at all."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a folder")
    # Root may write into every file, so the permission bits are asked too.
    if not mode & 0o222 or not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "a read-only file")
    return stat.S_ISREG(mode) and not str(target).startswith(_DESCRIPTORS)


def _write_into(target: Path, content: Content) -> None:
    whole = io.BytesIO()  # a FIFO cannot seek, and must not get half of a content that fails
    _fill(whole, content)
    with target.open("wb") as stream:
        stream.write(whole.getbuffer())


def _replace(target: Path, content: Content) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    stream, name = _temporary(target)
    try:
        with stream:
            _fill(stream, content)
            stream.flush()
            os.fsync(stream.fileno())
            name.chmod(_mode(target))
            if sys.platform == "win32":
                stream.close()  # an open file cannot be renamed there
            name.replace(target)  # elsewhere the lock is held: nobody takes it for a leftover
    finally:
        name.unlink(missing_ok=True)


def _fill(stream: BinaryIO, content: Content) -> None:
    if callable(content):
        content(stream)
    else:
        stream.write(content.encode())


def _prefix(target: Path) -> str:
    return f".{target.name[:_LONGEST]}."


def _temporary(target: Path) -> tuple[BinaryIO, Path]:
    """Open a new locked file; the lock says that its writer is alive."""
    while True:
        descriptor, name = tempfile.mkstemp(_SUFFIX, _prefix(target), target.parent)
        stream = os.fdopen(descriptor, "wb")
        with contextlib.suppress(OSError):  # a file system without locks also keeps its leftovers
            _lock(stream, wait=True)
        if Path(name).exists():
            return stream, Path(name)
        stream.close()  # another writer took it for a leftover before it was locked


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary files of writers that were killed."""
    for path in target.parent.iterdir():
        if path.name.startswith(_prefix(target)) and path.name.endswith(_SUFFIX):
            with contextlib.suppress(OSError), path.open("rb") as stream:
                _lock(stream, wait=False)
                path.unlink()


def _lock(stream: BinaryIO, *, wait: bool) -> None:
    if sys.platform == "win32":
        return  # an open file cannot be removed there, which protects it too
    fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _mode(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)  # there is no way to read it without setting it
    os.umask(mask)
    return 0o666 & ~mask
