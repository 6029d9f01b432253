"""Random labels: what is made random, when training stops, and what the tables say about it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from mindgap.core import DataUnavailableError, Trial
from mindgap.core.stats import holm, paired
from mindgap.data import digits
from mindgap.remedies import Dropout
from mindgap.studies.random_labels.memorization import Memorization, recorded
from mindgap.studies.random_labels.problems import Fit, changed, fit_all, problem
from mindgap.studies.random_labels.regularization import ARMS, MemorizationRegularization


def images(count: int = 6, channels: int = 3) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(count, channels, 4, 4, generator=random)


def orders(before: torch.Tensor, after: torch.Tensor) -> list[list[int]]:
    """The order of the pixels of every image, by looking for each value."""
    pairs = zip(before.flatten(2), after.flatten(2), strict=True)
    return [[int((old[0] == value).nonzero()) for value in new[0]] for old, new in pairs]


def test_shuffled_pixels_have_one_order_for_all_images_and_channels() -> None:
    train, test = images(), images(4).flip(0)
    moved = changed([train, test], "shuffled pixels", seed=1)
    found = orders(train, moved[0]) + orders(test, moved[1])
    assert found == [found[0]] * 10
    assert sorted(found[0]) == list(range(16))
    assert found[0] != list(range(16))
    assert torch.equal(moved[0].flatten(2), train.flatten(2)[:, :, found[0]])


def test_random_pixels_have_an_order_per_image_that_its_channels_share() -> None:
    train = images()
    (moved,) = changed([train], "random pixels", seed=1)
    found = orders(train, moved)
    assert len({tuple(order) for order in found}) == len(train)
    for own, before, after in zip(found, train.flatten(2), moved.flatten(2), strict=True):
        assert torch.equal(after, before[:, own])


def test_gaussian_inputs_forget_the_images() -> None:
    train = 5 + images(400)
    (drawn,) = changed([train], "Gaussian", seed=1)
    assert drawn.shape == train.shape
    assert abs(float(drawn.mean())) < 0.05
    assert float(drawn.std()) == pytest.approx(1, abs=0.05)
    assert abs(float(torch.corrcoef(torch.stack([drawn.flatten(), train.flatten()]))[0, 1])) < 0.05


def test_corruption_draws_labels_and_leaves_test_labels() -> None:
    clean = problem("digits", "images", 0.0, (600, 100), seed=3)
    half = problem("digits", "images", 0.5, (600, 100), seed=3)
    assert torch.equal(clean.labels, digits(100, seed=3).subset(600, seed=3).targets)
    assert torch.equal(clean.inputs, half.inputs)
    assert torch.equal(clean.test_labels, half.test_labels)
    # Of 300 drawn labels a tenth stays by chance: 270 ± 5.2 differ.
    assert 250 <= int((clean.labels != half.labels).sum()) <= 290
    assert abs(float(clean.inputs.mean())) < 1e-5
    assert float(clean.inputs.std()) == pytest.approx(1, abs=1e-4)


def test_random_labels_are_fitted_to_zero_error_and_not_learned() -> None:
    made = problem("digits", "images", 1.0, (60, 400), seed=0)
    found = fit_all(made, "MLP", 100, seed=0)
    assert found.train_error == 0
    assert found.fitted == len(found.losses) < 100
    assert found.test_error > 0.7
    assert fit_all(made, "MLP", 100, seed=0) == found


def test_training_goes_on_where_it_is_not_to_stop() -> None:
    made = problem("digits", "images", 0.0, (40, 40), seed=0)
    stopped, whole = (fit_all(made, "MLP", 20, seed=0, stop=stop) for stop in (True, False))
    assert whole.fitted == stopped.fitted == len(stopped.losses)
    assert len(whole.losses) == 20
    assert whole.losses[: stopped.fitted] == stopped.losses
    dropped = fit_all(made, "MLP", 20, 0, [Dropout(rate=0.5)], stop=False)
    assert dropped.losses[-1] > whole.losses[-1]


def test_a_run_that_does_not_fit_counts_with_all_its_steps() -> None:
    late = recorded(Fit([1.0, 0.5, 0.4], None, 0.1, 0.9), batches=10)
    early = recorded(Fit([1.0, 0.5], 2, 0.0, 0.8), batches=10)
    assert (late["steps"], late["fitted"]) == (30, False)
    assert (early["steps"], early["fitted"]) == (20, True)


def test_missing_data_are_named_before_the_sweep(monkeypatch: Any) -> None:
    def missing(name: str) -> None:
        if name != "digits":
            raise DataUnavailableError(f"{name} must be downloaded, got no connection.")

    for study in (Memorization, MemorizationRegularization):
        monkeypatch.setattr(f"{study.__module__}.load", missing)
        study(data=("digits",)).prepare()
        with pytest.raises(DataUnavailableError, match="cifar10 must be downloaded"):
            study(data=("digits", "cifar10")).prepare()


STEPS = {"true": (100, 110, 90), "random": (300, 350, 280), "Gaussian": (60, 70, 50)}


def records() -> list[tuple[Trial, Any]]:
    """Made-up runs: random labels take three times the steps, Gaussian inputs 0.6 times."""
    study = Memorization(data=("digits",), networks=("MLP",), corruption=(0.0, 0.5, 1.0))
    found = []
    for trial in study.trials():
        share, inputs, seed = trial["corruption"], trial["inputs"], trial.seed
        key = inputs if inputs == "Gaussian" else ("random" if share == 1 else "true")
        record = {
            "losses": [2.0, 1.0 + share][: 1 + seed % 2],
            "steps": STEPS[key][seed],
            "fitted": not (share == 1 and seed == 2),
            "train_error": 0.25 * (share == 1 and seed == 2),
            "test_error": 0.1 + 0.8 * share + 0.001 * seed,
        }
        found.append((trial, record))
    return found


def test_the_table_of_fits() -> None:
    study = Memorization(data=("digits",), networks=("MLP",), corruption=(0.0, 0.5, 1.0))
    table = study.summarize(records())
    rows = {row[2]: row for row in table.rows}
    logs = [[math.log(value) for value in STEPS[key]] for key in ("random", "true", "Gaussian")]
    found = paired(logs[0], logs[1])
    assert rows["random labels"][3:6] == ("2 of 3", 0.0, pytest.approx(0.25 / 3))
    assert rows["random labels"][8] == 310
    assert rows["random labels"][9].startswith(f"{math.exp(found.difference):.2f} [")
    assert rows["true labels"][9] is None
    assert rows["50 % random labels"][10] == pytest.approx(0.501)
    notes = " ".join(table.notes)
    assert "random labels 2 of 3" in notes
    p_value = paired(logs[2], logs[0]).p_value
    assert p_value < 0.05
    assert (
        "Gaussian: fewer steps in 1 of 1 cases (corrected p < 0.05 in 1; more steps in 0)" in notes
    )
    assert "10.1 % → 90.1 % (rises at every step; at the end as a guess)" in notes


def test_curves_hold_their_last_loss() -> None:
    study = Memorization(data=("digits",), networks=("MLP",), corruption=(0.0, 0.5, 1.0))
    chart = study.summarize(records()).charts[0]
    curve = next(one for one in chart.series if one.name == "random labels")
    assert curve.x == (1, 2)
    assert curve.y == pytest.approx((2.0, (2.0 + 2.0 + 2.0) / 3))


def regularized(test: dict[str, list[float]]) -> list[tuple[Trial, Any]]:
    study = MemorizationRegularization(data=("digits",), networks=("MLP",), seeds=3)
    return [
        (
            trial,
            {
                "fitted": None if trial["arm"] == "augmentation" else 10 + trial.seed,
                "train": 0.5 if trial["arm"] == "augmentation" else 1.0,
                "test": test.get(trial["arm"], [0.6, 0.7, 0.8])[trial.seed],
            },
        )
        for trial in study.trials()
    ]


def test_arms_are_compared_with_plain_training_in_pairs() -> None:
    none, decay = [0.60, 0.70, 0.80], [0.62, 0.71, 0.83]
    made = regularized({"none": none, "weight decay": decay})
    rows = {
        row[2]: row
        for row in MemorizationRegularization(data=("digits",), networks=("MLP",), seeds=3)
        .summarize(made)
        .rows
    }
    found = paired(decay, none)
    others = len(ARMS) - 2  # arms equal to the control, whose p-value is one
    assert rows["weight decay"][6] == pytest.approx(0.02)
    assert rows["weight decay"][8] == pytest.approx(holm([found.p_value, *[1.0] * others])[0])
    assert rows["weight decay"][9:13] == ("3 of 3", 11.0, 1.0, 1.0)
    assert rows["augmentation"][9:13] == ("0 of 3", None, None, 0.5)
    assert rows["none"][6] is None
