"""Real clusters: records are those of this machine, also after a worker is killed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from processes import alive, dask_address, eventually

from mindgap.core.errors import InputError
from mindgap.runs import sweep
from mindgap.runs.executors import DaskExecutor, RayExecutor, named_executor


def _pids(log: Path) -> list[int]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [int(line.split()[1]) for line in lines if len(line.split()) == 2]


def _swept(toy: ModuleType, log: Path, executor: Any) -> list[Any]:
    study = toy.ToyStudy(count=12, pause=0.2, log=str(log))
    found = sweep(study, store=":memory:", executor=executor, progress=False)
    assert found.complete
    return [record for _, record in found.records]


def _kill_one(log: Path, killed: list[int]) -> None:
    """Kill the worker that began the last trial, once three have been begun."""
    if eventually(lambda: len(_pids(log)) > 2):
        killed.append(_pids(log)[-1])
        os.kill(killed[0], signal.SIGKILL)


def test_a_dask_worker_is_killed_in_the_middle(toy: ModuleType, tmp_path: Path) -> None:
    log, killed = tmp_path / "log.txt", list[int]()
    killer = threading.Thread(target=_kill_one, args=(log, killed))
    with dask_address(tmp_path) as address, named_executor(f"dask:{address}") as executor:
        assert isinstance(executor, DaskExecutor)
        killer.start()
        found = _swept(toy, log, executor)
    killer.join()
    assert os.getpid() not in _pids(log)
    assert not alive(killed[0])
    assert len(set(_pids(log))) > 1, "others finished what it had begun"
    assert len(_pids(log)) > 12, "the trial that was lost ran again"
    assert found == _swept(toy, tmp_path / "local.txt", None)


@pytest.mark.cluster
def test_a_ray_worker_is_killed_in_the_middle(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs Ray: run `make test-cluster`")
    paths = filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))  # workers find the toy there
    log, killed = tmp_path / "log.txt", list[int]()
    killer = threading.Thread(target=_kill_one, args=(log, killed))
    with named_executor("ray") as executor:
        assert isinstance(executor, RayExecutor)
        killer.start()
        found = _swept(toy, log, executor)
    killer.join()
    assert os.getpid() not in _pids(log)
    assert not alive(killed[0])
    assert len(_pids(log)) > 12, "the trial that was lost ran again"
    assert found == _swept(toy, tmp_path / "local.txt", None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("slurm", "must be local, dask:ADDRESS or ray, got 'slurm'"),
        ("dask", "must be local, dask:ADDRESS or ray, got 'dask'"),
        ("dask:nowhere://x", "must be a cluster that answers, got 'dask:nowhere://x'"),
    ],
)
def test_bad_names(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told), named_executor(text):
        pass
