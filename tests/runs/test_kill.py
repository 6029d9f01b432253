"""Kill -9 of drivers and workers, for real: nothing finished is lost, nothing finished is run again."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys

import pytest
from processes import alive, eventually

from mindgap.runs.worker import receive

TRIALS, KILLS, PAUSE = 200, 10, 0.025


def committed(store) -> set[int]:
    if not store.exists():
        return set()
    connection = sqlite3.connect(store, timeout=10)
    try:
        rows = connection.execute("SELECT parameters FROM trials WHERE status = 'done'").fetchall()
    except sqlite3.OperationalError:  # the driver has not made the table yet
        return set()
    finally:
        connection.close()
    return {json.loads(text)["number"] for (text,) in rows}


def kill_a_worker(drivers, begun: int) -> None:
    assert eventually(lambda: len(drivers.runs()) > begun + 3)
    pid = drivers.runs()[-1][1]
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not alive(pid))


def test_ten_kills_of_the_driver_and_ten_of_workers(drivers):
    kept: set[int] = set()
    repeated: set[int] = set()
    for round_ in range(KILLS):
        begun, driver = len(drivers.runs()), drivers.start(TRIALS, PAUSE)
        kill_a_worker(drivers, begun)
        before = len(committed(drivers.store))
        assert eventually(lambda before=before: len(committed(drivers.store)) > before + 10)
        assert driver.poll() is None, (round_, driver.communicate())
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        assert eventually(lambda: not any(map(alive, drivers.pids())), 5), (
            "workers outlive the driver"
        )
        repeated |= kept & {number for number, _ in drivers.runs()[begun:]}
        kept = committed(drivers.store)

    begun, last = len(drivers.runs()), drivers.start(TRIALS, PAUSE)
    assert last.communicate(timeout=60)[0].split() == [
        str(TRIALS - len(kept)),
        str(len(kept)),
        "0",
        "False",
    ]
    repeated |= kept & {number for number, _ in drivers.runs()[begun:]}
    assert not repeated, "a committed trial was begun again"
    connection = sqlite3.connect(drivers.store)
    rows = connection.execute("SELECT parameters, status FROM trials").fetchall()
    connection.close()
    assert len(rows) == TRIALS == len(set(rows))
    assert {status for _, status in rows} == {"done"}
    assert committed(drivers.store) == set(range(TRIALS)) == set(drivers.counts())
    assert len(kept) > TRIALS // 2, "the kills came too early to mean much"
    wasted = (
        len(drivers.runs()) - TRIALS
    )  # what was in flight at a kill: one for a worker, a few for a driver
    assert wasted <= KILLS * (1 + 4)


def test_two_drivers_on_one_store(drivers):
    first, second = drivers.start(60, 0.02), drivers.start(60, 0.02)
    outputs = [driver.communicate(timeout=60) for driver in (first, second)]
    assert first.returncode == second.returncode == 0, outputs
    connection = sqlite3.connect(drivers.store)
    assert connection.execute(
        "SELECT count(*), count(DISTINCT parameters) FROM trials"
    ).fetchone() == (60, 60)
    connection.close()


def test_interrupt_keeps_what_is_done_and_leaves_no_process(drivers):
    driver = drivers.start(200, PAUSE, "--bar")
    assert eventually(lambda: len(committed(drivers.store)) > 5)
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does: to the driver and all of its group
    out, err = driver.communicate(timeout=10)
    assert driver.returncode == 130
    assert "Traceback" not in err
    done, resumed, failed, interrupted = out.split()
    assert (resumed, failed, interrupted) == ("0", "0", "True")
    # On a busy machine the interrupt may fall between a commit and its count; nothing is lost then.
    assert len(committed(drivers.store)) - int(done) in (0, 1)
    assert not any(map(alive, drivers.pids()))


def test_resume_after_an_interrupt(drivers):
    driver = drivers.start(40, PAUSE)
    assert eventually(lambda: len(committed(drivers.store)) > 5)
    driver.send_signal(signal.SIGINT)
    done = int(driver.communicate(timeout=10)[0].split()[0])
    again = drivers.start(40, PAUSE).communicate(timeout=60)[0].split()
    assert again == [str(40 - done), str(done), "0", "False"]
    assert len(drivers.runs()) <= 40 + 2


def test_a_long_trial_holds_up_neither_an_interrupt_nor_a_kill(drivers):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        begun, driver = len(drivers.runs()), drivers.start(4, 120.0)
        assert eventually(lambda b=begun: len(drivers.runs()) == b + 2)
        driver.send_signal(number)
        driver.communicate(timeout=5)
        assert driver.returncode in (130, -number)
        assert eventually(lambda: not any(map(alive, drivers.pids())), 5)
    assert not committed(drivers.store)


@pytest.mark.parametrize("mode", [(), ("-X", "dev")], ids=["plain", "developer"])
def test_a_worker_whose_driver_died_ends_quietly(mode):
    program = "from mindgap.runs.worker import main; main()"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, *mode, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe
    ) as worker:
        worker.stdout.close()  # its first message has nobody to read it
        assert worker.wait(timeout=20) == 0
        assert worker.stderr.read() == b""


def test_a_worker_whose_tasks_end_does_so_quietly():
    """At once, and not only when the process that started it is gone."""
    program = "from mindgap.runs.worker import main; main()"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe
    ) as worker:
        assert receive(worker.stdout) == b"ready"
        worker.stdin.close()
        try:
            assert worker.wait(timeout=20) == 0
        finally:
            worker.kill()
        assert worker.stderr.read() == b""


def test_a_worker_ends_with_its_driver_though_another_holds_the_pipe():
    driver = (
        "import subprocess, sys\n"
        "words = [sys.executable, '-c', 'from mindgap.runs.worker import main; main()']\n"
        "worker = subprocess.Popen(words, stdin=int(sys.argv[1]), stdout=subprocess.PIPE)\n"
        "worker.stdout.read(13)\n"  # its first message: eight bytes of length, then "ready"
        "print(worker.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    source, held = os.pipe()  # we hold the end to which tasks would be written
    words = [sys.executable, "-c", driver, str(source)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, pass_fds=[source]) as process:
        os.close(source)
        pid = int(process.stdout.readline())
        process.kill()
    try:
        assert eventually(lambda: not alive(pid), 15)
    finally:
        os.close(held)
