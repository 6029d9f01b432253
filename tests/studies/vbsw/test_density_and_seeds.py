"""Density-corrected arms of Table 1 and `when-vbsw-helps`, and the maps over seeds of Figure 5."""

import functools
from typing import Any

import pytest
import torch
from torch import nn

from mindgap.core import Recipe, Trial
from mindgap.data import boston, standardize, two_moons
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.studies import VbswFigure5, VbswTable1
from mindgap.studies.vbsw import table1, when_it_helps
from mindgap.training.fit import fit


def test_weights_of_table_1_are_those_of_the_estimator_with_a_density() -> None:
    data = two_moons(60, 10, 0.1, seed=3)
    plain, corrected = (table1._weights(data, kind, moon=True) for kind in (None, "kernel"))
    wanted = VarianceWeights(k=20, max_weight=100, density="kernel")
    wanted.fit(data.inputs, data.targets)
    torch.testing.assert_close(corrected, torch.from_numpy(wanted.weights_))
    assert not torch.allclose(plain, corrected)


def test_both_density_arms_are_trained_and_tabulated() -> None:
    study = VbswTable1().tiny()
    trials = [Trial(parameters={"data": "double moon"}, seed=seed) for seed in range(2)]
    records = [(trial, study.run(trial)) for trial in trials]
    scores = records[0][1]["scores"]
    assert {table1.DENSITY, "permuted, density-corrected"} <= set(scores)
    rows = [row for row in study.summarize(records).rows if row[0] == "double moon"]
    assert [row[1] for row in rows] == list(table1.ARMS)


def test_settings_hold_plain_then_density_corrected_weights() -> None:
    random = torch.Generator().manual_seed(0)
    features = torch.randn(50, 3, generator=random, dtype=torch.float64)
    target = (features[:, 0] > 0).long()
    found = when_it_helps._weights(features, target, True, (5, 10))
    assert found.shape == (2, 8, 50)
    for kind, density in enumerate((None, "kernel")):
        for place, (k, m) in enumerate((k, m) for k in (5, 10) for m in when_it_helps.MAX_WEIGHTS):
            wanted = VarianceWeights(k=k, max_weight=m, density=density)  # type: ignore[arg-type]
            weights = torch.from_numpy(wanted.fit(features, target).weights_)
            torch.testing.assert_close(found[kind, place], weights)


def test_every_arm_is_chosen_among_its_own_settings() -> None:
    chosen = torch.tensor([9.0, 2, 1, 5, 4, 1, 2, 7, 6])
    judged = torch.arange(9.0) / 10
    record = when_it_helps._record(chosen, judged, 2)
    wanted = {"uniform": 0.0, "weighted": 0.2, "density": 0.4, "permuted": 0.5}
    assert record == pytest.approx({**wanted, "permuted density": 0.8})


@pytest.mark.shared
@pytest.mark.usefixtures("shared_module")
def test_adam_trains_every_setting_from_every_seed() -> None:
    data = boston(seed=0)
    study = VbswFigure5(seeds=2, adam_cells=2, epochs=30)
    record = study.run(Trial(parameters={"solver": "Adam"}))
    assert torch.tensor(record["adam"]).shape == (4, 2)
    assert data.test_inputs is not None
    train, test = standardize(data.inputs, data.test_inputs)
    recipe = Recipe(
        model=functools.partial(nn.Linear, 13, 1),
        train=(train, data.targets),
        test=(test, data.test_targets),
        loss="mse",
        learning_rate=5e-4,
        batch_size=len(train),
        epochs=30,
        sample_weights=study._weights(train, data.targets, 2)[3].float(),
    )
    alone = fit(recipe, seed=1).subject().mean_loss("test")
    assert record["adam"][3][1] == pytest.approx(alone, rel=1e-5)


def test_maps_show_the_mean_and_the_minimum_over_seeds() -> None:
    study = VbswFigure5(adam_cells=2)
    record: dict[str, Any] = {"adam": [[2, 4], [1, 3], [2, 2], [3, 5]], "baseline": [2, 2]}
    mean, least = study._seed_maps(record)
    assert torch.tensor(mean.z).flatten().tolist() == [50, 0, 0, 100]
    assert torch.tensor(least.z).flatten().tolist() == [0, -50, 0, 50]
