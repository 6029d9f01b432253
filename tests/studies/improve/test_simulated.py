"""Simulated races: the noise is that of the nets they imitate, and wrong verdicts are counted."""

from __future__ import annotations

import numpy as np
import pytest

from mindgap.core.study import Trial
from mindgap.studies.improve import simulated
from mindgap.studies.improve.simulated import COLUMNS, Cell, SimulatedRaces, race
from mindgap.studies.improve.worlds import CONCRETE, DIGITS, Effect, Kind, Side, World
from mindgap.training.race.plan import make_plan


def _table(world: World, kind: Kind, effect: Effect, samples: int, seeds: int) -> np.ndarray:
    """Gain of an arm over the recipe as it is, seeds × samples."""
    side = Side(world, kind, samples, np.random.default_rng(0))
    rows = [
        np.stack([s.errors for s in side.errors(name, arm, 0, seeds)])
        for name, arm in (("baseline", Effect()), ("arm", effect))
    ]
    return (rows[0] - rows[1]) / world.unit


@pytest.mark.parametrize(
    ("world", "paired", "shared", "on_samples"),
    [(DIGITS, 1.18, 0.0, 0.53), (CONCRETE, 0.73, 0.44, 0.73)],
)
def test_the_noise_is_what_was_measured(
    world: World, paired: float, shared: float, on_samples: float
) -> None:
    """In standard deviations of a seed: over seeds, its part that samples share, over samples."""
    many, seeds = 60_000, 40
    table = _table(world, "equal", Effect(place=1), many, seeds)
    within = (table - table.mean(0)).var() * seeds / (seeds - 1)
    whole = table.mean(1).var(ddof=1) - within / many
    residual = within - max(whole, 0.0)
    assert (max(whole, 0.0) + residual / world.test) ** 0.5 == pytest.approx(paired, rel=0.12)
    assert whole / paired**2 == pytest.approx(shared, abs=0.12)
    columns = table.mean(0).var() - residual / seeds
    assert (columns / world.test) ** 0.5 == pytest.approx(on_samples, rel=0.05)


@pytest.mark.parametrize("world", [DIGITS, CONCRETE])
@pytest.mark.parametrize("kind", simulated.NULLS)
def test_arms_differ_per_sample_but_not_on_average(world: World, kind: Kind) -> None:
    for place in (1, 2):
        table = _table(world, kind, Effect(place=place), 40_000, 10)
        error = table.mean(0).std() / 200 + table.mean(1).std() / 10**0.5
        assert abs(table.mean()) < 4 * error
        assert table.mean(0).std() > 0.1
    if kind == "ties":
        assert not _table(world, kind, Effect(place=3), 1000, 5).any()
        assert 0 < (table.any(0)).mean() < 0.1


@pytest.mark.parametrize("world", [DIGITS, CONCRETE])
def test_a_gain_is_what_it_says(world: World) -> None:
    table = _table(world, "gain", Effect(gain=2.0, place=1), 200_000, 10)
    assert table.mean() == pytest.approx(2.0, abs=0.6 if world is CONCRETE else 0.2)


def test_races_repeat_and_large_gains_are_found() -> None:
    plan = make_plan(100)
    for world in (DIGITS, CONCRETE):
        first = race(world, Cell("gain", 8.0), plan, 0)
        other = race(world, Cell("gain", 8.0), plan, 1)
        assert first == race(world, Cell("gain", 8.0), plan, 0) != other
        assert first["helps"] == first["judged"] == 1


def test_outer_folds_divide_the_trainings_and_find_large_gains() -> None:
    plan = make_plan(200)
    for world in (DIGITS, CONCRETE):
        found = [race(world, Cell("gain", 6.0, outer=3), plan, seed) for seed in range(3)]
        assert all(row["helps"] == row["judged"] == 1 for row in found)
        assert all(2 <= row["seeds"] <= (200 / 3) / 3 for row in found)


def test_every_seed_sees_its_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    folds: dict[str, set[tuple[int, int]]] = {}
    honest = simulated.search

    def spied(plan, first, observe, **more):
        def noted(stage, wanted):
            found = observe(stage, wanted)
            for (name, seed), row in found.items():
                folds.setdefault(name, set()).add((seed, row.fold))
            return found

        return honest(plan, first, noted, **more)

    monkeypatch.setattr(simulated, "search", spied)
    race(DIGITS, Cell("equal", 0.0), make_plan(100), 0)
    assert {fold for own in folds.values() for _, fold in own} == set(range(5))
    assert all(fold == seed % 5 for own in folds.values() for seed, fold in own)


def test_a_test_that_ignores_the_samples_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The study can fail: with a test over seeds alone, "helps" is often false."""
    honest = simulated.judge

    def over_seeds(control, finalists, baseline, errors):
        seeds = len(errors[control.name])
        # Equal columns hide the spread over samples from the judge.
        flat = {k: np.repeat(v.mean(1, keepdims=True), seeds, 1) for k, v in errors.items()}
        return honest(control, finalists, baseline, flat)

    monkeypatch.setattr(simulated, "judge", over_seeds)
    found = SimulatedRaces(races=40, block=40).run(
        Trial(parameters={"world": "small test", **Cell("equal", 0.0)._asdict(), "first": 0})
    )
    assert found["false"] / found["races"] > 0.12


def test_table_of_the_tiny_study() -> None:
    study = SimulatedRaces().tiny()
    cells = [trial for trial in study.trials() if trial["world"] == "digits"]
    table = study.summarize([(trial, study.run(trial)) for trial in cells])
    assert table.columns == COLUMNS
    names = [row[1] for row in table.rows]
    assert names[5:9] == ["gain 1 sd", "gain 2 sd", "gain 3 sd", "gain 2 sd at all strengths"]
    assert names[-3:] == [
        "gain 2 sd, one validation set",
        "equal, 3 outer folds",
        "gain 2 sd, 3 outer folds",
    ]
    assert all(len(row) == len(COLUMNS) and row[2] == 4 for row in table.rows)
    assert "in more than 5 %" in table.notes[0]
