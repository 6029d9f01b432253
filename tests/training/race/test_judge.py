"""The judgment on simulated test errors."""

import numpy as np
import pytest

from mindgap.core import two_way
from mindgap.training.race.arm import Arm
from mindgap.training.race.judge import judge, judge_folds, judge_retuning

BASELINE, CONTROL, ARM, OTHER = (
    Arm(name=name, group=name) for name in ("baseline", "control", "arm", "other")
)
SEEDS, SAMPLES = 20, 400


def _errors(seed: int = 0, **gains: float) -> dict[str, np.ndarray]:
    """Errors that share the difficulty of samples; every arm has its own taste in samples."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=SAMPLES)
    return {
        name: 5
        - gains.get(name, 0.0)
        + hard
        + 0.5 * rng.normal(size=SAMPLES)
        + 0.1 * rng.normal(size=(SEEDS, 1))
        + 0.5 * rng.normal(size=(SEEDS, SAMPLES))
        for name in ("baseline", "control", "arm", "other")
    }


def test_a_clear_gain_helps_and_a_clear_loss_harms():
    errors = _errors(arm=1.0, other=-1.0, control=0.2)
    first, second = judge(CONTROL, [ARM, OTHER], BASELINE, errors)
    assert (first.word, second.word) == ("helps", "harms")
    assert first.gain.difference == pytest.approx(0.8, abs=0.2)
    assert first.short == ""


def test_p_values_are_corrected_for_all_finalists():
    errors = _errors(arm=0.15)
    raw = two_way(errors["control"] - errors["arm"]).p_value
    (alone,) = judge(CONTROL, [ARM], BASELINE, errors)
    together = judge(CONTROL, [ARM, OTHER], BASELINE, errors)
    assert alone.p_value == pytest.approx(raw)
    assert together[0].p_value == pytest.approx(2 * raw)


def test_what_beats_only_a_bad_retuning_does_not_help():
    errors = _errors(arm=0.0, control=-1.0, baseline=0.5)
    (found,) = judge(CONTROL, [ARM], BASELINE, errors)
    assert found.gain.interval.low > 0
    assert found.word == "could not tell"


def test_identical_predictions_make_no_difference():
    errors = _errors()
    errors["arm"] = errors["control"]
    (found,) = judge(CONTROL, [ARM], BASELINE, errors)
    assert (found.word, found.p_value) == ("no difference", 1.0)


def test_a_gain_below_what_the_samples_allow_names_them():
    found = [judge(CONTROL, [ARM], BASELINE, _errors(s, arm=0.02))[0] for s in range(10)]
    unclear = [row for row in found if row.word == "could not tell"]
    assert len(unclear) >= 9
    assert all(row.short == "samples" for row in unclear)
    assert all(row.detectable > 0.05 for row in unclear)


def test_few_seeds_are_named_where_they_are_what_is_short():
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(4, 1)) + np.array([1.0, -1.0, 0.5, 1.5])[:, None]
    errors = {
        "baseline": np.full((4, SAMPLES), 5.0),
        "control": np.full((4, SAMPLES), 5.0),
        "arm": 4.6 + noise + 0.01 * rng.normal(size=(4, SAMPLES)),
    }
    errors["arm"] += 4.6 - errors["arm"].mean()
    (found,) = judge(CONTROL, [ARM], BASELINE, errors)
    assert (found.word, found.short) == ("could not tell", "seeds")


def test_retuning_is_judged_against_the_untouched_baseline():
    assert judge_retuning(CONTROL, BASELINE, _errors(control=1.0)).word == "helps"
    assert judge_retuning(CONTROL, BASELINE, _errors(control=-1.0)).word == "harms"


def test_picks_of_folds_are_judged_as_one():
    folds = [_errors(seed, arm=0.3) for seed in range(3)]
    mine, its, given = ([own[name] for own in folds] for name in ("arm", "control", "baseline"))
    found = judge_folds(ARM, mine, its, given)
    gains = np.concatenate([(c - m).mean(0) for c, m in zip(its, mine, strict=True)])
    assert found.gain.difference == pytest.approx(gains.mean())
    assert found.error == pytest.approx(np.concatenate([m.mean(0) for m in mine]).mean())
    assert found.word == "helps"
    alone = judge_folds(ARM, mine[:1], its[:1], given[:1])
    assert found.gain.standard_error < 0.7 * alone.gain.standard_error
    worse = [table - 1.0 for table in given]  # the recipe as given beats the picks
    assert judge_folds(ARM, mine, its, worse).word == "could not tell"
