"""The judgment: what the test data say about the finalists, opened once after all training."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mindgap.core import TwoWay, holm, minimum_detectable, two_way
from mindgap.training.race.arm import Arm

LEVEL = 0.025  # one-sided, so that the word and the 95 % interval agree
Word = Literal["helps", "harms", "could not tell", "no difference"]
Short = Literal["", "seeds", "samples"]
Errors = Mapping[str, NDArray[np.float64]]  # by arm, one row per seed, one column per sample


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """An arm on test data.

    Args:
        arm: The arm.
        error: Its mean test error.
        gain: How much lower its error is than that of its control, over seeds and test samples.
        p_value: One-sided p-value of the gain, corrected for all finalists.
        word: ``"helps"``, ``"harms"``, ``"could not tell"`` or ``"no difference"``.
        detectable: The gain that this test would have found with a power of 0.8.
        short: What a clearer answer lacks: ``"seeds"`` or ``"samples"``; empty if it is clear.
        median: Median over seeds of the mean test error.
        worst: The largest mean test error of a seed.
    """

    arm: Arm
    error: float
    gain: TwoWay
    p_value: float
    word: Word
    detectable: float
    short: Short
    median: float
    worst: float


def judge(control: Arm, finalists: Sequence[Arm], baseline: Arm, errors: Errors) -> list[Judged]:
    """Test the finalists against the retuned control, corrected by Holm's method.

    An arm "helps" only if it beats the retuned control beyond noise and the untouched baseline on
    average.

    Args:
        control: The retuned baseline.
        finalists: The arms to judge.
        baseline: The recipe as it was.
        errors: Per-sample test errors of all arms, seeds × samples, with common seeds.
    """
    gains = [two_way(errors[control.name] - errors[arm.name]) for arm in finalists]
    better = [errors[baseline.name].mean() > errors[arm.name].mean() for arm in finalists]
    helps, harms = holm([gain.p_value for gain in gains]), holm([gain.harm for gain in gains])
    return [
        _judged(arm, errors, gain, p, harm, above)
        for arm, gain, p, harm, above in zip(finalists, gains, helps, harms, better, strict=True)
    ]


def judge_retuning(control: Arm, baseline: Arm, errors: Errors) -> Judged:
    """Test the retuned control against the untouched baseline, as a question of its own."""
    gain = two_way(errors[baseline.name] - errors[control.name])
    return _judged(control, errors, gain, gain.p_value, gain.harm, True)


def _judged(
    arm: Arm, errors: Errors, gain: TwoWay, p_value: float, harm: float, better: bool
) -> Judged:
    by_seed = errors[arm.name].mean(1)
    word = _word(gain, p_value, harm, better)
    return Judged(
        arm=arm,
        error=float(by_seed.mean()),
        gain=gain,
        p_value=p_value,
        word=word,
        detectable=minimum_detectable(gain),
        short=_short(gain) if word == "could not tell" else "",
        median=float(np.median(by_seed)),
        worst=float(by_seed.max()),
    )


def _word(gain: TwoWay, p_value: float, harm: float, better: bool) -> Word:
    if gain.constant and gain.difference == 0:
        return "no difference"
    if p_value <= LEVEL and better:
        return "helps"
    return "harms" if harm <= LEVEL else "could not tell"


def _short(gain: TwoWay) -> Short:
    """Say what is short: samples if even endless seeds would not have found this gain."""
    endless = minimum_detectable(gain, seeds=math.inf)
    return "samples" if endless > max(gain.difference, 0.0) else "seeds"
