"""Order, resume, failures, limits and the words a user meets."""

from __future__ import annotations

import importlib
import math
import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from processes import TOY, alive, eventually

from mindgap.core.errors import InputError, MissingExtraError
from mindgap.core.study import Trial
from mindgap.runs import LocalExecutor, SerialExecutor, Store, sweep
from mindgap.runs.sweep import default_store


def serial(study, store=":memory:", **options):
    return sweep(study, store=store, executor=SerialExecutor(), progress=False, **options)


def numbers(result) -> list[int]:
    return [trial["number"] for trial, _ in result.records]


def test_records_come_in_the_order_of_trials(toy, tmp_path):
    result = sweep(toy.ToyStudy(count=12), store=tmp_path / "r.sqlite", workers=2, progress=False)
    assert numbers(result) == list(range(12))
    assert (result.done, result.resumed, result.failed, result.missing) == (12, 0, 0, 0)
    assert result.complete
    assert not result.interrupted
    assert result.table.rows[3] == (3, 9, None)
    assert str(result) == "toy-study: 12 done, 0 resumed, 0 failed, 0 to run"


def test_serial_and_workers_agree(toy):
    study = toy.ToyStudy(count=4)
    assert (
        serial(study).records == sweep(study, store=":memory:", workers=2, progress=False).records
    )


def test_a_second_sweep_runs_nothing(toy, tmp_path):
    study = toy.ToyStudy(log=str(tmp_path / "log"))
    first, second = (serial(study, tmp_path / "r.sqlite") for _ in range(2))
    assert (second.done, second.resumed) == (0, 6)
    assert second.records == first.records
    assert len((tmp_path / "log").read_text().splitlines()) == 6


def test_limit_then_the_rest(toy, tmp_path):
    study, store = toy.ToyStudy(), tmp_path / "r.sqlite"
    part = serial(study, store, limit=2)
    assert (part.done, part.missing, part.complete) == (2, 4, False)
    assert numbers(part) == [0, 1]
    rest = serial(study, store)
    assert (rest.done, rest.resumed) == (4, 2)


def test_a_larger_study_reuses_nothing_of_another_setting(toy, tmp_path):
    store = tmp_path / "r.sqlite"
    serial(toy.ToyStudy(count=3), store)
    assert serial(toy.ToyStudy(count=4), store).resumed == 0


def test_infinity_survives_the_store(toy):
    record = serial(toy.ToyStudy(count=1)).records[0][1]
    assert record == {"square": 0, "odd": False, "ratio": math.inf}


def test_an_exception_fails_its_trial_only(toy, tmp_path):
    study = toy.ToyStudy(raises=(2,))
    result = sweep(study, store=tmp_path / "r.sqlite", workers=2, progress=False)
    assert (result.done, result.failed, result.complete) == (5, 1, False)
    trial, row = result.failures[0]
    assert trial["number"] == 2
    assert row.error == "ValueError: no square for 2"
    assert "in run" in row.traceback


def test_failed_trials_are_retried_unless_told_otherwise(toy, tmp_path):
    study, store, log = (
        toy.ToyStudy(raises=(2,), log=str(tmp_path / "log")),
        tmp_path / "r.sqlite",
        tmp_path / "log",
    )
    runs = lambda: len(log.read_text().splitlines())  # noqa: E731
    serial(study, store)
    assert runs() == 6
    assert serial(study, store, retry_failed=False).failed == 1
    assert runs() == 6
    assert serial(study, store).failed == 1
    assert runs() == 7


def test_a_trial_that_kills_its_workers_is_given_up_and_the_rest_goes_on(toy, tmp_path):
    study = toy.ToyStudy(kills=(1,), pause=0.01, log=str(tmp_path / "log"))
    result = sweep(study, store=tmp_path / "r.sqlite", workers=2, progress=False)
    assert (result.done, result.failed) == (5, 1)
    assert "given up after 3 workers" in result.failures[0][1].error
    assert "SIGKILL" in result.failures[0][1].error
    tried = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert tried.count("1") == 3
    assert sorted(set(tried)) == ["0", "1", "2", "3", "4", "5"]
    assert len(tried) == 6 + 2, "only the guilty trial is run again"


def test_equal_trials_are_run_once(toy, tmp_path, monkeypatch):
    twice = lambda _: [Trial(parameters={"number": 3})] * 2  # noqa: E731
    monkeypatch.setattr(toy.ToyStudy, "trials", twice)
    result = serial(toy.ToyStudy(log=str(tmp_path / "log")))
    assert len(result.records) == 2
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_a_table_without_records_says_why(toy):
    with pytest.raises(InputError, match="The first failure was: ValueError: no square for 0"):
        _ = serial(toy.ToyStudy(count=1, raises=(0,))).table


def test_an_interrupt_in_this_process_keeps_what_is_done(toy, monkeypatch):
    plain_run = toy.ToyStudy.run

    def run(self, trial):
        if trial["number"] == 3:
            raise KeyboardInterrupt
        return plain_run(self, trial)

    monkeypatch.setattr(toy.ToyStudy, "run", run)
    result = serial(toy.ToyStudy())
    assert result.interrupted
    assert numbers(result) == [0, 1, 2]
    assert "interrupted" in str(result)


def test_records_must_be_plain(toy, monkeypatch):
    for returned, words in (
        (5, "must return a mapping"),
        ({"set": {1}}, r"record.set must be plain data"),
    ):
        monkeypatch.setattr(toy.ToyStudy, "run", lambda _self, _trial, value=returned: value)
        failures = serial(toy.ToyStudy(count=1)).failures
        assert words in failures[0][1].error


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit": -1}, "limit must be 0 or more"),
        ({"workers": 0}, "workers must be an integer of at least 1"),
    ],
)
def test_bad_numbers_are_refused(toy, options, words):
    with pytest.raises(InputError, match=words):
        sweep(toy.ToyStudy(), store=":memory:", progress=False, **options)


