"""Does improve help? Races on real data sets, judged on untouched test data."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch

from mindgap.core import Record, Study, Table, Trial, TwoWay, option, two_way
from mindgap.data import load
from mindgap.diagnoses.causes import causes
from mindgap.studies.improve.recipes import Sizes, plain_recipe
from mindgap.training.race.arm import BASELINE, Arm, baseline
from mindgap.training.race.candidates import arms_of, cells, extensions, remedies_to_try
from mindgap.training.race.fixes import fixes_of
from mindgap.training.race.judge import judge, judge_retuning
from mindgap.training.race.of_recipe import RecipeTrainer
from mindgap.training.race.plan import Plan, confirmation_seeds, make_plan
from mindgap.training.race.scores import Scores, Wanted
from mindgap.training.race.search import Searched, search

NAMES = ("digits", "mnist", "cifar10", "uci-concrete", "uci-energy", "uci-wine")
FRESH = 500_000  # first seed of the confirmation, of which the search knows none
COLUMNS = (
    *("data", "test samples", "fresh seeds", "as given", "retuned", "finalist"),
    *("retuned, % of as given", "its interval", "finalist, % of retuned", "interval to retuned"),
    *("finalist, % of as given", "interval to as given", "verdict", "the finalist", "p (Holm)"),
)


class DoesImproveHelp(Study):
    r"""What improve gains on real data sets, against the retuned recipe and the recipe as given.

    Formula: $\frac{\mathrm{err}_{arm} - \mathrm{err}_{control}}{\mathrm{err}_{control}}$

    Reading: Negative is better. The finalist is the arm that the race ranks first on validation
    data. It, the retuned recipe and the recipe as given are trained on fresh seeds and compared on
    test data that no choice has seen. The intervals are those of the two-way test over seeds and
    test samples. The verdict is that of improve, for the finalist against the retuned recipe,
    corrected for all finalists of the race. Errors are error rates of classifications and mean
    squared errors of regressions, in units of the target's variance.

    Assumes: One split per data set, so that intervals do not speak of other training sets. Networks
    have one hidden layer. Images of CIFAR-10 are averaged to 8 × 8 pixels.

    >>> len(DoesImproveHelp().trials())
    6
    """

    method = ("E5",)
    cites = ("holm1979simple",)

    trainings: int = option(200, help="trainings per race", low=40)
    samples: int = option(1000, help="largest number of training samples", low=50)
    test_samples: int = option(2000, help="largest number of test samples", low=20)
    hidden: int = option(32, help="hidden units of the network", low=1)
    epochs: int = option(20, help="epochs of the recipe as given", low=1)
    sets: int = option(
        len(NAMES), help="number of data sets, in the order of the table", low=1, high=len(NAMES)
    )

    def trials(self) -> Sequence[Trial]:
        """One race per data set."""
        return [Trial(parameters={"data": name}) for name in NAMES[: self.sets]]

    def run(self, trial: Trial) -> Record:
        """Search on validation data, confirm on fresh seeds, judge on test data."""
        sizes = Sizes(self.samples, self.test_samples, self.hidden, self.epochs)
        trainer = RecipeTrainer(plain_recipe(load(trial["data"]), sizes, trial.seed))
        plan = make_plan(self.trainings)
        searched = raced(trainer, plan)
        arms = {a.name: a for a in (baseline(), searched.control, *searched.finalists)}
        share = int((plan.trainings - searched.spent - 1) / sum(a.cost for a in arms.values()))
        count = confirmation_seeds(searched.noise, len(trainer.test), max(2, share))
        seeds = range(FRESH, FRESH + count)
        answers = {name: trainer.answers(arm, seeds) for name, arm in arms.items()}
        # Only here, after all training, are the test targets read.
        errors = {
            name: np.stack([trainer.errors(row) for row in rows]) for name, rows in answers.items()
        }
        return _record(searched, errors)

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per data set."""
        rows = tuple((trial["data"], *_row(record)) for trial, record in records)
        helped = sum(row[12] == "helps" for row in rows)
        tuned = sum(record["retuning"] == "helps" for _, record in records)
        return Table(
            title=f"Does improve help? Races with {self.trainings} trainings",
            columns=COLUMNS,
            rows=rows,
            notes=(
                f"Remedies help beyond retuning on {helped} of {len(rows)} data sets; retuning "
                f"helps on {tuned}.",
                "Changes of the test error in percent; negative is better. The finalist was chosen "
                "on validation data. Intervals are 95 % intervals over seeds and test samples.",
            ),
        )

    def tiny(self) -> Self:
        """Race on the digits that come with the package."""
        return self.replace(sets=1, trainings=40, samples=100, test_samples=60, hidden=8, epochs=2)


def raced(trainer: RecipeTrainer, plan: Plan) -> Searched:
    """Diagnose, retune and race on training and validation data, as improve does.

    Args:
        trainer: What trains.
        plan: How many trainings there are.
    """
    findings = causes(trainer, 0)
    told = [row for row in findings if row.severity != "note" and not row.explained_by]
    chosen, _ = remedies_to_try(
        [row.symptom for row in told if row.symptom is not None],
        trainer.task,
        trainer.validation[0].take(torch.arange(1)).inputs,
    )

    def observe(_stage: str, wanted: Wanted) -> Mapping[tuple[str, int], Scores | str]:
        return {key: row for arm, seeds in wanted for key, row in _seen(trainer, arm, seeds)}

    return search(
        plan,
        baseline(),
        observe,
        cells=cells(trainer.recipe),
        extend=extensions(trainer.recipe),
        candidates=arms_of(chosen, plan, fixes_of(findings, trainer.recipe, len(trainer.train))),
        seeds=range(FRESH),
    )


def _seen(
    trainer: RecipeTrainer, arm: Arm, seeds: Sequence[int]
) -> list[tuple[tuple[str, int], Scores]]:
    rows = trainer.scores(arm, seeds)
    return [((arm.name, seed), row) for seed, row in zip(seeds, rows, strict=True)]


def _record(searched: Searched, errors: Mapping[str, Any]) -> dict[str, Any]:
    control = searched.control
    first = judge(control, searched.finalists, baseline(), errors)[0]
    retuned = judge_retuning(control, baseline(), errors)
    given = two_way(errors[BASELINE] - errors[first.arm.name])
    return {
        "samples": first.gain.samples,
        "seeds": first.gain.seeds,
        "errors": [float(errors[BASELINE].mean()), retuned.error, first.error],
        "retuned": _gain(retuned.gain),
        "finalist": _gain(first.gain),
        "whole": _gain(given),
        "retuning": retuned.word,
        "control": control.name,
        "word": first.word,
        "arm": first.arm.name,
        "p": first.p_value,
    }


def _gain(found: TwoWay) -> list[float]:
    return [found.difference, found.interval.low, found.interval.high]


def _row(record: Record) -> tuple[Any, ...]:
    given, tuned, _ = record["errors"]
    return (
        *(record["samples"], record["seeds"], *record["errors"]),
        *_change(record["retuned"], given),
        *_change(record["finalist"], tuned),
        *_change(record["whole"], given),
        *(record["word"], f"{record['arm']}, on {record['control']}", record["p"]),
    )


def _change(gain: Sequence[float], error: float) -> tuple[float, str]:
    """Turn a gain into a change in percent of an error."""
    mean, low, high = (-100 * value / max(error, 1e-300) for value in gain)
    return round(mean, 2), f"[{high:.1f}, {low:.1f}]"
