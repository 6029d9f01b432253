"""Find data files: in the user's folder, then in the cache, then on the internet."""

import os
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from mindgap.core import DataUnavailableError, expanded
from mindgap.data.damage import reading
from mindgap.data.download import Remote, download, taking_turns, writing


def cache_folder() -> Path:
    """Return the folder for downloads: ``$XDG_CACHE_HOME/mindgap``, or ``~/.cache/mindgap``."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "mindgap"


def folders() -> tuple[Path, ...]:
    """List the folders that are searched: ``$MINDGAP_DATA`` if it is set, then the cache."""
    chosen = os.environ.get("MINDGAP_DATA")
    return (expanded(chosen), cache_folder()) if chosen else (cache_folder(),)


def find(relative: str) -> Path | None:
    """Return the path of a file that is on this machine, or None."""
    return next((folder / relative for folder in folders() if (folder / relative).is_file()), None)


def obtain(relative: str, remote: Remote | None = None, advice: str = "") -> Path:
    """Return the path of a file, downloading it into the cache if it is not on this machine.

    Args:
        relative: Path below the data folder.
        remote: Where to download it; None if it must be placed by hand.
        advice: What to do if it is missing and cannot be downloaded.
    """
    found = find(relative)
    if found is not None:
        return found
    if remote is None:
        places = " or ".join(str(folder) for folder in folders())
        raise DataUnavailableError(f"{relative} must be in {places}, got no such file. {advice}")
    return download(remote, cache_folder() / relative)


def obtain_from_archive(relatives: Iterable[str], archive: Remote, folder: str = "") -> list[Path]:
    """Return the paths of files, downloading and unpacking their archive if one is missing.

    Args:
        relatives: Paths below the data folder.
        archive: The archive that holds them.
        folder: Folder of the cache in which it is unpacked.
    """
    wanted = list(relatives)
    if not _all_here(wanted):
        target = cache_folder() / folder
        mark = target / f"{archive.file_name}.unpack"
        with writing(mark), taking_turns(mark):
            if not _all_here(wanted):
                _fetch_and_unpack(archive, folder, target)
    return [obtain(relative, None, f"Take it from {archive.url} by hand.") for relative in wanted]


def _all_here(relatives: Iterable[str]) -> bool:
    return all(find(relative) is not None for relative in relatives)


def _fetch_and_unpack(archive: Remote, folder: str, target: Path) -> None:
    """Unpack the archive, and delete it unless it was placed by hand."""
    placed = find(f"{folder}/{archive.file_name}" if folder else archive.file_name)
    if placed is not None:
        return unpack(placed, target)
    fetched = download(archive, target / archive.file_name)
    unpack(fetched, target)
    return fetched.unlink()


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar or zip archive; files appear whole, and none outside ``target``."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".unpack-") as scratch:
        with reading(archive, "a whole tar or zip archive"):
            _extract(archive, Path(scratch))
        for file in sorted(Path(scratch).rglob("*")):
            if file.is_file() and not file.is_symlink():
                _move(file, target / file.relative_to(scratch))


def _extract(archive: Path, scratch: Path) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            _check_names(zipped.namelist(), archive)
            zipped.extractall(scratch)  # noqa: S202 (names are checked above)
    else:
        with tarfile.open(archive) as tarred:
            tarred.extractall(scratch, filter="data")


def _check_names(names: Iterable[str], archive: Path) -> None:
    for name in names:
        if (
            name.startswith(("/", "\\"))
            or ".." in Path(name.replace("\\", "/")).parts
            or ":" in name
        ):
            raise DataUnavailableError(
                f"{archive} must hold only files inside it, got {name!r}. Delete it; it is not "
                "the official archive."
            )


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)
