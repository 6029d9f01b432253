"""The study of two-phase training is plain training at α = 1, and pairs its seeds."""

from __future__ import annotations

import pytest
import torch

from mindgap.core.study import Trial
from mindgap.data import DataSet
from mindgap.ops.models.phases import gates_of
from mindgap.remedies import TwoPhase
from mindgap.studies.darc import problems
from mindgap.studies.darc.problems import Problem, error, recipe_of
from mindgap.studies.darc.two_phase import ALPHAS, TwoPhaseRatio
from mindgap.training.fit import fit


def images(size: int, test_size: int, seed: int) -> DataSet:
    """Invented images whose brightness tells the class."""
    random = torch.Generator().manual_seed(seed)
    targets = torch.arange(size + test_size) % 10
    inputs = torch.rand(len(targets), 3, 8, 8, generator=random) + targets.view(-1, 1, 1, 1) / 10
    return DataSet("images", inputs[:size], targets[:size], inputs[size:], targets[size:])


def test_alpha_one_is_plain_training_and_others_know_their_phases(monkeypatch) -> None:
    problem = Problem(load=images, pool=2)
    monkeypatch.setitem(problems.PROBLEMS, "MNIST", problem)
    study = TwoPhaseRatio(seeds=2, samples=60, test_samples=50, epochs=6, width=8)
    parts = problem.parts((60, 10, 50))
    plain = fit(recipe_of(parts, 8, epochs=6, learning_rate=3e-3), seed=1).model
    found = study.run(Trial(parameters={"data": "MNIST", "alpha": 1.0}, seed=1))
    assert found == {"test": error(plain, parts["test"])}
    phases = study.run(Trial(parameters={"data": "MNIST", "alpha": 0.2}, seed=1))
    assert sorted(phases) == ["flips", "phase_1", "test"]
    assert 0 < phases["flips"] < 1
    first = error(fit_phase_1(parts, 0.2), parts["test"])
    assert phases["phase_1"] == first


def fit_phase_1(parts, alpha: float) -> torch.nn.Module:
    recipe = recipe_of(parts, 8, epochs=6, learning_rate=3e-3)
    fitted = fit(recipe, [TwoPhase(share=1 - alpha)], seed=1)
    model = recipe.build(1)
    model.load_state_dict(gates_of(fitted.model).first())
    return model


def test_rows_are_ratios_to_the_plain_runs_of_the_same_data() -> None:
    study = TwoPhaseRatio(seeds=2)
    base = {"MNIST": 0.1, "CIFAR-10": 0.5}
    records = [
        (trial, {"test": base[trial["data"]] * (2 - trial["alpha"]), "phase_1": 0.6, "flips": 0.1})
        for trial in study.trials()
    ]
    table = study.summarize(records)
    assert len(table.rows) == 2 * len(ALPHAS)
    for row in table.rows:
        assert row[4] == pytest.approx(2 - row[1])
        assert row[5] == pytest.approx(row[6])
    assert table.rows[0][7] == pytest.approx((1 - 0.195) / 0.9)
    assert len(table.charts[0].series) == 2
