"""Evaluating what a sampler asked: functions and programs, in parallel, with failures, time-outs and kills."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from processes import Forked, eventually

from mindgap.core.errors import InputError, MindgapError
from mindgap.jobs.sample.evaluate import Command, Evaluated, evaluate
from mindgap.jobs.sample.evaluators import Programs
from mindgap.jobs.sample.program import run_program, running
from mindgap.runs import LocalExecutor, SerialExecutor
from mindgap.runs.loop import Job
from mindgap.sampling import Box, TaylorSampler

SQUARE = Box([0, 0], [1, 1])


USER = """
import os
import signal
import subprocess
import time
from pathlib import Path


def total(point):
    return point.sum()


def several(point):
    return [point[0], point[1] ** 2]


def moody(point):
    kind = int(point[0] * 6)
    if kind == 0:
        raise ValueError("too\\nhot")
    if kind == 1:
        time.sleep(60)
    if kind == 2:
        return float("nan")
    if kind == 3:
        return "warm"
    if kind == 4:
        return [1.0, 2.0]
    return point[1]


def flaky(point):
    place = Path(os.environ["FLAKY"]) / str(point[0])
    place.write_text(place.read_text() + "x" if place.exists() else "x")
    if len(place.read_text()) < 3:
        raise RuntimeError("not yet")
    return point.sum()


def dies(point):
    if point[0] < 0.5:
        os.kill(os.getpid(), signal.SIGKILL)
    return point.sum()


def hangs_with_a_child(point):
    subprocess.run(["sleep", "601"], check=True)
