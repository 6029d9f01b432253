"""Claims: which driver runs which trial, so that several drivers share one store.

A claim is a lease. Its driver renews it while it lives. A claim that runs out, or whose driver died
on this machine, is free for the next driver.
"""

import contextlib
import os
import socket
import sqlite3
import threading
import time
import uuid
from pathlib import Path
from typing import Literal, Self

Claimed = Literal["ours", "taken", "settled"]
LEASE = 60.0  # seconds that a claim is valid without a renewal, for drivers on other machines
_BUSY = 60.0  # seconds to wait while another driver writes
CLAIMS_TABLE = """
CREATE TABLE IF NOT EXISTS claims (
  id TEXT PRIMARY KEY, driver TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
  started INTEGER NOT NULL, expires REAL NOT NULL
)"""
# A row of trials that is not the one this driver has seen is the outcome of another driver. A
# trial that is done without a record is none.
_OUTCOME = """
SELECT 1 FROM trials
WHERE id = :id AND finished IS NOT :seen AND (status = 'failed' OR record IS NOT NULL)"""
_CLAIM = f"""
INSERT INTO claims (id, driver, host, pid, started, expires)
SELECT :id, :driver, :host, :pid, :started, :expires WHERE NOT EXISTS ({_OUTCOME})
ON CONFLICT (id) DO UPDATE SET driver = :driver, host = :host, pid = :pid, started = :started,
  expires = :expires
WHERE claims.expires < :now OR claims.driver = :driver"""


class Claims:
    """The claims of one driver on the trials of a store.

    Args:
        path: The file of the store; None for one in memory, where every trial is free.

    >>> with Claims(None) as claims:
    ...     claims.claim("a trial", seen=None)
    'ours'
    """

    def __init__(self, path: Path | None) -> None:
        self._connection = None if path is None else _connect(path)
        self._lock, self._closed = threading.Lock(), threading.Event()
        pid = os.getpid()
        self._driver = {
            "driver": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "pid": pid,
            "started": _start_time(pid),
        }
        if self._connection is not None:
            # A thread, because a trial may run in this process and keep the driving loop waiting.
            self._renewal = threading.Thread(target=self._renew, name="mindgap-claims", daemon=True)
            self._renewal.start()

    def claim(self, identity: str, seen: str | None) -> Claimed:
        """Try to claim a trial.

        Args:
            identity: The trial's id.
            seen: When the outcome that this driver knows was finished; None if it knows none.

        Returns:
            ``"ours"``; ``"taken"`` by a driver that is alive; or ``"settled"`` by another driver.
        """
        if self._connection is None:
            return "ours"
        now = time.time()
        values = {**self._driver, "id": identity, "seen": seen, "now": now, "expires": now + LEASE}
        with self._lock:
            self._free_the_dead(identity)
            if self._connection.execute(_CLAIM, values).rowcount > 0:
                return "ours"
            settled = self._connection.execute(_OUTCOME, values).fetchone()
        return "settled" if settled else "taken"

    def release(self, identity: str) -> None:
        """Give up the claim on a trial."""
        self._execute("DELETE FROM claims WHERE id = :id AND driver = :driver", id=identity)

    def close(self) -> None:
        """Give up all claims."""
        self._closed.set()
        if self._connection is not None:
            self._renewal.join()
            with contextlib.suppress(sqlite3.Error):  # they run out by themselves
                self._execute("DELETE FROM claims WHERE driver = :driver")
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _execute(self, statement: str, **values: str | float) -> None:
        if self._connection is not None:
            with self._lock:
                self._connection.execute(statement, {**self._driver, **values})

    def _renew(self) -> None:
        while not self._closed.wait(LEASE / 6):
            with contextlib.suppress(sqlite3.Error):  # the file is busy: the next time is in time
                self._execute(
                    "UPDATE claims SET expires = :expires WHERE driver = :driver",
                    expires=time.time() + LEASE,
                )

    def _free_the_dead(self, identity: str) -> None:
        """Remove the claim of a driver of this machine that was killed, without its lease's end."""
        assert self._connection is not None
        found = self._connection.execute(
            "SELECT driver, pid, started FROM claims WHERE id = ? AND host = ?",
            (identity, self._driver["host"]),
        ).fetchone()
        if found is not None and _start_time(found[1]) != found[2]:
            self._connection.execute(
                "DELETE FROM claims WHERE id = ? AND driver = ?", (identity, found[0])
            )


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    # A claim that a power cut loses is made again: it needs no wait for the disk.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _start_time(pid: int) -> int:
    """Return when a process began, -1 if it is not alive, and 0 where the system does not say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return _without_proc(pid)
    state, *rest = text.rpartition(")")[2].split()
    return -1 if state == "Z" else int(rest[18])


def _without_proc(pid: int) -> int:
    if Path("/proc/self/stat").exists():
        return -1
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return -1
    except OSError:  # it belongs to another user, or this is Windows
        return 0
    return 0
