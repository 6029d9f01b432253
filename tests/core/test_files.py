"""Files that are written whole, and everything that is not a regular file."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mindgap.core.errors import InputError
from mindgap.core.files import check_writable, write_as, write_whole

SLOW_WRITER = """
import sys, time
from mindgap.core.files import write_whole

def content(stream):
    stream.write(b"half")
    stream.flush()
    print("begun", flush=True)
    time.sleep(60)

write_whole(sys.argv[1], content)
"""


@contextlib.contextmanager
def slow_writer(path):
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_WRITER, str(path)], stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def device(folder, minor):
    """Make a device of our own, so that a fault destroys no device of the machine."""
    path = folder / "device"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        path.open("wb").close()
    except OSError as error:
        pytest.skip(f"a device cannot be made here: {error.strerror}")
    return path


def read_fifo(path):
    """Read a FIFO in a thread; call the result to get what was written."""
    found = []
    reader = threading.Thread(target=lambda: found.append(path.read_text()), daemon=True)
    reader.start()

    def result():
        reader.join(10)
        return found[0]

    return result


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "file", tmp_path / "link"
    target.write_text("old")
    link.symlink_to("real/file")
    assert write_whole(link, "new") == link
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert names(tmp_path / "real") == ["file"]


def test_a_dangling_link_makes_its_target(tmp_path):
    (tmp_path / "link").symlink_to("target")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "target").read_text() == "new"


def test_a_loop_of_links_is_one_sentence(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for write in (check_writable, lambda path: write_whole(path, "new")):
        with pytest.raises(InputError, match=r"a must be a file that can be written, got: .*link"):
            write(tmp_path / "a")


def test_a_fifo_is_written_into(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    check_writable(fifo)
    received = read_fifo(fifo)
    write_whole(fifo, lambda stream: stream.write(b"hello") and stream.seek(0))
    assert received() == "hello"
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_fifo_gets_nothing_of_a_content_that_fails(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def content(stream):
        stream.write(b"half")
        raise ZeroDivisionError

    received = read_fifo(fifo)
    with pytest.raises(ZeroDivisionError):
        write_whole(fifo, content)
    write_whole(fifo, "whole")
    assert received() == "whole"


def test_devices_stay_devices(tmp_path):
    null, link = device(tmp_path, minor=3), tmp_path / "link"
    link.symlink_to(null)
    for path in (null, link):
        check_writable(path)
        write_whole(path, "gone")
    assert stat.S_ISCHR(null.stat().st_mode)
    assert link.is_symlink()


def test_a_full_device_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"must be .* got: No space left on device\."):
        write_whole(device(tmp_path, minor=7), "too much")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system has no /proc")
def test_an_open_file_is_written_into(tmp_path):
    program = "from mindgap.core.files import write_whole; write_whole('/proc/self/fd/1', 'hello')"
    piped = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert piped.stdout == b"hello"
    with (tmp_path / "out").open("w+") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
        assert out.read() == "hello"  # through the handle that was open before


def test_a_read_only_file_is_left_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    path.chmod(0o444)
    for write in (check_writable, lambda path: write_whole(path, "new")):
        with pytest.raises(InputError, match=r"got: a read-only file\. Choose another path"):
            write(path)
    assert path.read_text() == "precious"
    assert names(tmp_path) == ["file"]


def test_a_folder_is_refused(tmp_path):
    for write in (check_writable, lambda path: write_whole(path, "new")):
        with pytest.raises(InputError, match="got: a folder"):
            write(tmp_path)


def test_permissions_are_kept(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    write_whole(path, "new")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path):
    path = tmp_path / ("n" * 255)
    check_writable(path)
    write_whole(path, "new")
    assert path.read_text() == "new"
    for write in (check_writable, lambda path: write_whole(path, "new")):
        with pytest.raises(InputError, match="got: File name too long"):
            write(tmp_path / ("n" * 256))


def test_an_unknown_home_and_a_zero_byte_are_one_sentence():
    for path in ("~nosuchuser/file", "a\0b"):
        for write in (check_writable, lambda path: write_whole(path, "new")):
            with pytest.raises(InputError, match=r"must .* got: "):
                write(path)


def test_the_check_leaves_no_trace_and_touches_nothing(tmp_path):
    """Neither a file nor a link of any name in the folder is written."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ".out.html.probe").symlink_to(victim)
    check_writable(folder / "out.html")
    assert victim.read_text() == "precious"
    assert names(folder) == [".out.html.probe"]


def test_a_writer_that_was_killed_leaves_the_old_content_and_no_rubbish(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with slow_writer(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.read_text() == "old"
    assert len(names(tmp_path)) == 2
    write_whole(path, "new")
    assert names(tmp_path) == ["file"]


def test_the_temporary_file_of_a_living_writer_and_of_the_user_stay(tmp_path):
    path = tmp_path / "file"
    (tmp_path / ".file.backup").write_text("the user's")
    with slow_writer(path):
        write_whole(path, "new")
        assert len(names(tmp_path)) == 3
    assert path.read_text() == "new"
    assert (tmp_path / ".file.backup").exists()


def test_many_writers_at_once_lose_nothing(tmp_path):
    path = tmp_path / "file"
    texts = [str(number) * 10_000 for number in range(8)]

    def write(text):
        for _ in range(20):
            write_whole(path, text)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert names(tmp_path) == ["file"]


def test_the_ending_decides_the_form(tmp_path):
    makers = {".html": lambda: "page", ".json": lambda: "{}", ".csv": lambda: "a"}
    for ending, content in ((".html", "page"), (".HTM", "page"), (".json", "{}"), (".csv", "a")):
        assert write_as(tmp_path / f"x{ending}", makers).read_text() == content
    with pytest.raises(InputError, match=r"must end in \.html, \.json or \.csv, got"):
        write_as(tmp_path / "x.pdf", makers)
    with pytest.raises(InputError, match=r"must end in \.csv, got"):
        write_as("x", {".csv": lambda: "a"})
