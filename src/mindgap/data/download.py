"""Download one file over https: resumable, checked, atomic."""

import contextlib
import hashlib
import http.client
import os
import re
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
    """Where an official file is, and its checksum.

    Args:
        url: Address, with https.
        sha256: Checksum; None skips the comparison, for files of unknown content.
        name: Name of the file, where the address does not end with it.
    """

    url: str
    sha256: str | None = None
    name: str = ""

    @property
    def file_name(self) -> str:
        """Name under which the file is kept."""
        return self.name or self.url.rsplit("/", 1)[-1]


def download(remote: Remote, target: Path) -> Path:
    """Download a file, which appears only when it is complete and its checksum is right.

    Bytes go to a ``.part`` file first, and a later call resumes there. Processes that want the same
    file take turns.

    Args:
        remote: The file to download.
        target: Where to put it.
    """
    with writing(target), taking_turns(target):
        if not target.exists():
            part = target.with_name(target.name + ".part")
            _fetch(remote, part, target)
            _verify(remote, part)
            part.replace(target)
    return target


def _fetch(remote: Remote, part: Path, target: Path) -> None:
    """Try a few times, each time resuming where the last one stopped."""
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            if _continue(remote.url, part):
                return
            reason = "a connection that closed early"
        except urllib.error.HTTPError as error:
            reason = f"the answer {error.code} {error.reason:.200}"
            raise _unreachable(remote, target, reason) from None
        except BROKEN_CONNECTION as error:
            reason = f"no connection ({getattr(error, 'reason', error)!s:.200})"
        except ValueError as error:  # a header that is no number, an address that is none
            reason = f"an invalid answer ({error!s:.200})"
            raise _unreachable(remote, target, reason) from None
    raise _unreachable(remote, target, reason)


def _continue(url: str, part: Path) -> bool:
    """Append what is missing to ``part``, and return whether it is now complete."""
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
    length = _length(response.headers.get("Content-Length"))
    total = None if length is None else have + length
    with part.open("ab" if have else "wb") as file, _progress(part, have, total) as bar:
        while chunk := response.read(CHUNK):
            file.write(chunk)
            bar.advance(by=len(chunk))
        file.flush()
        os.fsync(file.fileno())
        return total is None or file.tell() == total


def _length(header: str | None) -> int | None:
    if header is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", header):
        raise ValueError(f"Content-Length {header!r}")
    return int(header)


def _nothing_left(error: urllib.error.HTTPError, part: Path, have: int) -> bool:
    """Handle the answer 416: ``part`` is complete, or longer than the file and deleted."""
    if error.headers.get("Content-Range") == f"bytes */{have}":
        return True
    part.unlink()
    return False


def _open(url: str, headers: dict[str, str]) -> Any:
    _check_address(url, local=True)
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  (checked above)
    return urllib.request.build_opener(_Redirections).open(request, timeout=TIMEOUT)


class _Redirections(urllib.request.HTTPRedirectHandler):
    """Checks the address of every hop before it is asked, not only that of the last one."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        _check_address(newurl, local=req.host.partition(":")[0] in LOCAL)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_address(url: str, *, local: bool) -> None:
    """Refuse an address without https; ``local`` allows plain http on this machine."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and not (
        local and parts.scheme == "http" and parts.hostname in LOCAL
    ):
        raise DataUnavailableError(
            f"Data must come over https, got {url:.200}. Place the file by hand if you trust it."
        )


def _verify(remote: Remote, part: Path) -> None:
    """Compare checksums, and delete a wrong file so that the next call starts from scratch."""
    if remote.sha256 is not None and (found := file_digest(part)) != remote.sha256:
        part.unlink()
        raise DataUnavailableError(
            f"{remote.url} must have the sha256 checksum {remote.sha256}, got {found}, and was "
            "deleted. Try again, and if it fails again get the file from another source."
        )


def file_digest(path: Path) -> str:
    """Compute the SHA-256 checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unreachable(remote: Remote, target: Path, reason: str) -> DataUnavailableError:
    return DataUnavailableError(
        f"{target.name} must be downloaded from {remote.url}, got {reason}. "
        f"Connect to the internet and try again, or place the file at {target} by hand."
    )


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Make the folder of ``target``, and turn errors of writing into one sentence."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except DataUnavailableError:
        raise
    except OSError as error:
        raise DataUnavailableError(
            f"{target} must be writable to keep the download, got {error.strerror or error}. "
            "Set MINDGAP_DATA or XDG_CACHE_HOME to a writable folder on a disk with free space."
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
    """Make a progress bar on a terminal, and nothing elsewhere."""
    return Progress(
        total, done=have, unit="B", title=part.name.removesuffix(".part"), shown=sys.stderr.isatty()
    )
