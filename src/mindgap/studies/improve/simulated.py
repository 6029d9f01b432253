"""How often improve is wrong, in simulated races with the noise of real nets."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from mindgap.core import Record, Study, Table, Trial, option, proportion_interval
from mindgap.core.chart.numbers import round_down, round_up
from mindgap.studies.improve.arms import SETTINGS, candidates, effect_of, setting
from mindgap.studies.improve.worlds import CONCRETE, DIGITS, Kind, Side, World
from mindgap.training.race.arm import BASELINE, Arm, baseline
from mindgap.training.race.judge import Errors, Judged, judge, judge_folds
from mindgap.training.race.of_recipe import FOLDS
from mindgap.training.race.plan import Plan, confirmation_seeds, make_plan
from mindgap.training.race.scores import Scores, Wanted
from mindgap.training.race.search import Searched, search

WORLDS = {world.name: world for world in (DIGITS, CONCRETE)}
NULLS: tuple[Kind, ...] = ("equal", "unequal variances", "heavy tails", "ties", "harmful")
GAINS = (1.0, 2.0, 3.0)
TYPICAL, OUTER = 2.0, 3  # gain and outer folds of the rows that compare designs
_PAIR: tuple[tuple[Kind, float], ...] = (("equal", 0.0), ("gain", TYPICAL))
RESERVED = 8.0  # trainings that improve spends on the diagnosis and the learning curve
COUNTS = ("races", "helps", "false", "covered", "judged", "seeds")
SUMS = ("bias", "square")
COLUMNS = (
    *("test set", "arms", "races", "fresh seeds", "false “helps”, %", "interval of false"),
    *("power, %", "interval of power", "bias", "its standard error"),
    *("coverage, %", "interval of coverage"),
)


class Cell(NamedTuple):
    """What is special about a row.

    Args:
        kind: About its arms.
        gain: Of the remedy that helps, in standard deviations of a seed.
        inner: Folds of validation samples that seeds of the search take turns with.
        outer: Outer folds, in each of which is a race; one if there is a test set.
    """

    kind: Kind
    gain: float
    inner: int = FOLDS
    outer: int = 1

    @property
    def words(self) -> str:
        """The name of the row."""
        name = f"gain {self.gain:g} sd" if self.gain else self.kind
        name += " at all strengths" if self.kind == "even gain" else ""
        name += "" if self.inner == FOLDS else ", one validation set"
        return name if self.outer == 1 else f"{name}, {self.outer} outer folds"


def _cell_of(trial: Trial) -> Cell:
    return Cell(*(trial[name] for name in Cell._fields))


class SimulatedRaces(Study):
    r"""How often improve is wrong: simulated races with the noise that was measured on real nets.

    Formula: $P(\exists\, a : a \text{ helps}, \, g_a \le 0) \le 0.05$

    Reading: Search, plan and judgment are those of improve; the nets are replaced by draws. Every
    arm has an effect on each sample, on each seed, and on both. Their sizes are those of nets on
    digits (0/1 errors) and on a small regression. Equal arms differ on every sample but not on
    average. Arms with ties equal the control on 95 % or all of the samples. Wild seeds and effects
    have Student's distribution with 3 degrees of freedom. Harmful arms lose 0.25 to 1.5 standard
    deviations of a seed. In the other rows one remedy of six gains so many standard deviations at
    one of its three strengths, and half as much at the others or as much; the other remedies gain
    nothing. Power is how often improve says that it helps. Bias is the mean of reported minus true
    gain, in these units, whatever the verdict. Coverage is how often the 95 % interval holds the
    true gain. Both are of the first finalist. The search sees five folds of validation samples in
    turn, or one, as with a training function. With outer folds the trainings are divided by them,
    every fold has as many test samples, and the true gain is the mean of all picks.

    Assumes: Normal effects where no other distribution is named. Nothing is published to compare
    with.

    >>> len(SimulatedRaces(races=200, block=100).trials())
    52
    """

    method = ("E5",)
    cites = ("holm1979simple",)

    races: int = option(2000, help="races per row", low=2)
    block: int = option(100, help="races per trial", low=1)
    trainings: int = option(200, help="trainings per race", low=40)

    def trials(self) -> Sequence[Trial]:
        """Blocks of races, for every test set and kind of arms."""
        return [
            Trial(parameters={"world": world, **cell._asdict(), "first": first})
            for world in WORLDS
            for cell in _cells()
            for first in range(0, self.races, self.block)
        ]

    def run(self, trial: Trial) -> Record:
        """Run the races of a block and count."""
        seeds = range(trial["first"], min(trial["first"] + self.block, self.races))
        world, plan = WORLDS[trial["world"]], make_plan(self.trainings)
        rows = [race(world, _cell_of(trial), plan, seed) for seed in seeds]
        return {name: math.fsum(row[name] for row in rows) for name in (*COUNTS, *SUMS)}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per test set and kind of arms."""
        cells: dict[tuple[str, Cell], list[Record]] = {}
        for trial, record in records:
            cells.setdefault((trial["world"], _cell_of(trial)), []).append(record)
        rows = tuple(_row(*key, blocks) for key, blocks in cells.items())
        return Table(
            title=f"Simulated races of improve with {self.trainings} trainings",
            columns=COLUMNS,
            rows=rows,
            notes=(
                f"False: some arm that gains nothing is said to help; {_verdict(rows)}.",
                "Test sets: "
                + "; ".join(f"{world.name}, {world.test} samples" for world in WORLDS.values())
                + ". Gains and bias are in standard deviations of a seed.",
                "Intervals are 95 % Clopper–Pearson intervals in percent, rounded outwards.",
            ),
        )

    def tiny(self) -> Self:
        """Run four races per row with fewer trainings."""
        return self.replace(races=4, block=4, trainings=120)


