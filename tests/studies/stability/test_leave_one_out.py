"""The study of leave-one-out stability, on a problem small enough for a test."""

import pytest

from mindgap.runs import SerialExecutor, sweep
from mindgap.studies.stability.leave_one_out import RECIPES, LeaveOneOut, problem


def test_table_compares_stability_with_the_gap(tmp_path: object) -> None:
    study = LeaveOneOut(seeds=2, samples=40, test_samples=500)
    found = sweep(study, store=tmp_path / "store.sqlite", executor=SerialExecutor(), progress=False)
    rows = dict(zip(RECIPES, found.table.rows, strict=True))
    long = rows["Adam, 30 epochs"]
    _, train_loss, gap, rise, difference, _, beta, bound, vacuous, *_ = long
    assert train_loss < 0.5
    assert difference == pytest.approx(rise - gap)
    assert 0.5 * gap < rise < 2 * gap
    assert bound > 20 * beta > beta > rise
    assert vacuous == "2 of 2"
    assert long[-1] > 0.6
    assert rows["Adam, 5 epochs"][3] < rise


def test_problem_depends_on_its_seed_alone() -> None:
    (x, y), (t, z) = problem(30, 50, 1)
    assert len(x), len(t) == (30, 50)
    assert (x == problem(30, 50, 1)[0][0]).all()
    assert not (x == problem(30, 50, 2)[0][0]).all()
    assert 0.2 < float(y.double().mean()) < 0.8
    assert len(z) == 50
