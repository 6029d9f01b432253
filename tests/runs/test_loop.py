"""The driving loop by itself: retries, lost workers, answers of an earlier driver, stops."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from threading import Event, Thread

import pytest
from processes import eventually

from mindgap.core import InputError, MindgapError, Progress
from mindgap.runs import SerialExecutor, loop
from mindgap.runs.loop import LOSSES, Job, Work, drive
from mindgap.runs.process import TaskTimeoutError, WorkerLostError


class Squares(Work[int, int]):
    """Squares of numbers; -1 is a failure."""

    title = "A test"

    def __init__(self, function=lambda number: number**2) -> None:
        self.function, self.kept, self.stopped = function, {}, []

    def submit(self, executor, job):
        return executor.submit(self.function, job.item)

    def failed(self, reason, *, late=False):
        self.reason = reason
        return -1

    def keep(self, job, answer):
        assert job.key not in self.kept, "an answer was kept twice"
        self.kept[job.key] = answer
        return answer >= 0

    def stop(self, jobs):
        self.stopped.append([job.key for job in jobs])
        return False


def run(work: Work[int, int], count: int = 5, executor=None, depth: int = 1) -> bool:
    jobs = [Job(f"job {number}", number) for number in range(count)]
    with Progress(count, unit="job", shown=False) as bar:
        return drive(work, jobs, executor or SerialExecutor(), depth, bar)


def squares(*numbers: int) -> dict[str, int]:
    return {f"job {number}": number**2 for number in numbers}


def test_all_jobs_are_run_in_order():
    work = Squares()
    assert run(work) is False
    assert list(work.kept.items()) == list(squares(0, 1, 2, 3, 4).items())
    assert not work.stopped


def raising(error, times):
    calls = []

    def function(number):
        calls.append(number)
        if number == 2 and calls.count(2) <= times:
            raise error
        return number**2

    return function, calls


def test_a_lost_worker_costs_a_chance():
    function, calls = raising(WorkerLostError("gone"), LOSSES - 1)
    work = Squares(function)
    run(work)
    assert work.kept == squares(0, 1, 2, 3, 4)
    assert calls.count(2) == LOSSES


def test_after_too_many_losses_the_job_is_given_up():
    function, calls = raising(WorkerLostError("gone"), LOSSES)
    work = Squares(function)
    run(work)
    assert work.kept == squares(0, 1, 3, 4) | {"job 2": -1}
    assert work.reason == "given up after 3 workers: gone"
    assert calls.count(2) == LOSSES


def test_a_time_out_is_an_answer():
    work = Squares(raising(TaskTimeoutError("too late"), 1)[0])
    run(work)
    assert work.kept["job 2"] == -1
    assert work.reason == "too late"


def test_what_no_worker_could_run_ends_the_loop_and_keeps_the_rest():
    work = Squares(raising(InputError("not picklable"), 1)[0])
    with pytest.raises(InputError, match="not picklable"):
        run(work)
    assert work.kept == squares(0, 1)
    assert work.stopped[0] == ["job 2", "job 3", "job 4"]


def test_bad_answers_may_deserve_another_attempt():
    class Retrying(Squares):
        def retry(self, job, answer):
            return answer < 0 and job.attempt < 2

    answers = iter([0, -1, -1, 1, -1, -1, -1])
    work = Retrying(lambda _: next(answers))
    run(work, 3)
    assert work.kept == {"job 0": 0, "job 1": 1, "job 2": -1}


def test_answers_of_an_earlier_driver_are_kept_and_not_run_again():
    class Resumed(Squares):
        def earlier(self, job):
            return 100 if job.item in (0, 3) else None

    seen = []
    work = Resumed(lambda number: seen.append(number) or number**2)
    run(work)
    assert work.kept == squares(1, 2, 4) | {"job 0": 100, "job 3": 100}
    assert seen == [1, 2, 4]


def test_ctrl_c_stops_and_rescues_what_came_in():
    started, release = Event(), Event()

    def function(number):
        if number == 1:
            started.set()
        (release if number == 1 else started).wait(10)
        return number**2

    class Interrupted(Squares):
        def keep(self, job, answer):
            good = super().keep(job, answer)
            if job.item == 0:
                release.set()
                raise KeyboardInterrupt
            return good

        def rescue(self, job, answer):
            if job.key not in self.kept:
                super().rescue(job, answer)

        def stop(self, jobs):
            super().stop(jobs)
            return True  # worth waiting for

    work = Interrupted(function)
    with ThreadPoolExecutor(2) as pool:
        assert run(work, executor=pool, depth=2) is True
    assert work.kept == squares(0, 1)


def test_nothing_is_awaited_that_nobody_can_end():
    class Interrupting:
        def submit(self, fn, *args):
            if args == (1,):
                raise KeyboardInterrupt
            return Future()  # never done

    work = Squares()
    assert run(work, executor=Interrupting(), depth=2) is True
    assert work.stopped == [["job 0", "job 1", "job 2", "job 3", "job 4"]]
    assert not work.kept


def test_a_broken_executor_is_one_sentence():
    class Broken:
        def submit(self, fn, *args):
            raise BrokenExecutor("gone")

    with pytest.raises(MindgapError, match=r"A test must have an executor that accepts work"):
        run(Squares(), executor=Broken())


class Remarks(Progress):
    """Collects what a progress bar would write."""

    def __init__(self) -> None:
        super().__init__(1, unit="job", shown=False)
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_a_remark_tells_that_nothing_finishes(monkeypatch):
    monkeypatch.setattr(loop, "STALL", 0.03)
    monkeypatch.setattr(loop, "_TICK", 0.01)
    remarks, release = Remarks(), Event()
    with ThreadPoolExecutor(1) as executor:
        work = Squares(lambda number: release.wait(10) and number)
        thread = Thread(target=drive, args=(work, [Job("job 0", 0)], executor, 1, remarks))
        thread.start()
        assert eventually(lambda: len(remarks.notes) == 2), "and again after twice the time"
        release.set()
        thread.join()
    assert remarks.notes[0].startswith("A test has finished nothing for 0 min, with 1 under way.")
    assert "pass a timeout" in remarks.notes[0]


def test_remarks_come_ever_more_rarely_until_an_answer(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    remarks = Remarks()
    stall = loop._Stall("A test", remarks)

    def told(*times):
        remarks.notes.clear()
        for clock[0] in times:
            stall.tick(2, 1)
        return [text.partition(" min")[0].rpartition(" ")[2] for text in remarks.notes]

    assert told(599, 600, 601, 1199, 1200, 2399, 2400) == ["10", "20", "40"]
    assert "with 2 under way (and 1 in other processes)" in remarks.notes[0]
    clock[0] = 3000
    stall.landed()
    assert told(3001, 3599, 3600) == ["10"]


def test_every_answer_ends_a_stall(monkeypatch):
    landed = []

    class Watched(loop._Stall):
        def landed(self):
            landed.append(True)
            super().landed()

    monkeypatch.setattr(loop, "_Stall", Watched)
    run(Squares())
    assert len(landed) == 1 + 5  # the start, then one per job


class Shared(Squares):
    """Another driver has some of the jobs, and settles them after a while."""

    def __init__(self, taken: dict[str, list[str]]) -> None:
        super().__init__()
        self.taken = taken

    def claim(self, job):
        left = self.taken.get(job.key, [])
        return left.pop(0) if left else "ours"


def test_jobs_of_other_drivers_are_awaited_settled_or_taken_over(monkeypatch):
    monkeypatch.setattr(loop, "_TICK", 0.01)
    work = Shared({"job 0": ["taken", "taken", "settled"], "job 1": ["taken"]})
    assert run(work, 4) is False
    assert list(work.kept) == ["job 2", "job 3", "job 1"]


def test_a_limit_counts_claims_and_awaits_nobody():
    work = Shared({"job 0": ["taken"] * 1000})
    with Progress(5, unit="job", shown=False) as bar:
        jobs = [Job(f"job {number}", number) for number in range(5)]
        assert drive(work, jobs, SerialExecutor(), 1, bar, limit=2) is False
    assert list(work.kept) == ["job 1", "job 2"]
