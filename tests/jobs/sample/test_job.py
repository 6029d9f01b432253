"""The job `sample` from Python: one call, files of points, a queue, and errors on the way."""

import csv
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mindgap import sample
from mindgap.core.errors import InputError
from mindgap.jobs.sample.csv import Columns
from mindgap.jobs.sample.job import Sampling
from mindgap.runs import SerialExecutor
from mindgap.sampling import Acquisition, Box, Proposal, TaylorSampler

LINE = Box(0, 1)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def square(points: Tensor) -> Tensor:
    return points[:, 0] ** 2


def test_settings_arrive_at_the_sampler() -> None:
    done = sample(
        square,
        LINE,
        initial=4,
        initial_design="grid",
        acquisition={"epsilon": 0.01},
        proposal="mixture",
        seed=3,
        new=2,
        differentiable=True,
    )
    alike = TaylorSampler(
        square,
        LINE,
        initial=4,
        initial_design="grid",
        acquisition=Acquisition(epsilon=0.01),
        proposal=Proposal(kind="mixture"),
        seed=3,
    )
    assert done.sampler.settings() == alike.settings()
    assert torch.equal(done.points, alike.run(2).points)


def test_known_points_of_a_file_replace_the_initial_design(tmp_path: Path) -> None:
    first = sample(lambda x: x[0], LINE, initial=6, new=0, executor=SerialExecutor())
    path = first.save(tmp_path / "points.csv")
    more = sample(lambda x: x[0], known=path, new=2, executor=SerialExecutor())
    assert str(more).splitlines()[0] == "8 points known: 6 given, 2 new"
    assert torch.equal(more.points[:6], first.points)


def test_a_queue_asks_and_tells_through_files(tmp_path: Path) -> None:
    session, values = tmp_path / "run.jsonl", tmp_path / "done.csv"
    columns = Columns(inputs=("heat",), outputs=("energy",))
    asked = sample(None, LINE, initial=3, session=session, ask=3, columns=columns)
    assert [one.why for one in asked.asked or ()] == ["initial"] * 3
    table = rows(asked.save(tmp_path / "ask.csv"))
    assert list(table[0]) == ["number", "heat"]
    assert asked.to_dict()["asked"][0] == {"number": 0, "x": [float(table[0]["heat"])]}
    values.write_text("number,energy,error\n0,1.5,\n1,,too hot\n")
    told = sample(session=session, tell=values, columns=columns)
    assert (told.taken, told.lost) == (1, 1)
    assert told.failed == {1: "too hot"}
    again = sample(session=session, tell=values, ask=0, columns=columns)
    assert (again.taken, again.lost) == (0, 0)
    assert [one.number for one in again.asked or ()] == [2]


def test_what_is_known_is_handed_over_before_an_error() -> None:
    def breaks(points: Tensor) -> Tensor:
        if len(points) == 2:
            raise ValueError("no more coolant")
        return square(points)

    rescued: list[Sampling] = []
    with pytest.raises(InputError, match="must run without an error, got ValueError: no more"):
        sample(
            breaks,
            LINE,
            initial=5,
            new=2,
            acquisition="neighbors",
            differentiable=True,
            on_error=rescued.append,
        )
    assert len(rescued[0].points) == 5


def test_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There must be a domain"):
        sample(square)
    with pytest.raises(InputError, match="must be a name for each of 1 inputs"):
        sample(square, LINE, columns=Columns(inputs=("a", "b")))
    with pytest.raises(InputError, match="ask must be an integer"):
        sample(None, LINE, ask=-1)
    with pytest.raises(InputError, match="existing CSV file"):
        sample(square, known=tmp_path / "none.csv")


def test_uniform_points_are_compared_with_and_kept(tmp_path: Path) -> None:
    """They are evaluated once, are no part of the sample, and the session gives them back."""

    calls = []

    def steep(point: Tensor) -> float:
        calls.append(point)
        return math.tanh(20 * (float(point[0]) - 0.5))

    def run(**more: object):
        place, session = Box(0, 1), tmp_path / "run.jsonl"
        return sample(
            steep, place, initial=12, new=12, session=session, executor=SerialExecutor(), **more
        )

    done = run(compare=15)
    assert len(calls) == 12 + 12 + 15
    assert len(done.points) == 24
    assert len(done.fresh.points) == 15
    assert done.comparison.extra == done.comparison.tested == 15
    assert done.comparison.sentences[0] in str(done)
    assert len(done.to_dict()["uniform_points"]) == 15
    assert done.to_dict()["comparison"]["word"] == done.comparison.word
    again = run()
    assert len(calls) == 39
    assert again.comparison == done.comparison
    text = done.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Would uniform points have done as well?" in text
    assert "15 evaluations spent on the comparison alone" in text


@pytest.mark.parametrize("words", [{"compare": 9}, {"compare": -1}, {"compare": 20, "ask": 3}])
def test_a_comparison_that_cannot_be_made_is_refused(words: dict[str, int]) -> None:

    with pytest.raises(InputError, match="compare must"):
        sample(lambda point: point[0], Box(0, 1), **words)
