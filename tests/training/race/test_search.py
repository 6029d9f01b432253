"""The search without nets: simulated arms with known gains."""

from collections.abc import Callable

import numpy as np
import pytest

from mindgap.core import InputError
from mindgap.training.race.arm import BASELINE, RETUNED, Arm
from mindgap.training.race.plan import (
    PILOT,
    Noise,
    affordable,
    as_seconds,
    confirmation_seeds,
    make_plan,
)
from mindgap.training.race.scores import Race, Scores, Wanted
from mindgap.training.race.search import Searched, search

SAMPLES = 200


class World:
    """Arms whose errors have a mean, noise that all seeds share, and noise of their own."""

    def __init__(self, means: dict[str, float], noise: float = 0.0, seed: int = 0) -> None:
        self.means, self.noise, self.rng = means, noise, np.random.default_rng(seed)
        self.seen: list[tuple[str, str, int]] = []
        self.broken: dict[str, str] = {}

    def observe(self, stage: str, wanted: Wanted) -> dict[tuple[str, int], Scores | str]:
        found: dict[tuple[str, int], Scores | str] = {}
        for arm, seeds in wanted:
            for seed in seeds:
                self.seen.append((stage, arm.name, seed))
                found[arm.name, seed] = self.broken.get(arm.name) or self._scores(arm)
        return found

    def _scores(self, arm: Arm) -> Scores:
        mean = self.means.get(arm.name, 1.0)
        errors = mean + self.noise * self.rng.normal(size=SAMPLES)
        return Scores(errors, errors)


CELLS = [Arm(name=f"cell {k}", group=RETUNED, cost=2.0 if k == 3 else 1.0) for k in range(4)]


def _candidates(groups: int, strengths: int = 3, cost: float = 1.0) -> Callable[[Arm], list[Arm]]:
    return lambda control: [
        Arm(name=f"remedy {g} at {s}", group=f"remedy {g}", cost=cost).on(control)
        for g in range(groups)
        for s in range(strengths)
    ]


def _run(world: World, trainings: int = 200, **changes) -> Searched:
    plan = make_plan(trainings)
    settings = {
        "cells": CELLS,
        "extend": lambda best, better: [],
        "candidates": _candidates(plan.remedies, plan.strengths),
        "seeds": range(1000),
        **changes,
    }
    baseline = Arm(name=BASELINE, group=BASELINE)
    return search(plan, baseline, world.observe, **settings)


def test_the_best_cell_becomes_the_control_and_the_best_arm_a_finalist():
    world = World({"cell 2": 0.8, "remedy 4 at 1": 0.5, "remedy 1 at 0": 0.6}, noise=0.05)
    found = _run(world)
    assert found.control.name == "cell 2"
    assert [arm.name for arm in found.finalists] == ["remedy 4 at 1"]
    assert found.noise is not None
    assert found.noise.residual == pytest.approx(2 * 0.05**2, rel=0.2)


def test_a_second_finalist_is_within_a_standard_error_of_the_first():
    means = {"remedy 4 at 1": 0.500, "remedy 1 at 0": 0.501, "remedy 2 at 0": 0.55}
    found = [_run(World(means, noise=0.2, seed=seed)) for seed in range(8)]
    names = {arm.name for row in found for arm in row.finalists}
    assert names == {"remedy 4 at 1", "remedy 1 at 0"}
    assert any(len(row.finalists) == 2 for row in found)
    dropped = [s.reason for row in found for s in row.log if s.stage == "rung 3" and not s.kept]
    assert any("more than a standard error behind the first" in reason for reason in dropped)


