"""Fetch one file over https: resumable, checked, atomic."""

import contextlib
import hashlib
import http.client
import os
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindgap.core import DataUnavailableError, Progress

CHUNK = 1 << 20
ATTEMPTS = 3
TIMEOUT = 30.0  # seconds without a byte
LOCAL = ("127.0.0.1", "localhost")
BROKEN_CONNECTION = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)


@dataclass(frozen=True)
class Remote:
    """Where an official file is, and what is known about it.

    Fields:
        url: https address.
        sha256: checksum, or None where none is known for sure.
        md5: checksum that the file's own host publishes, where it publishes no better one.
        name: of the file, where the address does not end with it.
    """

    url: str
    sha256: str | None = None
    md5: str | None = None
    name: str = ""

    @property
    def file_name(self) -> str:
        """Name under which the file is kept."""
        return self.name or self.url.rsplit("/", 1)[-1]


def download(remote: Remote, target: Path) -> Path:
    """Fetch ``remote`` to ``target``, which appears only when it is complete and its checksum is right.

    Bytes go to ``target.part`` first; a later call continues there. Processes that want the same
    file take turns.
    """
    with writing(target), taking_turns(target):
        if not target.exists():
            part = target.with_name(target.name + ".part")
            _fetch(remote, part, target)
            _verify(remote, part)
            part.replace(target)
    return target


def _fetch(remote: Remote, part: Path, target: Path) -> None:
    """Try a few times, each time continuing where the last one stopped."""
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            if _continue(remote.url, part):
                return
            reason = "a connection that closed early"
        except urllib.error.HTTPError as error:
            raise _unreachable(remote, target, f"the answer {error.code} {error.reason}") from None
        except BROKEN_CONNECTION as error:
            reason = f"no connection ({getattr(error, 'reason', error)})"
    raise _unreachable(remote, target, reason)


def _continue(url: str, part: Path) -> bool:
    """Append what is missing to ``part``; say whether it is now complete."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "mindgap", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with _open(url, headers) as response:
            return _save(response, part, have)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
            raise
        return _nothing_left(error, part, have)


def _save(response: Any, part: Path, have: int) -> bool:
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        have = 0  # the server sends the whole file
    elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        part.unlink()
        return False
    length = response.headers.get("Content-Length")
    total = have + int(length) if length else None
    with part.open("ab" if have else "wb") as file, _progress(part, have, total) as bar:
        while chunk := response.read(CHUNK):
            file.write(chunk)
            bar.advance(by=len(chunk))
        file.flush()
        os.fsync(file.fileno())
        return total is None or file.tell() == total


def _nothing_left(error: urllib.error.HTTPError, part: Path, have: int) -> bool:
    """Answer 416: ``part`` is complete, or longer than the file and has to go."""
    if error.headers.get("Content-Range") == f"bytes */{have}":
        return True
    part.unlink()
    return False


def _open(url: str, headers: dict[str, str]) -> Any:
    _check_address(url)
    response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)  # noqa: S310
    _check_address(response.url)  # a redirection must not leave https
    return response


def _check_address(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOCAL):
        raise DataUnavailableError(
            f"Data must come over https, got {url}. Place the file by hand if you trust it."
        )


def _verify(remote: Remote, part: Path) -> None:
    """Compare checksums where one is known; a wrong file is deleted, so that the next call starts afresh."""
    for method, expected in (("sha256", remote.sha256), ("md5", remote.md5)):
        if expected is not None and (found := file_digest(part, method)) != expected:
            part.unlink()
            raise DataUnavailableError(
                f"{remote.url} must have the {method} checksum {expected}, got {found}, and was "
                "thrown away. "
                "Try again, and if it happens again fetch the file from another place."
            )


def file_digest(path: Path, method: str = "sha256") -> str:
    """Checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.new(method, usedforsecurity=False)
        ).hexdigest()


def _unreachable(remote: Remote, target: Path, reason: str) -> DataUnavailableError:
    return DataUnavailableError(
        f"{target.name} must be downloaded from {remote.url}, got {reason}. "
        f"Connect to the internet and try again, or place the file at {target} by hand."
    )


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Make the folder of ``target``; say it in a sentence when it may not be written or the disk is full."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except DataUnavailableError:
        raise
    except OSError as error:
        raise DataUnavailableError(
            f"{target} must be writable to keep the download, got {error.strerror or error}. "
            "Set MINDGAP_DATA or XDG_CACHE_HOME to a folder with room where you may write."
        ) from None


@contextlib.contextmanager
def taking_turns(target: Path) -> Iterator[None]:
    """Let one process at a time make ``target``, where the system can lock files."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with target.with_name(target.name + ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _progress(part: Path, have: int, total: int | None) -> Progress:
    """Bar with the time left on a terminal, nothing elsewhere."""
    return Progress(
        total, done=have, unit="B", title=part.name.removesuffix(".part"), shown=sys.stderr.isatty()
    )
