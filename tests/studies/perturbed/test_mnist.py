"""PerturbedOPT on subsets of MNIST: arms, pairing and the table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from mindgap.core.errors import DataUnavailableError
from mindgap.core.study import Trial
from mindgap.data import DataSet
from mindgap.remedies.perturbation.dropout import Dropout
from mindgap.remedies.perturbation.perturbed import Perturbed
from mindgap.remedies.perturbation.sam import SAM
from mindgap.studies.perturbed import mnist
from mindgap.studies.perturbed.arms import METHODS, PLAIN, parts_of
from mindgap.studies.perturbed.mnist import PerturbedMnist, arms


def digits(size: int, test_size: int, seed: int) -> DataSet:
    """Invented images with a bright row that tells the class."""
    random = torch.Generator().manual_seed(seed)
    targets = torch.arange(size + test_size) % 10
    inputs = torch.rand(size + test_size, 1, 28, 28, generator=random)
    inputs[torch.arange(len(targets)), 0, 2 * targets] += 3
    return DataSet("digits", inputs[:size], targets[:size], inputs[size:], targets[size:])


@pytest.fixture
def invented(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(mnist, "mnist", digits)
    yield
    parts_of.cache_clear()


def test_all_arms_share_the_recipe_and_every_method_has_three_settings() -> None:
    assert {
        method: sum(arm.method == method for arm in arms()) for method in METHODS
    } == dict.fromkeys(METHODS, 3)
    assert all(arm.control == PLAIN and not arm.changes for arm in arms())
    kinds = {"PerturbedOPT": Perturbed, "published": Perturbed, "dropout": Dropout, "SAM": SAM}
    for arm in arms()[1:]:
        (remedy,) = arm.remedies
        assert type(remedy) is kinds[arm.method]
        assert remedy.on


@pytest.mark.usefixtures("invented")
def test_arms_differ_and_a_run_repeats() -> None:
    study = PerturbedMnist().tiny().replace(epochs=6, samples=100, shown=100)
    found = {
        arm.name: study.run(Trial(parameters={"arm": arm.name}, seed=2))
        for arm in arms()
        if arm.method != "SAM" or "0.1" in arm.name
    }
    assert study.run(Trial(parameters={"arm": "dropout 0.5"}, seed=2)) == found["dropout 0.5"]
    assert found[PLAIN]["final"]["train"] > 50
    curves = {tuple(record["curves"]["train"]) for record in found.values()}
    assert len(curves) > len(found) / 2


@pytest.mark.usefixtures("invented")
def test_the_table_has_one_row_per_arm() -> None:
    study = PerturbedMnist().tiny()
    records = [(trial, study.run(trial)) for trial in study.trials()]
    table = study.summarize(records)
    assert [row[0] for row in table.rows] == [arm.name for arm in arms()]
    assert "fresh" not in table.columns
    assert study.summarize(records[:-1]).rows == ()  # the second seed lacks an arm


@pytest.mark.shared
@pytest.mark.usefixtures("shared_module")
def test_real_digits_run_and_repeat() -> None:
    study = PerturbedMnist().tiny()
    parts_of.cache_clear()
    try:
        first = study.run(study.trials()[1])
    except DataUnavailableError as missing:
        pytest.skip(str(missing))
    parts_of.cache_clear()
    assert study.run(study.trials()[1]) == first