def race(world: World, cell: Cell, plan: Plan, seed: int) -> dict[str, float]:
    """Run one race: search, confirm, judge.

    Args:
        world: The noise.
        cell: What is special about the arms and the design.
        plan: How many trainings there are.
        seed: Fixes all draws.

    Returns:
        Counts and sums of the row that it belongs to.
    """
    # Rows of the same arms draw the same numbers first.
    tag = [list(WORLDS).index(world.name), *cell.kind.encode(), round(1000 * cell.gain), seed]
    rng = np.random.Generator(np.random.SFC64(tag))
    if cell.outer > 1:
        return _nested(world, cell, plan, rng)
    searched, errors = _confirmed(world, cell, plan, rng)
    found = judge(searched.control, searched.finalists, baseline(), errors)
    true = [effect_of(row.arm).gain for row in found]
    return _counted(world, found, true, len(errors[BASELINE]))


def _nested(world: World, cell: Cell, plan: Plan, rng: np.random.Generator) -> dict[str, float]:
    """Search, pick and confirm in every outer fold, and judge all picks as one."""
    small = dataclasses.replace(make_plan(plan.trainings // cell.outer), finalists=1)
    folds = [_confirmed(world, cell, small, rng) for _ in range(cell.outer)]
    picks = [searched.finalists[0] for searched, _ in folds]
    tables = [
        (own[arm.name], own[searched.control.name], own[BASELINE])
        for arm, (searched, own) in zip(picks, folds, strict=True)
    ]
    found = judge_folds(picks[0], *(list(part) for part in zip(*tables, strict=True)))
    true = math.fsum(effect_of(arm).gain for arm in picks) / cell.outer
    return _counted(world, [found], [true], min(len(own[BASELINE]) for _, own in folds))


def _confirmed(
    world: World, cell: Cell, plan: Plan, rng: np.random.Generator
) -> tuple[Searched, Errors]:
    searched = _searched(world, cell, plan, rng)
    arms = (baseline(), searched.control, *searched.finalists)
    # What improve spends on the diagnosis and, with one test set, on the learning curve.
    reserved = 1.0 if cell.outer > 1 else RESERVED
    share = int((plan.trainings - searched.spent - reserved) / sum(arm.cost for arm in arms))
    count = confirmation_seeds(searched.noise, world.test, max(2, share))
    side = Side(world, cell.kind, world.test, rng)
    return searched, {
        arm.name: np.stack([s.errors for s in side.errors(arm.name, effect_of(arm), 0, count)])
        for arm in arms
    }


def _counted(
    world: World, found: Sequence[Judged], true: Sequence[float], seeds: int
) -> dict[str, float]:
    helps = [gain for row, gain in zip(found, true, strict=True) if row.word == "helps"]
    told = [row.gain.interval for row in found[:1]]
    off = found[0].gain.difference / world.unit - true[0] if found else 0.0
    return {
        "races": 1,
        "helps": float(any(value > 0 for value in helps)),
        "false": float(any(value <= 0 for value in helps)),
        "covered": float(any(i.low <= true[0] * world.unit <= i.high for i in told)),
        "judged": len(told),
        "seeds": seeds,
        "bias": off,
        "square": off**2,
    }


def _searched(world: World, cell: Cell, plan: Plan, rng: np.random.Generator) -> Searched:
    """Search on validation samples in folds, which seeds take turns with."""
    sides = [Side(world, cell.kind, world.validation, rng) for _ in range(cell.inner)]

    def observe(_stage: str, wanted: Wanted) -> Mapping[tuple[str, int], Scores | str]:
        return {
            (arm.name, seed): _seen(sides, arm, seed) for arm, seeds in wanted for seed in seeds
        }

    return search(
        plan,
        baseline(),
        observe,
        cells=SETTINGS,
        extend=lambda best, _: (
            [setting(f"{best.name}, further", 6)] if best in SETTINGS[:2] else []
        ),
        candidates=lambda control: [
            arm.on(control) for arm in candidates(cell.kind, cell.gain, plan)
        ],
        seeds=range(1000),
    )


def _seen(sides: Sequence[Side], arm: Arm, seed: int) -> Scores:
    fold = seed % len(sides)
    (found,) = sides[fold].errors(arm.name, effect_of(arm), seed, seed + 1)
    return found._replace(fold=fold)


def _cells() -> list[Cell]:
    nulls = [Cell(kind, 0.0) for kind in NULLS]
    gains = [Cell("gain", gain) for gain in GAINS]
    others = [
        Cell("even gain", TYPICAL),
        *(Cell(kind, gain, inner=1) for kind, gain in _PAIR),
        *(Cell(kind, gain, outer=OUTER) for kind, gain in _PAIR),
    ]
    return [*nulls, *gains, *others]


def _row(world: str, cell: Cell, blocks: Sequence[Record]) -> tuple[Any, ...]:
    total = {name: math.fsum(block[name] for block in blocks) for name in (*COUNTS, *SUMS)}
    races, judged = int(total["races"]), int(total["judged"])
    bias = total["bias"] / max(judged, 1)
    spread = max(total["square"] / max(judged, 1) - bias**2, 0.0)
    return (
        world,
        cell.words,
        races,
        round(total["seeds"] / races, 1),
        *_share(total["false"], races),
        *(_share(total["helps"], races) if cell.gain else (None, None)),
        round(bias, 4),
        round(math.sqrt(spread / max(judged, 1)), 4),
        *_share(total["covered"], judged),
    )


def _share(count: float, total: int) -> tuple[float, str]:
    """Write a share in percent, with its interval."""
    found = proportion_interval(int(count), total)
    low, high = round_down(100 * found.low, 1), round_up(100 * found.high, 1)
    return round(100 * count / total, 2), f"[{low:.1f}, {high:.1f}]"


def _verdict(rows: Sequence[tuple[Any, ...]]) -> str:
    worst = max(rows, key=lambda row: row[4])
    kept = "nowhere" if worst[4] <= 5 else "somewhere"
    return f"{kept} in more than 5 % of the races ({worst[4]:g} % at most: {worst[0]}, {worst[1]})"
