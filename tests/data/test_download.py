"""Downloads that break, resume, and are checked."""

import ast
import hashlib
import socket
import threading
import urllib.request
from pathlib import Path

import pytest

import mindgap.data
from mindgap.core.errors import DataUnavailableError
from mindgap.data.download import Remote, _Redirections, download, file_digest
from mindgap.data.uci_tables import TABLES, _checksums

CONTENT = bytes(range(256)) * 5000


def remote(host, **more):
    host.files["some/file.bin"] = CONTENT
    return Remote(host.url + "some/file.bin", **more)


SHA = hashlib.sha256(CONTENT).hexdigest()


def test_fetches_checks_and_leaves_no_part(host, tmp_path):
    target = tmp_path / "deep" / "file.bin"
    assert download(remote(host, sha256=SHA), target) == target
    assert target.read_bytes() == CONTENT
    assert not list(target.parent.glob("*.part"))


def test_does_not_ask_again(host, tmp_path):
    for _ in range(2):
        download(remote(host), tmp_path / "file.bin")
    assert len(host.asked) == 1


def test_wrong_checksum_is_said_and_the_file_thrown_away(host, tmp_path):
    with pytest.raises(
        DataUnavailableError, match=r"must have the sha256 checksum 00, got [0-9a-f]+, .* Try again"
    ):
        download(remote(host, sha256="00"), tmp_path / "file.bin")
    assert not list(tmp_path.glob("file.bin")) + list(tmp_path.glob("*.part"))


def test_continues_within_one_call(host, tmp_path):
    host.cut = [1000, 2000]
    download(remote(host, sha256=SHA), tmp_path / "file.bin")
    assert [wanted for _, wanted in host.asked] == [None, "bytes=1000-", "bytes=3000-"]


def test_continues_in_a_later_call(host, tmp_path):
    target = tmp_path / "file.bin"
    host.cut = [1000, 0, 0]
    with pytest.raises(
        DataUnavailableError, match=r"got a connection that closed early\. Connect to the internet"
    ):
        download(remote(host, sha256=SHA), target)
    assert not target.exists()
    assert (tmp_path / "file.bin.part").stat().st_size == 1000
    download(remote(host, sha256=SHA), target)
    assert host.asked[-1][1] == "bytes=1000-"
    assert target.read_bytes() == CONTENT


def test_starts_over_where_the_server_knows_no_ranges(host, tmp_path):
    host.ranges = False
    (tmp_path / "file.bin.part").write_bytes(b"something else")
    download(remote(host, sha256=SHA), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_complete_part_needs_no_byte_more(host, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    download(remote(host, sha256=SHA), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_part_that_is_too_long_is_replaced(host, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    download(remote(host, sha256=SHA), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_wrong_part_is_found_by_the_checksum(host, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(DataUnavailableError, match="checksum"):
        download(remote(host, sha256=SHA), tmp_path / "file.bin")
    download(remote(host, sha256=SHA), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_missing_on_the_server(host, tmp_path):
    with pytest.raises(DataUnavailableError, match=r"got the answer 404 Not Found\."):
        download(Remote(host.url + "nothing"), tmp_path / "nothing")


def test_offline_says_what_where_and_what_to_do(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file.bin"
        with pytest.raises(DataUnavailableError) as caught:
            download(Remote(url), tmp_path / "file.bin")
    text = str(caught.value)
    assert text.startswith(f"file.bin must be downloaded from {url}, got no connection (")
    assert text.endswith(f"or place the file at {tmp_path / 'file.bin'} by hand.")


@pytest.mark.parametrize(
    "url", ["http://example.org/file", "ftp://127.0.0.1/file", "file:///etc/passwd"]
)
def test_only_https(tmp_path, url):
    with pytest.raises(DataUnavailableError, match="must come over https"):
        download(Remote(url), tmp_path / "file")


def test_a_redirection_is_followed(host, tmp_path):
    host.redirections["start"] = "/some/file.bin"
    host.files["some/file.bin"] = CONTENT
    download(Remote(host.url + "start", sha256=SHA), tmp_path / "file.bin")
    assert [path for path, _ in host.asked] == ["/start", "/some/file.bin"]


def test_every_hop_is_https(host, tmp_path):
    """A hop over plain http is refused before it is asked, also if the last one is https."""
    host.redirections["start"] = "http://example.org/back"
    with pytest.raises(
        DataUnavailableError, match=r"must come over https, got http://example\.org/back"
    ):
        download(Remote(host.url + "start"), tmp_path / "file")
    assert [path for path, _ in host.asked] == ["/start"]


def test_the_internet_cannot_redirect_to_this_machine():
    far = urllib.request.Request("https://example.org/file")
    with pytest.raises(DataUnavailableError, match=r"must come over https, got http://127\.0"):
        _Redirections().redirect_request(far, None, 302, "Found", {}, "http://127.0.0.1/secret")


@pytest.mark.parametrize("length", ["many", "-5", "1_0", "9" * 5000])
def test_a_bad_length_is_one_sentence(host, tmp_path, length):
    host.length = length
    with pytest.raises(
        DataUnavailableError, match=r"got an invalid answer \(Content-Length '.*Connect"
    ) as caught:
        download(remote(host), tmp_path / "file.bin")
    assert len(str(caught.value)) < 600
    assert not (tmp_path / "file.bin").exists()


def test_a_redirection_to_nowhere_is_one_sentence(host, tmp_path):
    host.redirections["start"] = "http://[/"
    with pytest.raises(DataUnavailableError, match=r"got an invalid answer \(.*IPv6"):
        download(Remote(host.url + "start"), tmp_path / "file")


def test_every_download_of_the_package_has_a_checksum():
    folder = Path(mindgap.data.__file__).parent
    calls = [
        node
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Remote"
    ]
    assert len(calls) >= 7
    for call in calls:
        assert "sha256" in {word.arg for word in call.keywords}, ast.unparse(call)


def test_the_tables_have_a_checksum_for_every_official_file():
    wanted = {
        f"UCI_Datasets/{name}/data/{file}.txt"
        for name, _, _, splits in TABLES.values()
        for file in (
            *("data", "index_features", "index_target"),
            *(f"index_test_{split}" for split in range(splits)),
        )
    }
    assert set(_checksums()) == wanted
    assert {len(checksum) for checksum in _checksums().values()} == {64}


def test_a_folder_that_cannot_be_made(host, tmp_path):
    (tmp_path / "blocked").write_text("a file where a folder should be")
    with pytest.raises(DataUnavailableError, match="must be writable to keep the download"):
        download(remote(host), tmp_path / "blocked" / "file.bin")


def test_two_at_once_fetch_once(host, tmp_path):
    threads = [
        threading.Thread(target=download, args=(remote(host), tmp_path / "file.bin"))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(host.asked) == 1
    assert file_digest(tmp_path / "file.bin") == SHA