def test_the_noise_of_folds_is_told_apart():
    """Seeds of different folds see different samples: their parts come from within a fold."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(2, SAMPLES))

    def observe(_stage: str, wanted: Wanted) -> dict[tuple[str, int], Scores | str]:
        found: dict[tuple[str, int], Scores | str] = {}
        for arm, seeds in wanted:
            for seed in seeds:
                errors = (arm.name == "arm") * own[seed % 2] + 0.1 * rng.normal(size=SAMPLES)
                found[arm.name, seed] = Scores(errors, errors, seed % 2)
        return found

    arm, other = Arm(name="arm", group="arm"), Arm(name="other", group="other")
    race = Race(observe, range(10))
    race.train("rung 1", [arm, other], 8)
    noise = race.noise(arm, other)
    assert noise is not None
    assert noise.sample_part == pytest.approx(1.0, rel=0.15)
    assert noise.residual == pytest.approx(0.02, rel=0.15)
    mean, error = race.behind(arm, other)
    assert mean == pytest.approx(own.mean(), abs=0.02)
    assert error == pytest.approx(1 / (2 * SAMPLES) ** 0.5, rel=0.1)
    race = Race(observe, range(10))
    race.train("rung 1", [arm, other], 2)  # one seed per fold
    assert race.noise(arm, other) is None
    assert race.behind(arm, other)[1] == pytest.approx(1 / (2 * SAMPLES) ** 0.5, rel=0.1)


def test_a_baseline_that_no_cell_beats_stays_the_control():
    world = World({BASELINE: 0.9})
    assert _run(world).control.name == BASELINE


def test_the_search_spends_at_most_its_half():
    for trainings in (40, 59, 60, 99, 100, 200, 300, 401, 600):
        found = _run(World({}, noise=1.0), trainings)
        assert 0.55 * trainings / 2 < found.spent <= 1.05 * trainings / 2, trainings


def test_every_arm_of_a_stage_gets_the_same_seeds():
    world = World({}, noise=1.0)
    _run(world)
    first = {name: [] for stage, name, _ in world.seen if stage == "rung 1"}
    for stage, name, seed in world.seen:
        if stage == "rung 1" and name.startswith("remedy"):
            first[name].append(seed)
    assert len({tuple(seeds) for name, seeds in first.items() if seeds}) == 1
    assert len(world.seen) == len({(name, seed) for _, name, seed in world.seen})


@pytest.mark.parametrize("trainings", [40, 60, 100, 200, 300, 600])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_no_remedy_gets_more_trials_than_the_retuned_baseline(trainings: int, groups: int):
    for seed in range(5):
        found = _run(World({}, noise=1.0, seed=seed), trainings, candidates=_candidates(groups))
        own = found.trials[RETUNED] + found.trials[BASELINE]
        others = [n for g, n in found.trials.items() if g not in (RETUNED, BASELINE)]
        assert own >= max(others)


def test_all_remedies_get_equal_trials_in_the_first_rung():
    world = World({}, noise=1.0)
    _run(world)
    counts: dict[str, int] = {}
    for stage, name, _ in world.seen:
        if stage == "rung 1" and name.startswith("remedy"):
            counts[name] = counts.get(name, 0) + 1
    assert len(counts) == 18
    assert len(set(counts.values())) == 1


def test_expensive_arms_are_charged():
    world = World({}, noise=1.0)
    found = _run(world, candidates=_candidates(6, cost=2.0))
    cells = {arm.name: arm.cost for arm in CELLS}
    onto = found.control.cost  # remedies are trained on top of the control
    costs = [
        2 * onto if name.startswith("remedy") else cells.get(name, 1.0) for _, name, _ in world.seen
    ]
    assert found.spent == pytest.approx(sum(costs))
    assert found.spent <= 105
    cheap = _run(World({}, noise=1.0))
    assert len(world.seen) < 0.75 * sum(cheap.trials.values())


def test_equal_errors_are_decided_by_loss_then_by_cost():
    class Tied(World):
        def _scores(self, arm: Arm) -> Scores:
            loss = 0.5 if arm.name == "remedy 3 at 2" else 1.0
            return Scores(np.full(SAMPLES, 0.1), np.full(SAMPLES, loss))

    found = _run(Tied({}))
    assert found.finalists[0].name == "remedy 3 at 2"
    assert found.control.name == BASELINE


def test_a_best_cell_on_the_edge_extends_the_grid():
    world = World({"cell 1": 0.9, "cell 1, further": 0.8, "cell 1, further, further": 0.7})
    asked = []

    def extend(best: Arm, better) -> list[Arm]:
        asked.append((best.name, [arm.name for arm in better]))
        return [Arm(name=f"{best.name}, further", group=RETUNED)]

    assert _run(world, extend=extend).control.name == "cell 1, further, further"
    assert asked[0] == ("cell 1", ["cell 1"])
    assert len(asked) == 2


def test_an_arm_that_fails_is_dropped_with_its_reason():
    world = World({"remedy 0 at 0": 0.1})
    world.broken["remedy 0 at 0"] = "ValueError: no"
    found = _run(world)
    steps = [step for step in found.log if step.arm == "remedy 0 at 0"]
    assert [(step.kept, step.reason, step.score) for step in steps] == [
        (False, "ValueError: no", None)
    ]
    assert "remedy 0 at 0" not in [arm.name for arm in found.finalists]


def test_a_baseline_that_fails_is_the_users_to_correct():
    world = World({})
    world.broken[BASELINE] = "RuntimeError: out of memory"
    with pytest.raises(InputError, match="must train as it is, got: RuntimeError: out of memory"):
        _run(world)


def test_the_log_tells_every_arm_once_per_stage():
    found = _run(World({}, noise=1.0))
    stages = [(step.stage, step.arm) for step in found.log]
    assert len(stages) == len(set(stages))
    assert sum(step.stage == "rung 1" and step.kept for step in found.log) == 7  # and the control
    assert sum(step.stage == "rung 3" and step.kept for step in found.log) in (2, 3)
    assert all(step.reason for step in found.log)


def test_the_pilot_is_not_trained_twice():
    world = World({})
    _run(world)
    assert sum(name == BASELINE for _, name, _ in world.seen) >= PILOT
    assert len(world.seen) == len(set(world.seen))


def test_budgets_in_words():
    assert (as_seconds("30m"), as_seconds("2h"), as_seconds("1d")) == (1800, 7200, 86400)
    assert affordable(1800, 0.001, 2) == 600
    for wrong in ("", "30", "m", "-3m", 0, -1):
        with pytest.raises(InputError, match="budget must be a time"):
            as_seconds(wrong)
    with pytest.raises(InputError, match="at least 40 trainings, got 12"):
        make_plan(12)


def test_more_seeds_than_samples_deserve_are_not_planned():
    noise = Noise(seed_part=0.01, sample_part=9.0, residual=0.01)
    assert confirmation_seeds(noise, 600, 40) == 10
    assert confirmation_seeds(noise, 100_000, 40) == 40
    assert confirmation_seeds(noise, 600, 6) == 6
    assert confirmation_seeds(None, 600, 25) == 25
    # The residual of a seed shrinks with the test samples: 6 × 26.9 / 9 seeds make it a sixth.
    assert confirmation_seeds(Noise(0.0, 9.0, 26.9), 600, 40) == 18
