"""Scores of all arms on validation data: who leads, by how much, and with which noise."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mindgap.core import two_way
from mindgap.training.race.arm import Arm
from mindgap.training.race.plan import Noise


class Scores(NamedTuple):
    """What a trained model does on each validation sample.

    Args:
        errors: What arms are ranked by: wrong or not, or the loss of a regression.
        losses: The loss, which decides between equal errors.
        fold: Which validation samples these are. Seeds of the same fold see the same ones.
    """

    errors: NDArray[np.float64]
    losses: NDArray[np.float64]
    fold: int = 0


Seeds = Sequence[int]
Wanted = Sequence[tuple[Arm, Seeds]]
# Stage and wanted trainings -> scores by arm and seed, or the reason why there are none.
Observe = Callable[[str, Wanted], Mapping[tuple[str, int], Scores | str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """What became of an arm in one stage of the search.

    Args:
        stage: ``"retune"``, ``"rung 1"``, ``"rung 2"`` or ``"rung 3"``.
        arm: The name of the arm.
        group: Its group.
        score: Mean validation error over all its seeds so far; None if it could not be trained.
        seeds: Number of seeds.
        kept: Whether it goes on.
        reason: Why, or why not.
    """

    stage: str
    arm: str
    group: str
    score: float | None
    seeds: int
    kept: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)


class Race:
    """The scores of all arms so far."""

    def __init__(self, observe: Observe, seeds: Seeds) -> None:
        self._observe, self._seeds = observe, seeds
        self._seen: dict[str, dict[int, Scores]] = {}
        self._failed: dict[str, str] = {}
        self.log: list[Step] = []
        self.spent, self.trials = 0.0, dict[str, int]()

    def train(self, stage: str, arms: Sequence[Arm], count: int) -> None:
        """Train all arms on the first seeds, those aside that they know already."""
        wanted = [
            (arm, missing)
            for arm in arms
            if (missing := [s for s in self._seeds[:count] if s not in self.seen(arm)])
        ]
        found = self._observe(stage, wanted) if wanted else {}
        for arm, missing in wanted:
            self.spent += arm.cost * len(missing)
            self.trials[arm.group] = self.trials.get(arm.group, 0) + len(missing)
            for seed in missing:
                self._keep(arm, seed, found[arm.name, seed])

    def _keep(self, arm: Arm, seed: int, scores: Scores | str) -> None:
        if isinstance(scores, str):
            self._failed.setdefault(arm.name, scores)
        elif not np.isfinite(scores.errors).all():
            self._failed.setdefault(arm.name, "its validation losses are not finite")
        else:
            self._seen.setdefault(arm.name, {})[seed] = scores

    def seen(self, arm: Arm) -> dict[int, Scores]:
        """Return the scores of an arm by seed."""
        return self._seen.get(arm.name, {})

    def failure(self, arm: Arm) -> str:
        """Say why an arm could not be trained; empty if it could."""
        return self._failed.get(arm.name, "")

    def score(self, arm: Arm, count: int) -> tuple[float, float]:
        """Return the mean validation error and loss over the first seeds."""
        own = self.seen(arm)
        kept = [own[seed] for seed in self._seeds[:count] if seed in own]
        if self.failure(arm) or not kept:
            return math.inf, math.inf
        errors, losses = (
            float(np.mean([part.mean() for part in parts]))
            for parts in zip(*[(row.errors, row.losses) for row in kept], strict=True)
        )
        # Sums of the same numbers in another order are a tie.
        return round(errors, 12), losses if math.isfinite(losses) else math.inf

    def ranked(self, arms: Sequence[Arm], count: int) -> list[Arm]:
        """Sort by error, then by loss, then by cost."""
        return sorted(arms, key=lambda arm: (*self.score(arm, count), arm.cost))

    def tell(self, stage: str, arm: Arm, count: int, *, kept: bool, reason: str) -> None:
        """Note what became of an arm."""
        score = self.score(arm, count)[0]
        self.log.append(
            Step(
                stage=stage,
                arm=arm.name,
                group=arm.group,
                score=score if math.isfinite(score) else None,
                seeds=count,
                kept=kept,
                reason=self.failure(arm) or reason,
            )
        )

    def behind(self, arm: Arm, best: Arm) -> tuple[float, float] | None:
        """Return how much higher the error is than that of the best arm, and the standard error."""
        tables = self._differences(arm, best)
        if not tables:
            return None
        seeds = sum(len(table) for table in tables)
        mean = math.fsum(float(row.mean()) for table in tables for row in table) / seeds
        noise = _noise(tables)
        if noise is None:  # one seed per fold: seeds and samples cannot be told apart
            means = np.concatenate([table.mean(0) for table in tables])
            return mean, float(means.std(ddof=1)) / math.sqrt(len(means))
        parts = [
            (len(table) / seeds) ** 2 * noise.of_a_mean(len(table), table.shape[1])
            for table in tables
        ]
        return mean, math.sqrt(math.fsum(parts))

    def noise(self, arm: Arm, control: Arm) -> Noise | None:
        """Return the noise of an arm's gain over the control; None if no fold has two seeds."""
        return _noise(self._differences(control, arm))

    def _differences(self, arm: Arm, other: Arm) -> list[NDArray[np.float64]]:
        """Return how much more one arm errs than another: per fold, seeds × samples."""
        mine, its = self.seen(arm), self.seen(other)
        folds: dict[int, list[NDArray[np.float64]]] = {}
        for seed in (seed for seed in mine if seed in its):
            rows = folds.setdefault(mine[seed].fold, [])
            rows.append(mine[seed].errors - its[seed].errors)
        return [np.stack(rows) for rows in folds.values()]


def _noise(tables: Sequence[NDArray[np.float64]]) -> Noise | None:
    """Average the parts of the noise over folds."""
    found = [two_way(table) for table in tables if min(table.shape) > 1]
    if not found:
        return None
    parts = [(row.seed_part, row.sample_part, row.residual) for row in found]
    return Noise(*(float(part) for part in np.mean(parts, axis=0)))
