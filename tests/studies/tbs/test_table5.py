"""Table 5 of Taylor Based Sampling: arms, AEG and AEL by brute force, and the table."""

from typing import Any

import pytest
import torch

from mindgap.core.study import Trial
from mindgap.data.bateman import bateman
from mindgap.studies import TbsTable5
from mindgap.studies.tbs.table5 import (
    DEFAULT,
    PUBLISHED,
    SOBOL,
    arm_points,
    arms,
    scaled,
    system,
    trained,
    worst_over_time,
)


@pytest.mark.parametrize("species", [1, 3])
def test_arms_share_the_uniform_half_and_the_budget(species: int) -> None:
    box = system(species)[1]
    shared = arm_points("uniform", species, 80, 2)[:40]
    for arm in arms(species):
        points = arm_points(arm, species, 80, 2)
        assert points.shape == (80, species + 2), arm
        assert bool(box.contains(points).all()), arm
        assert len(points.unique(dim=0)) == 80, arm
        assert torch.equal(points[:40], shared) == (arm != SOBOL), arm


def test_plain_mixture_concentrates_at_small_initial_values() -> None:
    """Df has a heavy tail as u0 approaches zero; tempering spreads the points."""
    near = {
        arm: float((arm_points(arm, 1, 1000, 0)[500:, 0] < 0.1).double().mean())
        for arm in (PUBLISHED, DEFAULT)
    }
    assert near[PUBLISHED] > 0.5
    assert 0.1 < near[DEFAULT] < 0.4


def test_worst_error_over_time_equals_a_loop() -> None:
    networks = trained([arm_points(arm, 1, 60, 0) for arm in ("uniform", SOBOL)], 1, 3, 0)
    found = worst_over_time(networks, 3)
    box, middles = system(1)[1], [1 / 6, 3 / 6, 5 / 6]
    for k in range(2):
        for i, u in enumerate(middles):
            for j, eta in enumerate(middles):
                rows = torch.tensor(
                    [[u, eta, 0.2 * step] for step in range(51)], dtype=torch.float64
                )
                error = networks.outputs(scaled(rows, box))[k].double() - bateman(rows)
                assert float(found[k, i, j]) == pytest.approx(
                    float(error.square().sum(1).max()), rel=1e-5
                )


def test_gains_and_losses_are_what_the_paper_defines() -> None:
    study = TbsTable5(seeds=2, size=100, epochs=3, tests=100, cells=3)
    found = study.run(Trial(parameters={"species": 1}, seed=1))
    names = arms(1)
    networks = trained([arm_points(arm, 1, 100, 1) for arm in names], 1, 3, 1)
    z = worst_over_time(networks, 3)[0] - worst_over_time(networks, 3)[names.index(DEFAULT)]
    assert found["scores"]["gain"][DEFAULT] == pytest.approx(float((z * (z > 0)).mean()), rel=1e-6)
    assert found["scores"]["loss"][DEFAULT] == pytest.approx(float((-z * (z < 0)).mean()), rel=1e-6)
    assert found["scores"]["gain"]["uniform"] == 0


def records(difference: float) -> list[tuple[Trial, dict[str, Any]]]:
    found = []
    for seed in range(4):
        largest = {
            arm: 0.5 + 0.01 * seed + (difference + 0.001 * seed if k else 0)
            for k, arm in enumerate(arms(1))
        }
        scores = {"mse": largest, "largest": largest, "gain": largest, "loss": largest}
        near = dict.fromkeys(largest, 0.25)
        record = {"scores": scores, "near": near, "train": [2e-5, 1e-5], "interest": [0.05, 30.0]}
        found.append((Trial(parameters={"species": 1}, seed=seed), record))
    return found


def test_table_has_the_difference_its_interval_and_the_papers_number() -> None:
    table = TbsTable5().summarize(records(-0.2))
    row = {(line[1], line[2]): line for line in table.rows}[("L∞ error", PUBLISHED)]
    assert row[3] == 0.296
    assert row[6] == pytest.approx(-0.1985)
    assert row[7] < row[6] < row[8] < 0
    assert row[10] == 25
    assert {line[2] for line in table.rows if line[1] == "AEG"} == set(arms(1)[1:])
    assert any("maximum of 30" in note for note in table.notes)


def test_three_species_run_and_are_summarized() -> None:
    study = TbsTable5().tiny()
    found = [(trial, study.run(trial)) for trial in study.trials() if trial["species"] == 3]
    table = study.summarize(found)
    assert {row[0] for row in table.rows} == {"three species"}
    assert len(table.rows) == 2 * len(arms(3))
