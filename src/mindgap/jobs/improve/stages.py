"""The stages of improve: diagnosis and search, learning curve, confirmation."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mindgap.core import Finding, TwoWay, two_way
from mindgap.jobs.improve.trials import Lab
from mindgap.training.race.arm import RETUNED, Arm, baseline
from mindgap.training.race.candidates import arms_of, cells, extensions, remedies_to_try
from mindgap.training.race.fixes import fixes_of
from mindgap.training.race.judge import Errors
from mindgap.training.race.of_recipe import RecipeTrainer
from mindgap.training.race.plan import Plan, confirmation_seeds
from mindgap.training.race.search import Searched, search
from mindgap.training.race.trainer import Trainer, digest_of

_SPAN, _PER_FOLD = 1_000_000, 100_000  # seeds of a race, of which half confirm; of an outer fold
_LONGER_FROM = 400  # trainings from which four times the epochs may be tried
_CURVE = {"half of the data": 0.5, "a quarter of the data": 0.25}
_CURVE_SEEDS, _CURVE_FROM = 3, 100  # seeds per point, and trainings from which it is drawn


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """What less data costs, on validation data.

    Args:
        spent: Trainings used.
        full: Error with all data.
        doubled: Error that a power law predicts for twice the data.
        half: How much lower the error is with all data than with half.
    """

    spent: float
    full: float
    doubled: float
    half: TwoWay


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confirmed:
    """What was trained on fresh seeds.

    Args:
        arms: Baseline, control and finalists.
        seeds: Number of common seeds.
        answers: Answers of every arm to the test inputs, one array per seed.
    """

    arms: tuple[Arm, ...]
    seeds: int
    answers: Mapping[str, Sequence[NDArray[np.float32]]]


def seeds_of(seed: int, fold: int = 0) -> tuple[range, range]:
    """Return the seeds of the search and those of the confirmation, which share none.

    Args:
        seed: The race; races share no seed.
        fold: The outer fold; nor do folds.

    >>> search, fresh = seeds_of(1)
    >>> search[0], fresh[0], set(search) & set(fresh)
    (1000000, 1500000, set())
    """
    start = seed * _SPAN + fold * _PER_FOLD
    middle = start + _SPAN // 2
    return range(start, start + _PER_FOLD), range(middle, middle + _PER_FOLD)


class Stages:
    """One race, stage by stage.

    Args:
        trainer: What trains.
        lab: Runs trainings and keeps them.
        plan: How many there are.
        seed: First seed, in millions.
        fold: Number of the outer fold, whose seeds no other has.
        remedies: Names of remedies to choose from; all if None.
        retune: Settings of a function that trains, to try as its retuned baseline.
    """

    def __init__(
        self,
        trainer: Trainer,
        lab: Lab,
        plan: Plan,
        seed: int,
        remedies: Sequence[str] | None,
        retune: Sequence[Mapping[str, Any]],
        fold: int = 0,
    ) -> None:
        self.trainer, self.plan = trainer, plan
        self._lab, self._remedies, self._retune = lab, remedies, retune
        self._seeds, self._fresh = seeds_of(seed, fold)
        self.findings: list[Finding] = []
        self.skipped: dict[str, str] = {}

    def search(self) -> Searched:
        """Diagnose on training and validation data, then retune and race."""
        fixes, extend = list[Arm](), lambda *_: list[Arm]()
        if isinstance(self.trainer, RecipeTrainer):
            self.findings = self._lab.findings(self._seeds[0])
            fixes = fixes_of(self.findings, self.trainer.recipe, len(self.trainer.train))
            longest = 2.0 if self.plan.trainings < _LONGER_FROM else 4.0
            extend = extensions(self.trainer.recipe, longest)
        told = [f for f in self.findings if f.severity != "note" and not f.explained_by]
        chosen, self.skipped = remedies_to_try(
            [finding.symptom for finding in told if finding.symptom is not None],
            self.trainer.task,
            self.trainer.validation[0].take(torch.arange(1)).inputs,
            self._remedies,
        )
        return search(
            self.plan,
            baseline(),
            self._lab.observe,
            cells=self._cells(),
            extend=extend,
            candidates=arms_of(chosen, self.plan, fixes),
            seeds=self._seeds,
        )

    def _cells(self) -> list[Arm]:
        if isinstance(self.trainer, RecipeTrainer):
            return cells(self.trainer.recipe)
        return [
            Arm(
                name=", ".join(f"{k.replace('_', ' ')} {v}" for k, v in settings.items()),
                group=RETUNED,
                settings=dict(settings),
            )
            for settings in self._retune
        ]

    def curve(self, searched: Searched) -> Curve | None:
        """Train on half and a quarter of the data, with as many steps.

        Args:
            searched: What the search left.

        Returns:
            What that costs on validation data; None if the budget has no room or a training failed.
        """
        if not isinstance(self.trainer, RecipeTrainer) or self.plan.trainings < _CURVE_FROM:
            return None
        control = searched.control
        epochs = control.settings.get("epochs", self.trainer.recipe.epochs)
        points = [
            Arm(name=text, group=text, fix={"share": share}).on(control)
            for text, share in _CURVE.items()
        ]
        points = [
            dataclasses.replace(
                arm, settings={**arm.settings, "epochs": round(epochs / arm.fix["share"])}
            )
            for arm in points
        ]
        # Seeds of one fold, so that all of them see the same validation samples.
        folds = len(self.trainer.validation)
        seeds = self._seeds[: folds * _CURVE_SEEDS : folds]
        known = max(step.seeds for step in searched.log if step.arm == control.name)
        fresh = sum(seed - self._seeds[0] >= known for seed in seeds)
        found = self._lab.observe("curve", [(arm, seeds) for arm in [control, *points]])
        tables = [[found[arm.name, seed] for seed in seeds] for arm in [control, *points]]
        if any(isinstance(row, str) for table in tables for row in table):
            return None
        full, half, quarter = (
            np.stack([row.errors for row in table if not isinstance(row, str)]) for table in tables
        )
        # A power law loses the same share with every doubling of the data.
        share = math.sqrt(min(1.0, full.mean() / max(quarter.mean(), 1e-12)))
        return Curve(
            spent=sum(arm.cost for arm in points) * len(seeds) + control.cost * fresh,
            full=float(full.mean()),
            doubled=float(full.mean() * share),
            half=two_way(half - full),
        )

    def confirm(self, searched: Searched, reserved: float) -> Confirmed:
        """Train finalists, control and baseline on all training data with fresh common seeds.

        Args:
            searched: What the search left.
            reserved: Trainings that were used for something else.
        """
        arms = tuple(
            {arm.name: arm for arm in (baseline(), searched.control, *searched.finalists)}.values()
        )
        left = self.plan.trainings - searched.spent - reserved
        share = max(2, int(left / sum(arm.cost for arm in arms)))
        count = confirmation_seeds(searched.noise, len(self.trainer.test), share)
        inputs = digest_of(self.trainer.test, targets=False)
        answers = self._lab.answers([(arm, self._fresh[:count]) for arm in arms], inputs)
        return Confirmed(arms=arms, seeds=count, answers=answers)

    def opened(self, confirmed: Confirmed) -> Errors:
        """Read the test targets, after all training; return errors by arm, seeds × samples."""
        return {
            name: np.stack([self.trainer.errors(row) for row in rows])
            for name, rows in confirmed.answers.items()
        }