"""


@pytest.fixture
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A file of the user's own, on no path."""
    path = tmp_path_factory.mktemp("user") / "apart.py"
    path.write_text(USER)
    spec = importlib.util.spec_from_file_location("apart_target", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["apart_target"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["apart_target"]


def sampler_of(count: int = 6, **settings) -> TaylorSampler:
    sampler = TaylorSampler(None, SQUARE, initial=count, **settings)
    sampler.ask(count)
    return sampler


def expected(sampler: TaylorSampler) -> np.ndarray:
    return sampler.points.numpy().sum(1)


EXECUTORS = {
    "serial": SerialExecutor,
    "local": lambda: LocalExecutor(2),
    "threads": lambda: ThreadPoolExecutor(2),
    "processes": lambda: ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")),
}


@pytest.mark.parametrize("name", EXECUTORS)
def test_functions_run_anywhere(name: str, user: ModuleType) -> None:
    sampler = sampler_of()
    with EXECUTORS[name]() as executor:
        assert evaluate(sampler, sampler.pending, user.total, executor=executor) == Evaluated(6, 0)
    np.testing.assert_array_equal(sampler.values[:, 0], expected(sampler))


def test_several_outputs_and_tensors(user: ModuleType) -> None:
    sampler = sampler_of()
    assert evaluate(sampler, sampler.pending, user.several, executor=SerialExecutor()).done == 6
    assert sampler.values.shape == (6, 2)
    sampler = sampler_of()
    slope = torch.ones(2, dtype=torch.float64, requires_grad=True)
    function = lambda point: (slope * torch.as_tensor(point)).sum()  # noqa: E731
    assert evaluate(sampler, sampler.pending, function, executor=SerialExecutor()).done == 6
    np.testing.assert_array_equal(sampler.values[:, 0], expected(sampler))


def told(points) -> TaylorSampler:
    sampler = TaylorSampler(None, SQUARE, initial=len(points), initial_design="uniform")
    sampler._initial_points = torch.tensor(points, dtype=torch.float64)
    sampler.ask(len(points))
    return sampler


@pytest.mark.parametrize(
    "make", [lambda: LocalExecutor(1), SerialExecutor], ids=["local", "serial"]
)
def test_failures_of_functions_are_told_and_the_rest_goes_on(make, user: ModuleType) -> None:
    sampler = told([[0.99, 0.5], [0.1, 0], [0.2, 0], [0.4, 0], [0.6, 0], [0.7, 0], [0.9, 0.25]])
    with make() as executor:
        began = time.monotonic()
        found = evaluate(sampler, sampler.pending, user.moody, executor=executor, timeout=1.0)
    assert time.monotonic() - began < 30
    assert found == Evaluated(2, 5)
    assert sampler.values.tolist() == [[0.5], [0.25]]
    assert sampler.failed == {
        1: "ValueError: too hot",
        2: "no answer within 1 s",
        3: "the value is not finite: nan",
        4: "ValueError: could not convert string to float: 'warm'",
        5: "2 numbers where the other points have 1",
    }
    assert not sampler.pending


@pytest.mark.parametrize(("retries", "done"), [(1, 0), (2, 4)])
def test_retries_are_so_many_more_attempts(
    retries: int, done: int, tmp_path: Path, monkeypatch, user: ModuleType
) -> None:
    monkeypatch.setenv("FLAKY", str(tmp_path))
    sampler = sampler_of(4)
    assert (
        evaluate(
            sampler, sampler.pending, user.flaky, executor=SerialExecutor(), retries=retries
        ).done
        == done
    )
    assert {len(path.read_text()) for path in tmp_path.iterdir()} == {retries + 1}


def test_a_function_that_kills_its_worker_is_given_up(user: ModuleType) -> None:
    sampler = told([[0.1, 0.1], [0.9, 0.5]])
    with LocalExecutor(1) as executor:
        assert evaluate(sampler, sampler.pending, user.dies, executor=executor) == Evaluated(1, 1)
    assert "given up after 3 workers" in sampler.failed[0]
    assert "SIGKILL" in sampler.failed[0]


def test_a_time_out_leaves_no_process(user: ModuleType) -> None:
    sampler = told([[0.1, 0.1]])
    before = sleepers(601)
    with LocalExecutor(1) as executor:
        assert (
            evaluate(
                sampler, sampler.pending, user.hangs_with_a_child, executor=executor, timeout=0.5
            ).failed
            == 1
        )
    assert eventually(lambda: sleepers(601) <= before, 5)


def sleepers(seconds: int) -> set[int]:
    """Every test sleeps for a time of its own, so that tests that run at the same time do not see each other's."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == b"sleep\x00%d\x00" % seconds:
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


# Programs


def program(folder: Path, body: str, name: str = "sim") -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return path


ADD = 'awk "BEGIN {{ printf \\"%.17g\\\\n\\", $1 + $2 }}"\n'.replace("{{", "{").replace("}}", "}")


@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize("name", ["default", "serial", "local"])
def test_programs_run_anywhere(name: str, session: bool, tmp_path: Path) -> None:
    sim = program(tmp_path, "echo some words\n" + ADD)
    path = tmp_path / "run.jsonl" if session else None
    with TaylorSampler(None, SQUARE, initial=6, session=path) as sampler:
        sampler.ask(6)
        executor = None if name == "default" else EXECUTORS[name]()
        assert evaluate(
            sampler, sampler.pending, Command(f"{sim} {{0}} {{1}}"), executor=executor
        ) == Evaluated(6, 0)
        np.testing.assert_allclose(sampler.values[:, 0], expected(sampler), rtol=1e-15)
        if executor is not None:
            executor.shutdown()
    assert not (tmp_path / "run.jsonl.work").exists()


def one(tmp_path: Path, command: str, dimension: int = 2, **settings) -> TaylorSampler:
    sampler = TaylorSampler(
        None, Box([0] * dimension, [1] * dimension), initial=1, session=tmp_path / "s.jsonl"
    )
    sampler.ask(1)
    evaluate(sampler, sampler.pending, Command(command), **settings)
    sampler.close()
    return sampler


PRINTED = {
    "0.5": [0.5],
    "1, 2": [1.0, 2.0],
    "1 2e-3 -3": [1.0, 2e-3, -3.0],
    "[1, 2.5]": [1.0, 2.5],
    "noise\\n4;5\\n\\n": [4.0, 5.0],
}


@pytest.mark.parametrize("text", PRINTED)
def test_what_a_program_prints(text: str, tmp_path: Path) -> None:
    assert one(tmp_path, f"printf '{text}' {{x}}").answers == {0: PRINTED[text]}


FAILING = {
    "echo oh; echo no fuel >&2; exit 3": "exit code 3: no fuel",
    "echo warm": "the last line printed is not numbers: 'warm'",
    "exit 0": "nothing was printed",
    "echo 1 nan": "the value is not finite: 1.0, nan",
    "echo inf; echo overflow >&2": "the value is not finite: inf: overflow",
    "kill -SEGV $$": "killed by SIGSEGV",
    "echo '[1, true]'": "the last line printed is not numbers: '[1, true]'",
    "echo wait >&2; sleep 600": "no answer within 0.5 s: wait",
}


@pytest.mark.parametrize("body", FAILING)
def test_how_a_program_fails(body: str, tmp_path: Path) -> None:
    sampler = one(tmp_path, f"{program(tmp_path, body)} {{0}}", timeout=0.5)
    assert sampler.failed == {0: FAILING[body]}
    kept = sorted(path.name for path in (tmp_path / "s.jsonl.work").iterdir())
    assert kept == ["0.err", "0.out"]  # to be looked at


def test_a_hung_program_is_killed_with_its_children(tmp_path: Path) -> None:
    before = sleepers(602)
    sampler = one(tmp_path, f"{program(tmp_path, 'sleep 602 & sleep 602')} {{0}}", timeout=0.3)
    assert sampler.failed
    assert eventually(lambda: sleepers(602) <= before, 5)


def test_retries_of_a_program(tmp_path: Path) -> None:
    body = f"echo x >> {tmp_path}/log; [ $(wc -l < {tmp_path}/log) -ge 3 ] && echo 7"
    assert one(tmp_path, f"{program(tmp_path, body)} {{0}}", retries=2).answers == {0: [7.0]}
    assert not (tmp_path / "s.jsonl.work").exists()


def test_templates(tmp_path: Path) -> None:
    point = (0.1 + 0.2, 1e-20)
    assert Command("a {0} -y={1}").words(point, 3, "f") == ["a", "0.30000000000000004", "-y=1e-20"]
    assert Command("a '{x}' b={x}").words(point, 3, "f") == [
        "a", "0.30000000000000004", "1e-20", "b=0.30000000000000004 1e-20",
    ]  # fmt: skip
    assert Command("awk '{print $1}' {file}").words(point, 3, "a b") == ["awk", "{print $1}", "a b"]
    assert Command("a {heat} {1}", names=("heat", "cold")).words((1, 2), 3, "f") == [
        "a",
        "1.0",
        "2.0",
    ]
    assert Command("a {file} | tail", shell=True).words(point, 3, "a b") == ["a 'a b' | tail"]
    answers = one(
        tmp_path,
        f"{sys.executable} -c 'import json,sys; print(json.load(open(sys.argv[1])))' {{file}}",
    )
    assert tuple(answers.answers[0]) == answers.asked[0].point


def test_a_shell_is_called_on_request(tmp_path: Path) -> None:
    sampler = sampler_of(2)
    evaluate(sampler, sampler.pending, Command("echo {0} {1} | tr ' ' ','", shell=True))
    np.testing.assert_array_equal(sampler.values, sampler.points)


BAD = {
    "nothing": (lambda s: evaluate(s, s.pending, Command("  ")), "got nothing"),
    "quotes": (lambda s: evaluate(s, s.pending, Command("a 'b {0}")), "quotes in pairs"),
    "no place": (lambda s: evaluate(s, s.pending, Command("ls")), "where the point goes"),
    "wrong place": (lambda s: evaluate(s, s.pending, Command("ls {xx}")), "Did you mean 'x'"),
    "too far": (lambda s: evaluate(s, s.pending, Command("ls {0} {2}")), r"from 0 to 1, got \{2\}"),
    "no program": (
        lambda s: evaluate(s, s.pending, Command("./nowhere {0}")),
        "program that can be run",
    ),
    "no function": (
        lambda s: evaluate(s, s.pending, "./sim {0}"),
        "function of one point or a Command",
    ),
    "timeout": (lambda s: evaluate(s, s.pending, sum, timeout=0.0), "timeout must be above 0"),
    "retries": (lambda s: evaluate(s, s.pending, sum, retries=-1), "retries must be"),
    "workers": (lambda s: evaluate(s, s.pending, sum, workers=0), "workers must be"),
    "executor": (lambda s: evaluate(s, s.pending, sum, executor=3), "submit"),
    "lambda": (lambda s: evaluate(s, s.pending, lambda point: 1.0), "must be picklable"),
    "told": (lambda s: (s.tell(0, 1.0), evaluate(s, s.asked, sum)), "must be pending"),
}


@pytest.mark.parametrize("case", BAD)
def test_says_what_is_wrong_and_loses_nothing(case: str) -> None:
    sampler = sampler_of(3)
    call, words = BAD[case]
    with pytest.raises(MindgapError, match=words):
        call(sampler)
    assert not sampler.failed


def test_a_broken_executor_keeps_what_is_told() -> None:
    class Broken(SerialExecutor):
        calls = 0

        def submit(self, fn, /, *args, **kwargs):
            self.calls += 1
            if self.calls > 2:
                raise BrokenExecutor("gone")
            return super().submit(fn, *args, **kwargs)

    sampler = sampler_of(4)
    with pytest.raises(MindgapError, match="What is finished is kept"):
        evaluate(sampler, sampler.pending, sum, executor=Broken())
    assert len(sampler.points) == 2


def interrupt(condition) -> threading.Thread:
    def wait() -> None:
        eventually(condition)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize(("name", "seconds"), [("default", 603), ("serial", 604), ("local", 605)])
def test_ctrl_c_keeps_what_is_done_and_ends_the_programs(
    name: str, seconds: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    sim = program(tmp_path, f"echo $3 >> {log}; [ $3 -lt 3 ] || sleep {seconds}; echo 1")
    before = sleepers(seconds)
    executor = None if name == "default" else EXECUTORS[name]()
    with TaylorSampler(None, SQUARE, initial=6, session=tmp_path / "s.jsonl") as sampler:
        sampler.ask(6)
        begun = lambda: log.exists() and len(log.read_text().split()) > 3  # noqa: E731
        thread = interrupt(lambda: begun() and len(sampler.points) == 3)
        command = Command(f"{sim} {{0}} {{1}} {{number}}")
        found = evaluate(sampler, sampler.pending, command, executor=executor, workers=2)
        thread.join()
        assert found == Evaluated(3, 0, interrupted=True)
        assert [point.number for point in sampler.pending] == [3, 4, 5]
        if executor is not None:
            executor.shutdown()
        time.sleep(1.0)  # for a wrapper that was just starting
        assert sleepers(seconds) <= before
    assert eventually(lambda: not running(str(tmp_path / "s.jsonl.work" / "3")), 5)


def test_a_wrapper_that_starts_after_the_stop_runs_nothing(tmp_path: Path) -> None:
    """The worker was killed when its wrapper had no number yet: the mark stops it; the next attempt is not hindered."""
    from mindgap.jobs.sample import program as evaluate_program, wrapper

    sim = program(tmp_path, f"echo run >> {tmp_path}/log; echo 1")
    with TaylorSampler(None, SQUARE, initial=1, session=tmp_path / "s.jsonl") as sampler:
        sampler.ask(1)
        attempt = Programs(Command(f"{sim} {{0}}"), sampler, None, 0)._attempt(
            Job(0, sampler.pending[0]), None
        )
        Path(attempt.stem).parent.mkdir()
        evaluate_program.stop(attempt.stem)
        order = json.dumps({**dataclasses.asdict(attempt), "parent": 0})
        late = subprocess.run([sys.executable, wrapper.__file__, order], check=False)
        assert late.returncode == wrapper.STOPPED
        assert not (tmp_path / "log").exists()
        assert evaluate(sampler, sampler.pending, Command(f"{sim} {{0}}")) == Evaluated(1, 0)
    assert (tmp_path / "log").read_text() == "run\n"
    assert not (tmp_path / "s.jsonl.work").exists()


# Kill -9


def drive(sim: Path, session: Path, count: int, kind: str) -> None:
    """What a killed process does: evaluate points in batches of four until there are enough."""
    command = Command(f"{sim} {{0}} {{1}} {{number}}")
    executor = LocalExecutor(2) if kind == "local" else None
    with TaylorSampler(None, SQUARE, initial=8, session=session) as sampler:
        while sampler.pending or len(sampler.asked) < count:
            asked = sampler.pending or sampler.ask(4)
            evaluate(sampler, asked, command, executor=executor, workers=2)
    if executor is not None:
        executor.shutdown()


POINTS, KILLS = 60, 5


def children(pid: int) -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.add(int(path.parent.name))
        except (OSError, ValueError):
            continue
    return found


def workers_of(pid: int) -> set[int]:
    """Its children but the wrappers of programs."""
    found = set()
    for child in children(pid):
        try:
            if b"sample/wrapper" not in Path(f"/proc/{child}/cmdline").read_bytes():
                found.add(child)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("kind", ["threads", "local"])
def test_kill_loses_no_evaluated_point_and_evaluates_none_twice(kind: str, tmp_path: Path) -> None:
    log, session = tmp_path / "log", tmp_path / "run.jsonl"
    sim = program(tmp_path, f"sleep 0.0$((1 + $3 % 9)); echo $3 >> {log}; sleep 0.02\n{ADD}")
    random, completed = (
        np.random.default_rng(0),
        lambda: len(log.read_text().split()) if log.exists() else 0,
    )
    killed = ahead = 0
    for _ in range(KILLS):
        driver, before = (
            Forked(drive, sim, session, POINTS, kind),
            completed(),
        )
        goal = before + int(random.integers(2, 7))
        eventually(
            lambda goal=goal, driver=driver: completed() >= goal or driver.poll() is not None, 60
        )
        time.sleep(float(random.uniform(0, 0.05)))
        for pid in [*workers_of(driver.pid), driver.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed += driver.wait() == -signal.SIGKILL
        ahead += completed() > sum("told" in line for line in session.read_text().splitlines())
    assert killed == KILLS
    assert Forked(drive, sim, session, POINTS, kind).wait(120) == 0

    evaluations = Counter(map(int, log.read_text().split()))
    events = [json.loads(line) for line in session.read_text().splitlines()[1:]]
    tellings = Counter(event["told"] for event in events if "told" in event)
    assert evaluations == Counter(range(POINTS)), "a point was evaluated twice, or never"
    assert tellings == Counter(range(POINTS)), "an evaluated point was lost, or told twice"
    assert not any("failed" in event for event in events)
    with TaylorSampler(None, SQUARE, initial=8, session=session) as sampler:
        np.testing.assert_allclose(sampler.values[:, 0], expected(sampler), rtol=1e-15)
        assert evaluate(sampler, [], Command(f"{sim} {{0}} {{1}}")) == Evaluated(
            0, 0
        )  # clears what a kill left
    assert not Path(f"{session}.work").exists()
    assert ahead, (
        "no kill fell between the end of a program and its telling: the test shows nothing"
    )


def test_finished_programs_are_harvested_and_running_ones_awaited(tmp_path: Path) -> None:
    """A driver that is killed when one program has ended, untold, and another still runs."""
    log, session = tmp_path / "log", tmp_path / "run.jsonl"
    wait = f"while [ ! -e {tmp_path}/go$(( $3 > 0 )) ]; do sleep 0.02; done"
    sim = program(tmp_path, f"echo $3 >> {log}; {wait}; echo $3")
    begun = lambda: sorted(log.read_text().split()) if log.exists() else []  # noqa: E731
    first = Forked(drive, sim, session, 4, "threads")
    assert eventually(lambda: begun() == ["0", "1"], 60)
    os.kill(first.pid, signal.SIGSTOP)
    (tmp_path / "go0").touch()
    work = Path(f"{session}.work")
    assert eventually((work / "0.rc").exists)
    first.kill()
    first.wait()
    assert "told" not in session.read_text()
    assert running(str(work / "1"))
    second = Forked(drive, sim, session, 4, "threads")
    assert eventually(lambda: '"told": 0' in session.read_text(), 60)
    assert eventually(lambda: "2" in begun())
    time.sleep(0.3)
    assert begun().count("0") == begun().count("1") == 1
    (tmp_path / "go1").touch()
    assert second.wait(60) == 0
    assert begun() == ["0", "1", "2", "3"]
    assert sum("told" in line for line in session.read_text().splitlines()) == 4


def test_files_of_another_session_are_not_taken(tmp_path: Path) -> None:
    sim = program(tmp_path, "echo 1")
    session = tmp_path / "s.jsonl"
    with TaylorSampler(None, SQUARE, initial=2, session=session) as sampler:
        sampler.ask(2)
        kind = Programs(Command(f"{sim} {{0}}"), sampler, None, 0)
        assert run_program(kind._attempt(Job(0, sampler.pending[0]), None)).values == (1.0,)
        assert kind.harvest(Job(0, sampler.pending[0]), None).values == (1.0,)
    session.unlink()
    program(tmp_path, "echo 2")
    with TaylorSampler(None, SQUARE, initial=2, session=session) as sampler:
        sampler.ask(2)
        evaluate(sampler, sampler.pending, Command(f"{sim} {{0}}"))
        assert sampler.values.tolist() == [[2.0], [2.0]]


def test_points_that_are_known_already(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    for _ in range(2):
        with TaylorSampler(None, SQUARE, initial=2, session=path, initial_design="grid") as sampler:
            if not sampler.asked:
                given = sampler.know([[0.1, 0.2], [5.0, 6.0]], [[1.0, 2.0], [3.0, 4.0]])
                assert [point.why for point in given] == ["given", "given"]
            assert sampler.values.tolist() == [[1.0, 2.0], [3.0, 4.0]]
            assert sampler.found().new.tolist() == [False, False]
    with TaylorSampler(None, SQUARE, initial=2, session=path, initial_design="grid") as sampler:
        assert [point.why for point in sampler.ask(3)] == ["initial", "initial", "acquisition"]
        for bad in ([[1.0]], [[1.0, float("inf")]]):
            with pytest.raises(InputError):
                sampler.know([[0.3, 0.3]], bad)
        assert len(sampler.asked) == 5
