"""Errors for damaged files, in one sentence each."""

import contextlib
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from mindgap.core import DataUnavailableError

# What the readers of gzip, tar, zip, npz and text raise when the bytes are not what they should be.
BROKEN = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
    tarfile.TarError,
    NotImplementedError,
)


def damaged(path: Path, expected: str, found: str) -> DataUnavailableError:
    """Make the error for a file that exists but cannot be used.

    >>> print(damaged(Path("x.gz"), "a whole gzip file", "the first 10 bytes only"))
    x.gz must be a whole gzip file, got the first 10 bytes only. Delete it to fetch it again, or replace it.
    """
    return DataUnavailableError(
        f"{path} must be {expected}, got {found}. Delete it to fetch it again, or replace it."
    )


@contextlib.contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Turn whatever a reader raises on broken bytes into one sentence that names the file."""
    try:
        yield
    except DataUnavailableError:
        raise
    except BROKEN as error:
        raise damaged(path, expected, _reason(error)) from None


def _reason(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "a file that ends too early"
    first = str(error).strip().split("\n")[0].rstrip(".")
    return f"a damaged file ({first})" if first else "a damaged file"
