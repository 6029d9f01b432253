"""The file: what survives, what is refused, and in which words."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sqlite3

import pytest

from mindgap.core.errors import InputError
from mindgap.core.study import Trial
from mindgap.runs import SerialExecutor, Store, sweep
from mindgap.runs.work import Outcome


def filled(toy, path):
    return sweep(toy.ToyStudy(raises=(2,)), store=path, executor=SerialExecutor(), progress=False)


def outcome(status="done", **fields) -> Outcome:
    return Outcome(status=status, **fields)


def test_a_done_trial_is_never_overwritten_and_a_failed_one_is(toy):
    study, trial = toy.ToyStudy(), Trial(parameters={"number": 1})
    with Store(":memory:") as store:
        assert store.add("a", study, trial, outcome("failed", error="no memory"))
        assert store.add("a", study, trial, outcome(record='{"x": "NaN"}'))
        assert not store.add("a", study, trial, outcome(record='{"x": 2}'))
        assert not store.add("a", study, trial, outcome("failed", error="later"))
        (row,) = store.records()
    assert row.status == "done"
    assert math.isnan(row.record["x"])
    assert row.error == ""


def test_rows_tell_cost_place_and_versions(toy):
    with Store(":memory:") as store:
        filled(toy, store)
        row = store.records("toy-study")[0]
    assert row.wall_seconds > 0
    assert row.cpu_seconds >= 0
    assert row.pid == os.getpid()
    assert row.host
    assert row.python.startswith("3.")
    assert row.mindgap
    assert row.torch
    assert row.started <= row.finished


def test_rows_of_one_millisecond_keep_their_order(toy):
    numbers = [3, 1, 4, 0, 5, 2]
    with Store(":memory:") as store:
        for number in numbers:
            trial = Trial(parameters={"number": number})
            store.add(
                str(number),
                toy.ToyStudy(),
                trial,
                outcome(record="{}", finished="2026-01-01T00:00:00.000"),
            )
        assert [row.parameters["number"] for row in store.records()] == numbers


def test_durable_settings(tmp_path):
    with Store(tmp_path / "deep" / "folder" / "r.sqlite") as store:
        pragma = lambda name: store._connection.execute(f"PRAGMA {name}").fetchone()[0]  # noqa: E731
        assert (pragma("journal_mode"), pragma("synchronous"), pragma("quick_check")) == (
            "wal",
            2,
            "ok",
        )


def test_export_to_csv(toy, tmp_path):
    with Store(":memory:") as store:
        filled(toy, store)
        store.export(tmp_path / "out.csv", "toy-study")
    with (tmp_path / "out.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    by_number = {line["parameters.number"]: line for line in lines}
    assert len(lines) == 6
    assert by_number["3"]["record.square"] == "9"
    assert by_number["0"]["record.ratio"] == "Infinity"
    assert by_number["2"]["status"] == "failed"
    assert by_number["2"]["record.square"] == ""
    assert by_number["5"]["record.odd"] == "true"


def test_export_to_json(toy, tmp_path):
    with Store(":memory:") as store:
        filled(toy, store)
        store.export(tmp_path / "out.json")
        rows = store.records()
    found = json.loads((tmp_path / "out.json").read_text(), parse_constant=pytest.fail)
    assert [line["id"] for line in found] == [row.id for row in rows]
    assert found[0]["parameters"] == {"number": 0}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_export_needs_a_known_suffix(tmp_path):
    with (
        Store(":memory:") as store,
        pytest.raises(InputError, match=r"must end in \.csv or \.json"),
    ):
        store.export(tmp_path / "out.xlsx")


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "r.sqlite"
    path.write_text("these are not the rows you are looking for" * 100)
    with pytest.raises(
        InputError, match="must be an intact SQLite file, got: file is not a database"
    ):
        Store(path)
    assert path.read_text().startswith("these")


@pytest.mark.parametrize("damage", ["truncated", "scribbled"])
def test_a_damaged_database(toy, tmp_path, damage):
    path = tmp_path / "r.sqlite"
    with Store(path) as store:
        trial = Trial(parameters={"number": 1})
        for number in range(200):
            store.add(
                f"{number:032d}",
                toy.ToyStudy(),
                trial,
                outcome(record=json.dumps({"text": "x" * 200})),
            )
    content = path.read_bytes()
    half = len(content) // 2 // 4096 * 4096
    path.write_bytes(
        content[:half]
        if damage == "truncated"
        else content[:half] + b"\xff" * (len(content) - half)
    )
    with pytest.raises(InputError, match="must be an intact SQLite file") as caught:
        Store(path)
    assert "\n" not in str(caught.value)


def test_the_database_of_another_program(tmp_path):
    path = tmp_path / "r.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(InputError, match="another program's database"):
        Store(path)


def test_a_newer_schema(tmp_path):
    path = tmp_path / "r.sqlite"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(InputError, match=r"schema 2 or older, got 99\. Upgrade mindgap"):
        Store(path)


def test_paths_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "r.sqlite"):
        with pytest.raises(InputError, match="must be a file that can be written"):
            Store(path)
    with (
        Store(":memory:") as store,
        pytest.raises(InputError, match="must be a file that can be written"),
    ):
        store.export(tmp_path / "file" / "out.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file(tmp_path):
    path = tmp_path / "r.sqlite"
    Store(path).close()
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(InputError, match="must be a file that can be written"):
            Store(path)
    finally:
        tmp_path.chmod(0o755)


def test_a_full_disk_ends_the_sweep_and_keeps_what_is_done(toy, tmp_path):
    with Store(tmp_path / "r.sqlite") as store:
        store._connection.execute("PRAGMA max_page_count = 6")
        with pytest.raises(InputError, match="must have room to grow"):
            sweep(toy.ToyStudy(count=200), store=store, executor=SerialExecutor(), progress=False)
        kept = len(store.records())
    assert 0 < kept < 200


def test_a_file_that_another_process_holds(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("mindgap.runs.store._PATIENCE", 0.1)
    with Store(tmp_path / "r.sqlite") as first:
        first._connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="must be free to write"):
            Store(tmp_path / "r.sqlite")


def changed(path, statement, *values):
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement, values).rowcount == 1
    connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "record = '{\"square\": 5}'",  # whole JSON, but not what was written
        "record = '{\"squ'",
        "parameters = '[' || parameters",
        "fields = 'null'",
        "wall_seconds = 'long'",
        "seed = seed + 1",
    ],
)
def test_a_damaged_row_is_one_sentence_and_its_advice_works(toy, tmp_path, change):
    path = tmp_path / "r.sqlite"
    filled(toy, path)
    changed(path, f"UPDATE trials SET {change} WHERE seed = 3")
    with pytest.raises(InputError, match="must hold trials as they were written") as caught:
        filled(toy, path)
    advice = re.search(r"sqlite3 (\S+) \"(.+)\"$", str(caught.value))
    changed(advice[1], advice[2])
    again = filled(toy, path)
    assert (again.resumed, again.done) == (4, 1)


def test_hostile_json_without_a_checksum_is_one_sentence(toy, tmp_path):
    path = tmp_path / "r.sqlite"
    filled(toy, path)
    for record in ("[" * 100_000, "{} {}", "[1, 2]", "9" * 5000):
        changed(path, "UPDATE trials SET record = ?, checksum = '' WHERE seed = 3", record)
        with Store(path) as store, pytest.raises(InputError, match="got a damaged one") as caught:
            store.records()
        assert len(str(caught.value)) < 800


def test_done_without_a_record_is_run_again(toy, tmp_path):
    path = tmp_path / "r.sqlite"
    filled(toy, path)
    changed(path, "UPDATE trials SET record = NULL WHERE seed = 3")
    again = filled(toy, path)
    assert (again.resumed, again.done) == (4, 1)
    assert [record["square"] for _, record in again.records] == [0, 1, 9, 16, 25]


def test_a_file_of_schema_1_is_upgraded(toy, tmp_path):
    path = tmp_path / "r.sqlite"
    filled(toy, path)
    connection = sqlite3.connect(path)
    for statement in (
        "ALTER TABLE trials DROP COLUMN checksum",
        "DROP TABLE claims",
        "PRAGMA user_version = 1",
    ):
        connection.execute(statement)
    connection.close()
    again = filled(toy, path)
    assert (again.resumed, again.done, again.failed) == (5, 0, 1)
    with Store(path) as store:
        assert store._connection.execute("PRAGMA user_version").fetchone() == (2,)
