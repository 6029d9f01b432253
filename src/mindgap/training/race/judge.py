"""The judgment: what the test data say about the finalists, opened once after all training."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mindgap.core import TwoWay, holm, minimum_detectable, stratified, two_way
from mindgap.training.race.arm import Arm

LEVEL = 0.025  # one-sided, so that the word and the 95 % interval agree
Word = Literal["helps", "harms", "could not tell", "no difference"]
Short = Literal["", "seeds", "samples"]
Table = NDArray[np.float64]
Errors = Mapping[str, Table]  # by arm, one row per seed, one column per sample


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


def judge_folds(
    arm: Arm, mine: Sequence[Table], its: Sequence[Table], given: Sequence[Table]
) -> Judged:
    """Test what was picked in outer folds against the control of each fold.

    The folds are disjoint samples with seeds of their own. One question is asked, so that nothing
    is corrected.

    Args:
        arm: Stands for all picks.
        mine: Per fold the test errors of the pick, seeds × samples.
        its: Those of the fold's control.
        given: Those of the recipe as it was.
    """
    gain = stratified([two_way(c - m) for c, m in zip(its, mine, strict=True)])
    better = _mean(given) > _mean(mine)
    by_seed = np.concatenate([table.mean(1) for table in mine])
    return _told(arm, _mean(mine), by_seed, gain, (gain.p_value, gain.harm), better=better)


def _mean(tables: Sequence[Table]) -> float:
    """Average over samples, each of which is in one fold."""
    samples = sum(table.shape[1] for table in tables)
    return float(math.fsum(table.mean() * table.shape[1] for table in tables) / samples)


def _judged(
    arm: Arm, errors: Errors, gain: TwoWay, p_value: float, harm: float, better: bool
) -> Judged:
    by_seed = errors[arm.name].mean(1)
    return _told(arm, float(by_seed.mean()), by_seed, gain, (p_value, harm), better=better)


def _told(
    arm: Arm,
    error: float,
    by_seed: Table,
    gain: TwoWay,
    p_values: tuple[float, float],
    *,
    better: bool,
) -> Judged:
    p_value, harm = p_values
    word = _word(gain, p_value, harm, better)
    return Judged(
        arm=arm,
        error=error,
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
