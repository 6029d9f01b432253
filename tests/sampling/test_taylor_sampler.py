"""The sampler: one-shot, ask and tell, sessions that survive anything."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mindgap.core.errors import InputError, MindgapError
from mindgap.sampling import Box, Draw, Interest, Simplex, TaylorSampler, Where, start_points
from mindgap.sampling.journal import saved_settings
from mindgap.sampling.proposal import DENSITIES, carried, cell_shares, drawn


def steep(points: Tensor) -> Tensor:
    """Flat but for a step at 0.3."""
    return torch.tanh(20 * (points[:, 0] - 0.3))


SQUARE = Box([0, 0], [1, 1])


KINDS = [
    (kind, density) for kind in ("derivative", "differences", "sampled") for density in DENSITIES
]


@pytest.mark.parametrize(
    ("interest", "density"), [*KINDS, ("neighbors", "pool"), ("neighbors", "mixture")]
)
def test_new_points_gather_where_the_function_is_steep(interest: str, density: str) -> None:
    sampler = TaylorSampler(steep, SQUARE, initial=64, interest=interest, density=density, seed=1)
    found = sampler.run(200)
    assert found.points.shape == (264, 2)
    assert bool(SQUARE.contains(found.points).all())
    assert int(found.new.sum()) == 200
    near = (found.points[found.new, 0] - 0.3).abs() < 0.2
    assert near.double().mean() > 0.55  # 0.4 by chance
    torch.testing.assert_close(found.values[:, 0], steep(found.points))


def test_draws_follow_the_tempered_and_capped_interest() -> None:
    """Candidates in proportion to the weights: counted in slices, against the integral."""
    domain = Box(0, 1)
    draw = Draw(density="exact", temper=1.0, cap=1.0, pool=200)
    random = torch.Generator().manual_seed(0)
    found = draw.points(
        4000, domain, torch.zeros(1, 1), torch.ones(1), lambda x: x[:, 0] ** 2, random
    )[:, 0]
    share = torch.histc(found, 5, 0, 1) / 4000
    expected = torch.tensor([(k + 1) ** 3 - k**3 for k in range(5)]) / 125
    assert float((share - expected).abs().max()) < 0.02
    half = Draw(density="exact", temper=0.5, cap=1.0, pool=200)
    found = half.points(
        4000, domain, torch.zeros(1, 1), torch.ones(1), lambda x: x[:, 0] ** 2, random
    )[:, 0]
    expected = torch.tensor([(k + 1) ** 2 - k**2 for k in range(5)]) / 25
    assert float((torch.histc(found, 5, 0, 1) / 4000 - expected).abs().max()) < 0.02


def test_weights_are_capped_and_never_all_zero() -> None:
    values = torch.cat([torch.ones(99), torch.tensor([1e9])])
    assert Draw(cap=0.99, temper=1).weights(values).tolist() == [1.0] * 100
    assert Draw(cap=1, temper=1).weights(values)[0] == pytest.approx(1e-9)
    assert Draw().weights(torch.zeros(5)).tolist() == [1.0] * 5
    spike = torch.cat([torch.zeros(999), torch.ones(1)])
    assert Draw(cap=0.9).weights(spike).sum() == 1  # the cap is zero, the spike is not
    assert Draw().weights(torch.tensor([1.0, float("nan"), float("inf")])).tolist() == [
        1.0,
        0.0,
        0.0,
    ]


def test_interest_is_carried_to_candidates() -> None:
    known = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    weights = torch.tensor([0.0, 1.0], dtype=torch.float64)
    found = carried(
        weights, known, torch.tensor([[0.0], [0.5], [1.0], [0.9]], dtype=torch.float64), Box(0, 1)
    )
    assert found.tolist() == pytest.approx([0.0, 0.5, 1.0, 0.81 / 0.82], abs=1e-12)


def test_draws_without_replacement_have_the_right_first_choice() -> None:
    random = torch.Generator().manual_seed(0)
    weights = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    first = [int(drawn(weights, 1, random)) for _ in range(2000)]
    assert 0 not in first
    assert np.mean([place == 2 for place in first]) == pytest.approx(0.75, abs=0.04)
    assert sorted(drawn(weights, 3, random).tolist()) == [0, 1, 2]


def test_uniform_share_is_kept() -> None:
    draw = Draw(density="exact", uniform_share=0.5, temper=1.0)
    sampler = TaylorSampler(steep, SQUARE, initial=16, density=draw)
    new = sampler.run(400).points[16:]
    away = (new[:, 0] - 0.3).abs() > 0.3
    assert 0.15 < away.double().mean() < 0.3  # 0.4 of the uniform half


def test_later_rounds_of_a_mixture_do_not_crowd_further() -> None:
    """The share of steep points stays what the interest asks for, though known points gather there."""
    draw = Draw(density="mixture", temper=1.0, cap=1.0, components=4)
    shares = []
    for rounds in (1, 4):
        sampler = TaylorSampler(
            lambda x: torch.sin(6 * x[:, 0]), Box(0, 1), initial=64, density=draw, seed=2
        )
        found = sampler.run(800, rounds=rounds)
        last = found.points[-200:, 0]
        shares.append(float(torch.cos(6 * last).square().mean()))
    assert shares[1] == pytest.approx(shares[0], abs=0.08)


def test_the_number_of_components_can_be_left_to_bic() -> None:
    points = torch.linspace(0, 1, 200, dtype=torch.float64)[:, None]
    weights = torch.exp(-((points[:, 0] - 0.2) ** 2) / 2e-3) + torch.exp(
        -((points[:, 0] - 0.8) ** 2) / 2e-3
    )
    found = Draw(density="mixture", components=0).mixture(points, weights, seed=0)
    assert found.components == 2
    assert sorted(found.means[:, 0].tolist()) == pytest.approx([0.2, 0.8], abs=0.02)
    one = Draw(density="mixture", components=0).mixture(
        points[:1].repeat(3, 1) + torch.eye(3)[:, :1], weights[:3], 0
    )
    assert one.components <= 2


def test_cells_share_the_domain() -> None:
    known = torch.tensor([[0.0], [0.1], [1.0]], dtype=torch.float64)
    found = cell_shares(known, Box(0, 1), torch.Generator().manual_seed(0), each=20_000)
    assert (found / 3).tolist() == pytest.approx([0.05, 0.5, 0.45], abs=0.01)


def test_rounds_and_ask_tell_equal_each_other() -> None:
    by_run = TaylorSampler(steep, SQUARE, initial=9, interest="neighbors", seed=3).run(12, rounds=3)
    sampler = TaylorSampler(None, SQUARE, initial=9, interest="neighbors", seed=3)
    for count in (9, 4, 4, 4):
        asked = sampler.ask(count)
        sampler.tell_many((one, steep(torch.tensor([one.point]))) for one in asked)
    torch.testing.assert_close(sampler.points, by_run.points, rtol=0, atol=0)


def test_start_is_served_first_and_unanswered_points_do_not_count() -> None:
    sampler = TaylorSampler(None, Box(-1, 1), initial=4, start="grid")
    assert [one.why for one in sampler.ask(6)] == ["start"] * 4 + ["interest"] * 2
    grid = start_points("grid", 4, Box(-1, 1))
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


def test_a_session_goes_on(tmp_path: Path) -> None:
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
    with pytest.raises(InputError, match="one JSON object a line"):
        TaylorSampler(None, SQUARE, initial=4, session=path)
    with pytest.raises(InputError, match="must be a sampling session"):
        saved_settings(path)


KILLED = textwrap.dedent(
    """
    import sys, time, torch
    from mindgap.sampling import Box, TaylorSampler
    session, told = sys.argv[1:]
    with TaylorSampler(None, Box([0, 0], [1, 1]), initial=8, session=session) as sampler:
        while len(sampler.points) < 60:
            for one in sampler.pending or sampler.ask(2):
                value = one.point[0] + one.point[1]
                sampler.tell(one, value)
                with open(told, "a") as file:  # only after tell has returned
                    file.write(f"{one.number} {value!r}\\n")
                time.sleep(0.002)
    """
)


def test_kill_loses_no_told_value(tmp_path: Path) -> None:
    """Ten kill -9 at random moments: every value whose tell returned is there, none is told twice."""
    session, told = tmp_path / "session.jsonl", tmp_path / "told"
    random = np.random.default_rng(0)
    for turn in range(10):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(session), str(told)])
        deadline, before = time.monotonic() + 60, told.stat().st_size if told.exists() else 0
        while process.poll() is None and time.monotonic() < deadline:
            if told.exists() and told.stat().st_size > before + int(random.integers(20, 150)):
                os.kill(process.pid, signal.SIGKILL)
                break
            time.sleep(0.002)
        process.wait(60)
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
    "interest": (lambda: TaylorSampler(steep, SQUARE, interest="entropy"), "interest"),
    "density": (lambda: TaylorSampler(steep, SQUARE, density="gauss"), "density"),
    "no function": (lambda: TaylorSampler(None, SQUARE).run(3), "must have a function"),
    "derivative of nothing": (
        lambda: _told(TaylorSampler(None, SQUARE, interest="derivative", initial=2)).ask(1),
        "must have a function",
    ),
    "exact of nothing": (
        lambda: _told(TaylorSampler(None, SQUARE, density="exact", initial=8)).ask(1),
        "anywhere",
    ),
    "twice": (lambda: _told(TaylorSampler(None, SQUARE, initial=2)).tell(0, 1.0), "told once"),
    "not asked": (lambda: TaylorSampler(None, SQUARE).tell(7, 1.0), "was asked"),
    "length": (lambda: _longer(TaylorSampler(None, SQUARE)), "must have 1 numbers"),
    "empty": (lambda: _longer(TaylorSampler(None, SQUARE), []), "one number or more"),
    "scalar": (
        lambda: TaylorSampler(lambda x: x.sum(), SQUARE, interest="neighbors").run(1),
        "each of 16 rows",
    ),
    "numpy": (
        lambda: TaylorSampler(lambda x: np.sin(x.numpy()), SQUARE).run(1),
        "must be one that torch",
    ),
    "epsilon": (lambda: Interest(epsilon=0.0), "epsilon must be above 0"),
    "cap": (lambda: Draw(cap=0.0), "cap must be above 0"),
    "temper": (lambda: Draw(temper=2.0), "temper must be"),
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
