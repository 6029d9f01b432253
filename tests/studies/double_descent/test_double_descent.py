"""Double descent: exact solutions, exact theory, and curves that turn where they should."""

from __future__ import annotations

import math

import pytest
import torch

from mindgap.core import InputError, Trial
from mindgap.studies.double_descent.epochs import (
    DoubleDescentEpochs,
    descended,
    linear_curve,
    turning,
)
from mindgap.studies.double_descent.features import (
    expected_ridgeless_risk,
    least_squares,
    noisy_digits,
    peak_test,
    random_features,
    simulated_risks,
)
from mindgap.studies.double_descent.networks import DoubleDescentNetworks
from mindgap.studies.double_descent.samples import DoubleDescentSamples
from mindgap.studies.double_descent.width import DoubleDescentWidth


def table(samples: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(samples * 100 + width)
    features = torch.randn(samples, width, generator=random, dtype=torch.float64)
    return features, torch.randn(samples, 2, generator=random, dtype=torch.float64)


@pytest.mark.parametrize(("samples", "width"), [(12, 5), (12, 12), (12, 30)])
class TestLeastSquares:
    def test_has_the_smallest_norm(self, samples: int, width: int) -> None:
        features, targets = table(samples, width)
        wanted = torch.linalg.pinv(features) @ targets
        assert torch.allclose(least_squares(features, targets).weights(), wanted, atol=1e-9)

    def test_ridge_solves_the_normal_equations(self, samples: int, width: int) -> None:
        features, targets = table(samples, width)
        found = least_squares(features, targets).weights(0.3)
        matrix = features.T @ features + 0.3 * torch.eye(width, dtype=torch.float64)
        assert torch.allclose(matrix @ found, features.T @ targets, atol=1e-9)

    def test_leaves_one_out_as_solving_again_does(self, samples: int, width: int) -> None:
        features, targets = table(samples, width)
        losses = []
        for out in range(samples):
            kept = torch.arange(samples) != out
            weights = least_squares(features[kept], targets[kept]).weights(0.3)
            losses.append(float((features[out] @ weights - targets[out]).square().sum()))
        wanted = sum(losses) / samples
        assert least_squares(features, targets).left_out(0.3) == pytest.approx(wanted, rel=1e-9)


def test_copies_of_a_column_share_its_weight() -> None:
    features, targets = table(12, 3)
    twice = torch.cat([features, features], 1)
    found, whole = (
        least_squares(twice, targets).weights(),
        least_squares(features, targets).weights(),
    )
    assert torch.allclose(found[:3], whole / 2, atol=1e-9)


@pytest.mark.parametrize("used", [3, 8, 22, 30])
def test_simulated_risks_have_the_exact_mean(used: int) -> None:
    """Away from the threshold; there the mean is infinite."""
    risks = simulated_risks(14, used, 30, 0.25, draws=4000, seed=used)
    expected = expected_ridgeless_risk(14, used, used / 30, 1 - used / 30, 0.25)
    error = float(risks.std()) / math.sqrt(len(risks))
    assert abs(float(risks.mean()) - expected) < 4 * error
    assert error < 0.05 * expected


@pytest.mark.parametrize("used", [9, 10, 11])
def test_the_expected_risk_is_infinite_at_the_threshold(used: int) -> None:
    assert math.isinf(expected_ridgeless_risk(10, used, 0.5, 0.5, 1.0))


def test_digits_are_split_without_overlap_and_the_noise_is_exact() -> None:
    clean, noisy = noisy_digits(100, 0.0, 3), noisy_digits(100, 0.2, 3)
    assert len(clean.inputs) + len(clean.test_inputs) == 1797
    assert int((clean.labels != noisy.labels).sum()) == 20
    assert torch.equal(clean.test_labels, noisy.test_labels)
    assert float(clean.inputs.mean(0).abs().max()) < 1e-6
    with pytest.raises(InputError, match="at most 1787"):
        noisy_digits(1790, 0.0, 0)


def test_the_peak_is_where_features_and_samples_are_as_many() -> None:
    study = DoubleDescentWidth(seeds=3, samples=60, draws=10)
    runs = [study.run(trial) for trial in study.trials() if trial["problem"] == "digits"]
    means = {ratio: math.prod(run[ratio]["test_loss"] for run in runs) for ratio in runs[0]}
    assert max(means, key=means.__getitem__) == "1"
    assert all(run["1"]["train_loss"] < 1e-15 < run["0.5"]["train_loss"] for run in runs)
    assert all(run["1"]["ridge_loss"] < 0.1 * run["1"]["test_loss"] for run in runs)
    assert all(run["20"]["norm"] < run["2"]["norm"] < run["1"]["norm"] for run in runs)


def test_more_samples_hurt_below_the_threshold_only() -> None:
    study = DoubleDescentSamples(seeds=3, width=60)
    runs = [study.run(trial) for trial in study.trials()]
    factor, z = peak_test(
        [run["1"]["test_loss"] for run in runs], [run["0.25"]["test_loss"] for run in runs]
    )
    assert factor > 5
    assert z > 2
    assert all(run["4"]["test_loss"] < run["0.25"]["test_loss"] for run in runs)


def test_features_are_the_same_for_train_and_test() -> None:
    data = noisy_digits(50, 0.0, 0)
    same = random_features(data.__class__(data.inputs, data.labels, data.inputs, data.labels), 9, 1)
    assert torch.equal(same.train, same.test)
    assert float((same.train == 0).all(0).double().mean()) == 0  # no dead feature


def test_closed_form_descent_equals_steps() -> None:
    features, targets = table(12, 5)
    rate = 0.5 / float(torch.linalg.matrix_norm(features, 2)) ** 2
    weights = torch.zeros(5, dtype=torch.float64)
    for _ in range(7):
        weights = weights - rate * features.T @ (features @ weights - targets[:, 0])
    found = descended(features, targets[:, 0], torch.tensor([7.0], dtype=torch.float64))
    assert torch.allclose(found[0], weights, atol=1e-12)


def test_two_scales_give_two_descents() -> None:
    low, at_low, high, at_high, end, _, rise_p, _, fall_p = turning(
        [linear_curve(seed) for seed in range(12)]
    )
    assert low < high
    assert at_low < at_high > end
    assert max(rise_p, fall_p) < 0.01


def test_a_monotone_curve_has_no_rise() -> None:
    curves = [{"time": [1, 2, 3], "test": [3.0, 2.0, 1.0 + 0.01 * k]} for k in range(4)]
    assert turning(curves)[5] == 0


def test_decay_is_chosen_on_validation_digits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other test labels leave the choice and the trained network as they were."""
    from mindgap.studies.double_descent import networks

    study = DoubleDescentNetworks().tiny()
    trial = Trial(parameters={"width": 8}, seed=1)
    before = study.run(trial)

    def spoiled(*args: object) -> object:
        data = noisy_digits(*args)  # type: ignore[arg-type]
        labels = data.test_labels.clone()
        labels[networks.VALIDATION :] = (labels[networks.VALIDATION :] + 1) % 10
        return data.__class__(data.inputs, data.labels, data.test_inputs, labels)

    monkeypatch.setattr(networks, "noisy_digits", spoiled)
    after = study.run(trial)
    assert before["decay"] == after["decay"]
    assert before["decayed_norm"] == after["decayed_norm"]
    assert before["decayed_test"] != after["decayed_test"]


def test_networks_are_judged_at_the_width_that_fits() -> None:
    study = DoubleDescentNetworks(widths=(4, 8, 16))
    errors = {4: (0.3, 0.2), 8: (0.0, 0.4), 16: (0.0, 0.1)}
    records = [
        (
            Trial(parameters={"width": width}, seed=seed),
            {
                **{f"{arm}_train": train for arm in ("plain", "decayed")},
                **{f"{arm}_test": test + 0.001 * seed * width for arm in ("plain", "decayed")},
                **{f"{arm}_norm": 1.0 for arm in ("plain", "decayed")},
                "decay": 0.1,
            },
        )
        for width, (train, test) in errors.items()
        for seed in range(4)
    ]
    notes = " ".join(study.summarize(records).notes)
    assert "at the threshold, width 8, minus that at width 4: +0.2" in notes
    assert "minus that at width 16: +0.2" in notes
    assert "higher" in notes


def test_epochs_of_the_network_are_read_often() -> None:
    study = DoubleDescentEpochs().tiny()
    record = study.run(study.trials()[-1])
    assert record["time"][-1] == 8
    assert len(record["test"]) == len(record["train"]) == len(record["time"])
