"""Several drivers on one store: every trial is run once, and nobody waits for the dead."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time

import pytest
from processes import eventually

from mindgap.core.study import Trial
from mindgap.runs import SerialExecutor, Store, claims, sweep
from mindgap.runs.claims import Claims
from mindgap.runs.work import Outcome


@pytest.fixture
def path(tmp_path):
    Store(tmp_path / "runs.sqlite").close()
    return tmp_path / "runs.sqlite"


def test_a_trial_belongs_to_one_driver_until_it_is_released(path):
    with Claims(path) as first, Claims(path) as second:
        assert first.claim("a", seen=None) == "ours"
        assert second.claim("a", seen=None) == "taken"
        assert first.claim("a", seen=None) == "ours"
        first.release("a")
        assert second.claim("a", seen=None) == "ours"


def test_a_driver_that_ends_frees_its_trials(path):
    with Claims(path) as second:
        with Claims(path) as first:
            assert first.claim("a", seen=None) == "ours"
        assert second.claim("a", seen=None) == "ours"


def test_an_outcome_of_another_driver_settles_a_trial(path, toy):
    with Store(path) as store, Claims(path) as mine:
        for status, record in (("failed", None), ("done", "{}")):
            trial, outcome = Trial(parameters={"number": 1}), Outcome(status=status, record=record)
            assert store.add("a", toy.ToyStudy(), trial, outcome)
            assert mine.claim("a", seen=None) == "settled"
        # The outcome that a driver has seen before it began is no news.
        assert mine.claim("a", seen=store.records()[0].finished) == "ours"


def test_a_claim_runs_out_unless_it_is_renewed(path, monkeypatch):
    monkeypatch.setattr(claims, "LEASE", 0.3)
    with Claims(path) as first, Claims(path) as second:
        assert first.claim("a", seen=None) == "ours"
        time.sleep(0.5)
        assert second.claim("a", seen=None) == "taken", "a driver that lives renews its claims"
        first._closed.set()
        first._renewal.join()
        assert second.claim("a", seen=None) == "taken"
        time.sleep(0.4)
        assert second.claim("a", seen=None) == "ours", "a driver of another machine has died"


def test_no_thread_is_left(path):
    with Claims(path):
        assert "mindgap-claims" in {thread.name for thread in threading.enumerate()}
    assert "mindgap-claims" not in {thread.name for thread in threading.enumerate()}


def test_three_drivers_share_the_trials(drivers):
    started = [drivers.start(60, 0.02) for _ in range(3)]
    outputs = [driver.communicate(timeout=60) for driver in started]
    assert [driver.returncode for driver in started] == [0, 0, 0], outputs
    assert drivers.counts() == dict.fromkeys(range(60), 1), "a trial was run twice"
    assert sum(int(out.split()[0]) for out, _ in outputs) == 60
    connection = sqlite3.connect(drivers.store)
    assert connection.execute("SELECT count(*) FROM trials").fetchone() == (60,)
    assert connection.execute("SELECT count(*) FROM claims").fetchone() == (0,)
    connection.close()


def test_the_trials_of_a_killed_driver_are_taken_over_at_once(drivers):
    victim, heir = drivers.start(8, 0.5), drivers.start(8, 0.5)
    assert eventually(lambda: len(drivers.runs()) == 4), "both drivers run trials"
    os.kill(victim.pid, signal.SIGKILL)
    _, err = heir.communicate(timeout=claims.LEASE / 2)
    assert heir.returncode == 0, err
    assert set(drivers.counts()) == set(range(8))


def test_a_driver_counts_what_others_finished(toy, tmp_path):
    """The second sweep begins while the first has its trials claimed, and waits for them."""
    study, path = toy.ToyStudy(count=3), tmp_path / "runs.sqlite"
    with Store(path) as store, store.claims() as other:
        ids = [row.id for row in _swept_elsewhere(study, tmp_path)]
        assert other.claim(ids[0], seen=None) == "ours"
        found = []
        thread = threading.Thread(target=lambda: found.append(_swept(study, path)))
        thread.start()
        assert eventually(lambda: len(store.records()) == 2)
        record = Outcome(status="done", record='{"square": 0}')
        assert store.add(ids[0], study, study.trials()[0], record)
        thread.join(20)
    assert (found[0].done, found[0].elsewhere, found[0].complete) == (2, 1, True)
    assert "1 done by other drivers" in str(found[0])


def _swept(study, path):
    return sweep(study, store=path, executor=SerialExecutor(), progress=False)


def _swept_elsewhere(study, folder):
    with Store(folder / "other.sqlite") as store:
        _swept(study, store)
        return store.records(study)


def test_a_limit_counts_the_trials_of_this_driver(toy, tmp_path):
    study, path = toy.ToyStudy(count=5), tmp_path / "runs.sqlite"
    ids = [row.id for row in _swept_elsewhere(study, tmp_path)]
    with Store(path) as store, store.claims() as other:
        assert other.claim(ids[0], seen=None) == "ours"
        found = sweep(study, store=path, executor=SerialExecutor(), progress=False, limit=2)
        assert [row.id for row in store.records()] == ids[1:3]
    assert (found.done, found.missing) == (2, 3)
