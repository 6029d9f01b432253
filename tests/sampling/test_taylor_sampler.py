"""The sampler: one-shot, ask and tell, sessions that survive anything."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import Forked
from torch import Tensor

from mindgap.core.errors import InputError, MindgapError
from mindgap.sampling import (
    Acquisition,
    Box,
    Proposal,
    Simplex,
    TaylorSampler,
    Where,
    initial_design,
)
from mindgap.sampling.proposal import PROPOSALS
from mindgap.sampling.trail import saved_settings


def steep(points: Tensor) -> Tensor:
    """Flat but for a step at 0.3."""
    return torch.tanh(20 * (points[:, 0] - 0.3))


SQUARE = Box([0, 0], [1, 1])


KINDS = [
    (kind, proposal) for kind in ("derivative", "differences", "sampled") for proposal in PROPOSALS
]


@pytest.mark.parametrize(
    ("acquisition", "proposal"), [*KINDS, ("neighbors", "pool"), ("neighbors", "mixture")]
)
def test_new_points_gather_where_the_function_is_steep(acquisition: str, proposal: str) -> None:
    sampler = TaylorSampler(
        steep, SQUARE, initial=64, acquisition=acquisition, proposal=proposal, seed=1
    )
    found = sampler.run(200)
    assert found.points.shape == (264, 2)
    assert bool(SQUARE.contains(found.points).all())
    assert int(found.new.sum()) == 200
    near = (found.points[found.new, 0] - 0.3).abs() < 0.2
    assert near.double().mean() > 0.55  # 0.4 by chance
    torch.testing.assert_close(found.values[:, 0], steep(found.points))


def test_uniform_share_is_kept() -> None:
    draw = Proposal(kind="exact", uniform_share=0.5, temper=1.0)
    sampler = TaylorSampler(steep, SQUARE, initial=16, proposal=draw)
    new = sampler.run(400).points[16:]
    away = (new[:, 0] - 0.3).abs() > 0.3
    assert 0.15 < away.double().mean() < 0.3  # 0.4 of the uniform half


def test_later_rounds_of_a_mixture_do_not_crowd_further() -> None:
    """Known points that gather in steep places do not attract ever more points there."""
    draw = Proposal(kind="mixture", temper=1.0, cap=1.0, components=4)
    shares = []
    for rounds in (1, 4):
        sampler = TaylorSampler(
            lambda x: torch.sin(6 * x[:, 0]), Box(0, 1), initial=64, proposal=draw, seed=2
        )
        found = sampler.run(800, rounds=rounds)
        last = found.points[-200:, 0]
        shares.append(float(torch.cos(6 * last).square().mean()))
    assert shares[1] == pytest.approx(shares[0], abs=0.08)


def test_rounds_and_ask_tell_equal_each_other() -> None:
    by_run = TaylorSampler(steep, SQUARE, initial=9, acquisition="neighbors", seed=3).run(
        12, rounds=3
    )
    sampler = TaylorSampler(None, SQUARE, initial=9, acquisition="neighbors", seed=3)
    for count in (9, 4, 4, 4):
        asked = sampler.ask(count)
        sampler.tell_many((one, steep(torch.tensor([one.point]))) for one in asked)
    torch.testing.assert_close(sampler.points, by_run.points, rtol=0, atol=0)


def test_the_initial_design_is_served_first_and_unanswered_points_do_not_count() -> None:
    sampler = TaylorSampler(None, Box(-1, 1), initial=4, initial_design="grid")
    assert [one.why for one in sampler.ask(6)] == ["initial"] * 4 + ["acquisition"] * 2
    grid = initial_design("grid", 4, Box(-1, 1))
    assert [one.point for one in sampler.pending[:4]] == [tuple(row) for row in grid.tolist()]
    assert len(sampler.points) == 0
    sampler.tell(2, 1.5)
    sampler.fail(3, "the simulator crashed")
    sampler.tell(0, float("nan"))
    assert sampler.points.tolist() == [list(sampler.pending[0].point)] or len(sampler.points) == 1
    assert sampler.values.tolist() == [[1.5]]
    assert sampler.failed == {3: "the simulator crashed", 0: "the value is not finite"}
    assert [one.number for one in sampler.pending] == [1, 4, 5]


def test_several_outputs_and_other_domains() -> None:
    disc = Where(Box([-1, -1], [1, 1]), lambda x: x.square().sum(1) < 1)
    for domain in (Simplex(2), disc):
        found = TaylorSampler(
            lambda x: torch.stack([x[:, 0], x[:, 1] ** 2], 1), domain, initial=20
        ).run(30)
        assert found.values.shape == (50, 2)
        assert bool(domain.contains(found.points).all())


def test_a_session_resumes(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "one.jsonl"
    whole = TaylorSampler(None, SQUARE, initial=8, seed=5)
    for _ in range(4):
        for one in whole.ask(4):
            whole.tell(one, steep(torch.tensor([one.point])))
    for _ in range(4):  # a new sampler for every round
        with TaylorSampler(None, SQUARE, initial=8, seed=5, session=path) as part:
            for one in part.ask(4):
                part.tell(one, steep(torch.tensor([one.point])))
    with TaylorSampler(None, SQUARE, initial=8, seed=5, session=path) as again:
        torch.testing.assert_close(again.points, whole.points, rtol=0, atol=0)
        torch.testing.assert_close(again.values, whole.values, rtol=0, atol=0)
        assert not again.pending
    assert saved_settings(path)["initial"] == 8


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    with TaylorSampler(None, SQUARE, initial=4, session=path) as sampler:
        asked = sampler.ask(4)
        sampler.tell(asked[0], 1.0)
    with path.open("ab") as file:
        file.write(b'{"told": 1, "val')
    with TaylorSampler(None, SQUARE, initial=4, session=path) as sampler:
        assert [one.number for one in sampler.pending] == [1, 2, 3]
        sampler.tell(1, 2.0)
    lines = path.read_text().splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert len(lines) == 1 + 4 + 2


def test_a_session_has_one_writer_and_its_own_settings(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    with (
        TaylorSampler(None, SQUARE, initial=4, session=path),
        pytest.raises(InputError, match="another process"),
    ):
        TaylorSampler(None, SQUARE, initial=4, session=path)
    with pytest.raises(InputError, match="initial=5 where"):
        TaylorSampler(None, SQUARE, initial=5, session=path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="one JSON object per line"):
        TaylorSampler(None, SQUARE, initial=4, session=path)
    with pytest.raises(InputError, match="must be a sampling session"):
        saved_settings(path)


def test_a_lock_that_a_killed_driver_left_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    """A program that it was just starting inherits the lock until it is loaded."""
    path = tmp_path / "session.jsonl"
    first = TaylorSampler(None, SQUARE, initial=4, session=path)
    release = threading.Timer(0.1, first.close)
    release.start()
    with TaylorSampler(None, SQUARE, initial=4, session=path) as sampler:
        assert len(sampler.ask(4)) == 4
    release.join()


def tell_sixty(session: Path, told: Path) -> None:
    with TaylorSampler(None, SQUARE, initial=8, session=session) as sampler:
        while len(sampler.points) < 60:
            for one in sampler.pending or sampler.ask(2):
                value = one.point[0] + one.point[1]
                sampler.tell(one, value)
                with told.open("a") as file:  # only after tell has returned
                    file.write(f"{one.number} {value!r}\n")
                time.sleep(0.002)


def test_kill_loses_no_told_value(tmp_path: Path) -> None:
    """Ten kill -9 at random moments: every value whose tell returned is there, none is told twice."""
    session, told = tmp_path / "session.jsonl", tmp_path / "told"
    random = np.random.default_rng(0)
    for turn in range(10):
        process = Forked(tell_sixty, session, told)
        deadline, before = time.monotonic() + 60, told.stat().st_size if told.exists() else 0
        while process.poll() is None and time.monotonic() < deadline:
            if told.exists() and told.stat().st_size > before + int(random.integers(20, 150)):
                process.kill()
                break
            time.sleep(0.002)
        process.wait()
        if turn == 0:
            assert told.exists()
    with TaylorSampler(None, SQUARE, initial=8, session=session) as sampler:
        known = dict(
            zip(
                (k for k in range(len(sampler._trail)) if k in sampler._trail.answers),
                sampler.values,
                strict=True,
            )
        )
    lines = [line.split() for line in told.read_text().splitlines() if len(line.split()) == 2]
    assert len(lines) > 10
    assert len({number for number, _ in lines}) == len(lines)
    for number, value in lines:
        assert known[int(number)][0] == pytest.approx(float(value), rel=1e-9)


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "domain": (lambda: TaylorSampler(steep, (0, 1)), "domain must be"),  # type: ignore[arg-type]
    "acquisition": (
        lambda: TaylorSampler(steep, SQUARE, acquisition="entropy"),
        "acquisition must be",
    ),
    "proposal": (lambda: TaylorSampler(steep, SQUARE, proposal="gauss"), "proposal must be"),
    "no function": (lambda: TaylorSampler(None, SQUARE).run(3), "must have a function"),
    "derivative of nothing": (
        lambda: _told(TaylorSampler(None, SQUARE, acquisition="derivative", initial=2)).ask(1),
        "must have a function",
    ),
    "exact of nothing": (
        lambda: _told(TaylorSampler(None, SQUARE, proposal="exact", initial=8)).ask(1),
        "anywhere",
    ),
    "twice": (lambda: _told(TaylorSampler(None, SQUARE, initial=2)).tell(0, 1.0), "told once"),
    "not asked": (lambda: TaylorSampler(None, SQUARE).tell(7, 1.0), "was asked"),
    "length": (lambda: _longer(TaylorSampler(None, SQUARE)), "must have 1 numbers"),
    "empty": (lambda: _longer(TaylorSampler(None, SQUARE), []), "one number or more"),
    "scalar": (
        lambda: TaylorSampler(lambda x: x.sum(), SQUARE, acquisition="neighbors").run(1),
        "each of 16 rows",
    ),
    "numpy": (
        lambda: TaylorSampler(lambda x: np.sin(x.numpy()), SQUARE).run(1),
        "must be one that torch",
    ),
    "epsilon": (lambda: Acquisition(epsilon=0.0), "epsilon must be above 0"),
    "cap": (lambda: Proposal(cap=0.0), "cap must be above 0"),
    "temper": (lambda: Proposal(temper=2.0), "temper must be"),
}


def _told(sampler: TaylorSampler) -> TaylorSampler:
    for one in sampler.ask(sampler.initial):
        sampler.tell(one, sum(one.point))
    return sampler


def _longer(sampler: TaylorSampler, second: object = (1.0, 2.0)) -> None:
    first, other = sampler.ask(2)
    sampler.tell(first, 1.0)
    sampler.tell(other, second)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", sorted(BAD))
def test_says_what_is_wrong(case: str) -> None:
    call, words = BAD[case]
    with pytest.raises(MindgapError, match=words):
        call()
