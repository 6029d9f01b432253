"""Where files are looked for, and archives that are unpacked."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from mindgap.core.errors import DataUnavailableError
from mindgap.data.download import Remote
from mindgap.data.store import cache_folder, find, folders, obtain, obtain_from_archive, unpack


def tar_of(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def zip_of(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def test_folders(tmp_path, monkeypatch):
    assert folders() == (tmp_path / "cache" / "mindgap",)
    monkeypatch.setenv("MINDGAP_DATA", str(tmp_path / "mine"))
    assert folders() == (tmp_path / "mine", tmp_path / "cache" / "mindgap")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "mindgap"


def test_the_users_folder_comes_first(tmp_path, monkeypatch, cache):
    for folder in (tmp_path / "mine", cache):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    monkeypatch.setenv("MINDGAP_DATA", str(tmp_path / "mine"))
    assert find("file") == tmp_path / "mine" / "file"
    (tmp_path / "mine" / "file").unlink()
    assert find("file") == cache / "file"
    assert find("other") is None


def test_obtain_downloads_into_the_cache(host, cache, tmp_path, monkeypatch):
    monkeypatch.setenv("MINDGAP_DATA", str(tmp_path / "mine"))
    host.files["file"] = b"content"
    assert obtain("set/file", Remote(host.url + "file")) == cache / "set" / "file"
    assert (cache / "set" / "file").read_bytes() == b"content"


def test_obtain_without_address_tells_how(cache):
    with pytest.raises(DataUnavailableError) as caught:
        obtain("set/file", None, "Ask the authors.")
    assert str(caught.value) == f"set/file must be in {cache}, got no such file. Ask the authors."


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_obtain_from_archive(host, cache, pack):
    host.files["set.archive"] = pack({"set/one": b"1", "set/deep/two": b"2"})
    paths = obtain_from_archive(
        ["in/set/one", "in/set/deep/two"], Remote(host.url + "set.archive"), "in"
    )
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]
    assert not (cache / "in" / "set.archive").exists()
    obtain_from_archive(["in/set/one", "in/set/deep/two"], Remote(host.url + "set.archive"), "in")
    assert len(host.asked) == 1


def test_an_archive_placed_by_hand_is_used_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("MINDGAP_DATA", str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "set.tar.gz").write_bytes(tar_of({"set/one": b"1"}))
    remote = Remote("https://example.org/x", name="set.tar.gz")
    assert obtain_from_archive(["set/one"], remote)[0].read_bytes() == b"1"
    assert (tmp_path / "mine" / "set.tar.gz").exists()


def test_an_archive_without_the_file(host):
    host.files["set.zip"] = zip_of({"other": b""})
    with pytest.raises(
        DataUnavailableError, match=r"set/one must be in .*, got no such file\. Take it from"
    ):
        obtain_from_archive(["set/one"], Remote(host.url + "set.zip"))


def test_a_cache_that_cannot_be_made(cache):
    cache.parent.write_text("a file where a folder should be")
    with pytest.raises(
        DataUnavailableError, match=r"must be writable .* Set MINDGAP_DATA or XDG_CACHE_HOME"
    ):
        obtain_from_archive(["set/one"], Remote("https://example.org/set.zip"))


@pytest.mark.parametrize("pack", [tar_of, zip_of])
@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil"])
def test_nothing_is_written_outside(tmp_path, pack, name):
    archive, target = tmp_path / "archive", tmp_path / "a" / "b"
    archive.write_bytes(pack({name: b"evil"}))
    if pack is tar_of and name.startswith("/"):  # tar strips the slash, and the file stays inside
        unpack(archive, target)
    else:
        with pytest.raises(DataUnavailableError, match="archive must"):
            unpack(archive, target)
    outside = [path for path in tmp_path.rglob("evil") if target not in path.parents]
    assert not outside
    assert not Path("/tmp/evil").exists()


def test_links_do_not_leave(tmp_path):
    archive = tmp_path / "archive.tar"
    with tarfile.open(archive, "w") as packed:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed.addfile(link)
    with pytest.raises(DataUnavailableError, match="must be a whole tar or zip archive"):
        unpack(archive, tmp_path / "target")


@pytest.mark.parametrize(
    "content",
    [b"", b"not an archive", tar_of({"a": b"x" * 10_000})[:60]],
    ids=["empty", "text", "cut"],
)
def test_broken_archives(tmp_path, content):
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    with pytest.raises(
        DataUnavailableError, match="archive must be a whole tar or zip archive, got a"
    ):
        unpack(archive, tmp_path / "target")
    assert not list((tmp_path / "target").iterdir())
