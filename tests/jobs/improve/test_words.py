"""The words of improve: what helps, what more data would give, and what is short."""

import numpy as np
import pytest

from mindgap.core import two_way
from mindgap.jobs.improve import words
from mindgap.training.race.arm import Arm
from mindgap.training.race.judge import judge

TOLD = words.Told("test error", True, 20, 600)
ARMS = [Arm(name=name, group=name) for name in ("baseline", "control", "label smoothing")]


def _judged(gain: float, noise: float = 0.05):
    rng = np.random.default_rng(0)
    errors = {arm.name: 0.1 + noise * rng.normal(size=(20, 600)) for arm in ARMS}
    errors["label smoothing"] -= gain
    return judge(ARMS[1], [ARMS[2]], ARMS[0], errors)[0]


def _half(cost: float):
    rng = np.random.default_rng(1)
    return two_way(cost + 0.1 * rng.normal(size=(3, 200)))


def test_a_clear_gain_is_told_with_its_interval_and_sizes():
    word, text = words.headline(TOLD, 0.1, None, _judged(0.02))
    assert word == "helps"
    assert text.startswith("Label smoothing lowers test error from")
    assert "20 fresh seeds, 600 test samples" in text


@pytest.mark.parametrize(("more_data", "tail"), [(True, "; twice the data would."), (False, ".")])
def test_where_nothing_helps_more_data_may(more_data: bool, tail: str):
    word, text = words.headline(TOLD, 0.1, None, _judged(0.0), more_data=more_data)
    assert word == "could not tell"
    assert text == f"Nothing tried helps beyond noise{tail}"


def test_the_learning_curve_speaks_only_of_what_is_clear():
    clear = words.curve(TOLD, 0.1, 0.08, _half(0.05))
    assert clear.startswith("Twice the data would lower the validation error from 10")
    assert "power law" in clear
    unclear = words.curve(TOLD, 0.1, 0.08, _half(0.0))
    assert unclear.startswith("Whether more data would help could not be told")


def test_short_samples_lead_to_folds():
    rng = np.random.default_rng(0)
    errors = {arm.name: np.repeat(rng.normal(size=(1, 600)), 20, 0) for arm in ARMS}
    for arm in ARMS:
        errors[arm.name] = errors[arm.name] + 0.01 * rng.normal(size=(20, 600))
    (row,) = judge(ARMS[1], [ARMS[2]], ARMS[0], errors)
    text = words.about(TOLD, row)
    assert row.short == "samples"
    assert "folds=3 would test every sample once" in text
    assert "folds=3" not in words.about(TOLD._replace(folds=3), row)


def test_the_claims_name_the_validation_samples():
    text = " ".join(words.claims(2, [100, 100, 100], True))
    assert "300 validation samples from the training data, in 3 folds" in text
    assert "40 validation samples." in " ".join(words.claims(1, [40], False))
    assert "Networks learned from 67 % of the data" in " ".join(words.claims_of_folds(3))