def test_a_class_is_not_a_study(toy):
    with pytest.raises(InputError, match="study must be a Study, got <class"):
        sweep(toy.ToyStudy, store=":memory:")


def test_something_without_submit_is_no_executor(toy):
    with pytest.raises(InputError, match="executor must have a method submit"):
        sweep(toy.ToyStudy(), store=":memory:", executor=object(), progress=False)


def test_an_open_store_stays_open(toy):
    with Store(":memory:") as store:
        serial(toy.ToyStudy(), store)
        assert len(store.records("toy-study")) == 6
        assert [row.seed for row in store.records(toy.ToyStudy())] == list(range(6))
        assert store.records(toy.ToyStudy(count=7)) == []


def test_default_store(monkeypatch, tmp_path, toy):
    monkeypatch.delenv("MINDGAP_RUNS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_store() == tmp_path / "cache" / "mindgap" / "runs.sqlite"
    sweep(toy.ToyStudy(count=1), executor=SerialExecutor(), progress=False)
    assert default_store().exists()
    monkeypatch.setenv("MINDGAP_RUNS", str(tmp_path / "mine.sqlite"))
    assert default_store() == tmp_path / "mine.sqlite"


def test_progress_goes_to_standard_error(toy, capsys):
    sweep(toy.ToyStudy(raises=(1,)), store=":memory:", executor=SerialExecutor())
    out, err = capsys.readouterr()
    assert out == ""
    assert "toy-study" in err
    assert "6/6" in err


def test_one_executor_serves_two_sweeps(toy):
    with LocalExecutor(1) as executor:
        first = sweep(toy.ToyStudy(count=2), store=":memory:", executor=executor, progress=False)
        second = sweep(toy.ToyStudy(count=3), store=":memory:", executor=executor, progress=False)
    assert (first.done, second.done) == (2, 3)
    assert {row.pid for row in first.rows} == {row.pid for row in second.rows} != {os.getpid()}


def test_any_executor_of_the_standard_library_fits(toy):
    with ThreadPoolExecutor(2) as threads:
        assert sweep(toy.ToyStudy(), store=":memory:", executor=threads, progress=False).complete


def test_a_sweep_is_light_and_picklable(toy):
    result = serial(toy.ToyStudy(count=2))
    assert pickle.loads(pickle.dumps(result)).records == result.records
    code = "import sys, mindgap.runs; sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'tqdm')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_trial_that_hangs_is_killed_and_the_others_run(toy, tmp_path):
    study = toy.ToyStudy(count=4, hangs=(1,))
    began = time.monotonic()
    found = sweep(study, store=tmp_path / "r.sqlite", workers=2, timeout=0.5, progress=False)
    assert time.monotonic() - began < 20
    assert (found.done, found.failed) == (3, 1)
    assert found.failures[0][1].error == "Timeout: no answer within 0.5 s"


def written(folder, name, text):
    """A study of its own name in a file of its own, imported."""
    (folder / f"{name.lower()}.py").write_text(text.replace("class ToyStudy", f"class {name}"))
    return getattr(importlib.import_module(name.lower()), name)


def test_the_time_to_load_a_study_does_not_count(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    study = written(tmp_path, "SlowStudy", f"import time\ntime.sleep(1.5)\n{TOY}")
    found = sweep(study(count=2), store=":memory:", workers=1, timeout=1.0, progress=False)
    assert (found.done, found.failed) == (2, 0)


def test_what_a_trial_started_ends_with_its_time(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    text = TOY.replace("{os.getpid()}", "{__import__('subprocess').Popen(['sleep', '300']).pid}")
    study = written(tmp_path, "StartingStudy", text)
    log = tmp_path / "log.txt"
    hanging = study(count=1, hangs=(0,), log=str(log))
    found = sweep(hanging, store=":memory:", workers=1, timeout=1.0, progress=False)
    assert found.failed == 1
    assert eventually(lambda: not alive(int(log.read_text().split()[1])), 5)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf")])
def test_a_timeout_is_a_positive_number(toy, timeout):
    with pytest.raises(InputError, match="timeout must be"):
        sweep(toy.ToyStudy(), store=":memory:", timeout=timeout)


def test_a_timeout_needs_processes(toy):
    with pytest.raises(InputError, match=r"can be killed, got SerialExecutor\. Pass LocalExec"):
        sweep(toy.ToyStudy(), store=":memory:", executor=SerialExecutor(), timeout=1.0)


def test_what_a_study_misses_is_told_before_any_trial(toy, tmp_path, monkeypatch):
    calls = []

    def prepare(study):
        calls.append(study.name)
        raise MissingExtraError("This needs the package 'x'. Run: pip install 'mindgap[hf]'")

    monkeypatch.setattr(toy.ToyStudy, "prepare", prepare, raising=False)
    log, store = tmp_path / "log.txt", tmp_path / "runs.sqlite"
    with pytest.raises(MissingExtraError, match="hf"):
        sweep(toy.ToyStudy(log=str(log)), store=store, progress=False)
    assert calls == ["toy-study"]
    assert not log.exists()
    with Store(store) as kept:
        assert not kept.records("toy-study")


def test_a_study_is_prepared_once_and_only_if_trials_are_left(toy, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(toy.ToyStudy, "prepare", lambda study: calls.append(study.count))
    store = tmp_path / "runs.sqlite"
    for _ in range(2):
        sweep(toy.ToyStudy(), store=store, executor=SerialExecutor(), progress=False)
    sweep(toy.ToyStudy(count=3), store=store, executor=SerialExecutor(), progress=False, limit=0)
    assert calls == [6]
