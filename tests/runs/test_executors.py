"""Executors: our own, and anything that looks like one."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import pytest
from processes import TOY, alive, eventually

from mindgap.core.errors import InputError, MindgapError, MissingExtraError
from mindgap.runs import DaskExecutor, LocalExecutor, RayExecutor, SerialExecutor, sweep
from mindgap.runs.executors import as_executor, in_flight
from mindgap.runs.process import WorkerLostError


class MinimalFuture:
    """Only what a sweep asks for."""

    def __init__(self, value=None, error=None):
        self.value, self.error = value, error

    def result(self):
        if self.error:
            raise self.error
        return self.value

    def done(self):
        return True

    def cancel(self):
        return False

    def add_done_callback(self, fn):
        fn(self)


class Minimal:
    def submit(self, fn, *args):
        return MinimalFuture(fn(*args))


def test_anything_with_submit_fits(toy):
    assert sweep(toy.ToyStudy(), store=":memory:", executor=Minimal(), progress=False).complete


def test_an_executor_that_loses_a_task_now_and_then(toy):
    class Losing(Minimal):
        calls = 0

        def submit(self, fn, *args):
            self.calls += 1
            lost = self.calls % 3 == 0
            return (
                MinimalFuture(error=OSError("node went away"))
                if lost
                else super().submit(fn, *args)
            )

    executor = Losing()
    result = sweep(toy.ToyStudy(), store=":memory:", executor=executor, progress=False)
    assert result.complete
    assert executor.calls > 6


def test_an_executor_that_is_broken_for_good(toy):
    class Broken:
        def submit(self, fn, *args):
            raise BrokenExecutor("a child process terminated abruptly")

    with pytest.raises(MindgapError, match=r"pass a new executor"):
        sweep(toy.ToyStudy(), store=":memory:", executor=Broken(), progress=False)


def test_no_more_than_allowed_are_in_flight(toy):
    seen, open_now = [], set()

    class Counting:
        _max_workers = 2

        def __init__(self, pool):
            self.pool = pool

        def submit(self, fn, *args):
            future = self.pool.submit(fn, *args)
            open_now.add(future)
            future.add_done_callback(open_now.discard)
            seen.append(len(open_now))
            return future

    with ThreadPoolExecutor(2) as pool:
        sweep(
            toy.ToyStudy(count=40, pause=0.002),
            store=":memory:",
            executor=Counting(pool),
            progress=False,
        )
    assert max(seen) <= 4


def test_depth_of_the_queue():
    with LocalExecutor(3) as local:
        assert (in_flight(local, None), in_flight(local, 1), in_flight(SerialExecutor(), 8)) == (
            6,
            2,
            1,
        )


def test_workers_are_other_processes_with_one_thread():
    with LocalExecutor(1) as executor:
        assert executor.submit(os.getpid).result() not in (0, os.getpid())
        assert executor.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
        assert executor.submit(eval, "__import__('torch').get_num_threads()").result() == 1


def test_more_threads_on_request():
    with LocalExecutor(1, threads=2) as executor:
        executor.submit(eval, "__import__('torch') and None").result()
        assert executor.submit(eval, "__import__('torch').get_num_threads()").result() == 2


def test_what_a_trial_prints_does_not_disturb_the_pipe():
    with LocalExecutor(1) as executor:
        assert executor.submit(eval, "print('hello') or 5").result() == 5
        assert executor.submit(os.system, "echo hello 1>&2").result() == 0


def test_large_messages():
    with LocalExecutor(1) as executor:
        assert len(executor.submit(bytes.upper, b"x" * 5_000_000).result()) == 5_000_000


def test_a_dead_worker_is_replaced():
    with LocalExecutor(1) as executor:
        pid = executor.submit(os.getpid).result()
        with pytest.raises(WorkerLostError, match="was killed by SIGKILL"):
            executor.submit(eval, "__import__('os').kill(__import__('os').getpid(), 9)").result()
        fresh = executor.submit(os.getpid).result()
        assert fresh != pid
        os.kill(fresh, signal.SIGKILL)  # while idle
        assert eventually(lambda: not alive(fresh))
        assert executor.submit(os.getpid).result() not in (pid, fresh)
        with pytest.raises(WorkerLostError, match="ended with code 3"):
            executor.submit(eval, "__import__('os')._exit(3)").result()


def test_a_dead_worker_is_noticed_while_its_child_holds_the_pipe():
    body = "os.kill(os.getpid(), 9) if os.fork() else (time.sleep(6), os._exit(0))"
    forking = f"(lambda os, time: {body})(*map(__import__, ('os', 'time')))"
    with LocalExecutor(1) as executor:
        future = executor.submit(eval, forking)
        with pytest.raises(WorkerLostError):
            future.result(timeout=5)


def test_shutdown_leaves_no_process():
    with LocalExecutor(2) as executor:
        pids = {executor.submit(os.getpid).result() for _ in range(4)}
    assert not any(map(alive, pids))


def test_abort_is_prompt_and_the_executor_lives_on():
    with LocalExecutor(1) as executor:
        executor.submit(os.getpid).result()
        futures = [executor.submit(eval, "__import__('time').sleep(600)") for _ in range(2)]
        executor.abort()  # the first may be anywhere between being submitted and being run
        for future in futures:
            with pytest.raises(WorkerLostError):
                future.result(timeout=60)
        assert executor.submit(max, 1, 2).result() == 2


def test_a_study_that_cannot_be_pickled():
    with LocalExecutor(1) as executor, pytest.raises(InputError, match="must be picklable"):
        executor.submit(lambda: 0).result()


def test_a_study_from_a_file_that_is_on_no_path(tmp_path):
    path = tmp_path / "apart" / "mine.py"
    path.parent.mkdir()
    path.write_text(TOY.replace("ToyStudy", "ApartStudy"))
    spec = importlib.util.spec_from_file_location("mine_apart", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mine_apart"] = module
    spec.loader.exec_module(module)
    try:
        assert sweep(module.ApartStudy(), store=":memory:", workers=1, progress=False).complete
    finally:
        del sys.modules["mine_apart"]


MAIN = "\nfrom mindgap.runs import sweep\n{guard}"
MAIN += "print(sweep(ToyStudy(), store=':memory:', workers=1, progress=False))\n"


def script(tmp_path, guard: str, *command: str) -> subprocess.CompletedProcess:
    (tmp_path / "script.py").write_text(TOY + MAIN.format(guard=guard))
    return subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", [("script.py",), ("-m", "script")])
def test_a_study_in_the_script_itself(tmp_path, command):
    shown = script(tmp_path, "if __name__ == '__main__': ", *command)
    assert shown.stdout == "toy-study: 6 done, 0 resumed, 0 failed, 0 to run\n", shown.stderr


def test_a_script_without_guard_is_told(tmp_path):
    shown = script(tmp_path, "", "script.py")
    assert "if __name__ == '__main__'" in shown.stderr.splitlines()[-1]


def test_a_study_typed_into_a_session_is_told(tmp_path):
    shown = script(tmp_path, "", "-c", TOY + MAIN.format(guard=""))
    assert "typed into a session" in shown.stderr.splitlines()[-1]


@pytest.mark.parametrize("make", [RayExecutor, DaskExecutor])
@pytest.mark.parametrize("number", [0, -1])
def test_as_many_trials_in_flight_as_make_sense(make, number, monkeypatch):
    """Refused also where the package is missing, which must not pass for a check of the number."""
    for package in ("ray", "distributed"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match="in_flight must be"):
        make(in_flight=number)


@pytest.mark.parametrize(("make", "package"), [(RayExecutor, "ray"), (DaskExecutor, "distributed")])
def test_missing_cluster_packages_are_named(make, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=package):
        make()


def test_dask_client(toy):
    asked = []

    class Client:
        __module__ = "distributed.client"

        def nthreads(self):
            return {"tcp://a": 2, "tcp://b": 4}

        def submit(self, fn, *args, pure=True):
            asked.append(pure)
            return MinimalFuture(fn(*args))

    executor = as_executor(Client())
    assert isinstance(executor, DaskExecutor)
    assert executor.in_flight == 12
    assert sweep(toy.ToyStudy(), store=":memory:", executor=executor, progress=False).complete
    assert set(asked) == {False}


def test_ray_cluster(toy, monkeypatch):
    started = []

    def remote(**_options):
        return lambda fn: SimpleNamespace(
            remote=lambda *args: SimpleNamespace(future=lambda: finished(fn(*args)))
        )

    def finished(value) -> Future:
        future: Future = Future()
        future.set_result(value)
        return future

    ray = ModuleType("ray")
    ray.__dict__.update(
        is_initialized=lambda: False,
        init=lambda address: started.append(address),
        remote=remote,
        cluster_resources=lambda: {"CPU": 3.0},
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    executor = RayExecutor("auto")
    assert (started, executor.in_flight) == (["auto"], 6)
    assert sweep(toy.ToyStudy(), store=":memory:", executor=executor, progress=False).complete


SCRIPT = """
from mindgap.jobs.sample.answer import Portable
from mindgap.runs import LocalExecutor

def three():
    return 3

if __name__ == "__main__":
    with LocalExecutor(1) as executor:
        executor.submit(eval, "__import__('multiprocessing') and 1").result()
        print("Portable" in executor.submit(repr, Portable(three)).result())
"""


def test_a_worker_that_knows_multiprocessing_still_loads_the_users_script(tmp_path):
    """Importing multiprocessing puts a module into the place where the script is to go."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "True\n", done.stderr
