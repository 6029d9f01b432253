"""The search: retune the baseline, then race remedies on top of it, on validation data alone.

Nothing here trains. A function ``observe`` does, and gives per-sample errors and losses on
validation data; a simulation can stand in for it.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from mindgap.core import InputError
from mindgap.training.race.arm import BASELINE, RETUNED, Arm
from mindgap.training.race.plan import PILOT, RUNGS, Noise, Plan, first_seeds
from mindgap.training.race.scores import Observe, Race, Seeds, Step

KEPT = 3  # one arm in so many survives a rung
STRENGTHS = 2  # strengths of one remedy that may survive a rung
ROUNDS = 2  # times that a best cell on the edge extends the grid
RETUNE_MOST = 0.4  # of the search, that retuning may take with its extensions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Searched:
    """What the search leaves.

    Args:
        control: The best cell of the retuned baseline; the baseline itself if no cell beats it.
        finalists: The arms to confirm, the best first: one, and what is within a standard error.
        log: Who was dropped when and why.
        spent: Trainings used, in units of the baseline.
        trials: Number of trainings by group.
        noise: Noise of the best finalist's gain over the control, on validation data.
    """

    control: Arm
    finalists: tuple[Arm, ...]
    log: tuple[Step, ...]
    spent: float
    trials: Mapping[str, int]
    noise: Noise | None


def search(
    plan: Plan,
    baseline: Arm,
    observe: Observe,
    *,
    cells: Sequence[Arm],
    extend: Callable[[Arm, Sequence[Arm]], Sequence[Arm]],
    candidates: Callable[[Arm], Sequence[Arm]],
    seeds: Seeds,
) -> Searched:
    """Retune the baseline, then race candidates on top of it over three rungs.

    All arms of a stage get the same seeds. A rung costs about as much as the one before and keeps a
    third. The control runs with every rung and is never dropped.

    Args:
        plan: How many trainings there are.
        baseline: The recipe as it is.
        observe: Trains arms and gives their scores on validation data.
        cells: Settings of the baseline to try.
        extend: Given the best cell and all that beat the baseline, returns further cells.
        candidates: Given the retuned control, returns the arms to race, the most promising first.
        seeds: Seeds of the search, in order.
    """
    race = Race(observe, seeds)
    race.train("pilot", [baseline], PILOT)
    if race.failure(baseline):
        raise InputError(
            f"The recipe must train as it is, got: {race.failure(baseline).rstrip('.')}. Correct it "
            "first."
        )
    control = _retuned(race, plan, baseline, cells, extend)
    finalists = _rungs(race, plan, control, candidates(control))
    return Searched(
        control=control,
        finalists=tuple(finalists),
        log=tuple(race.log),
        spent=race.spent,
        trials=dict(race.trials),
        noise=race.noise(finalists[0], control) if finalists else None,
    )


def _retuned(
    race: Race,
    plan: Plan,
    baseline: Arm,
    cells: Sequence[Arm],
    extend: Callable[[Arm, Sequence[Arm]], Sequence[Arm]],
) -> Arm:
    count, tried = plan.retune_seeds, [baseline, *cells]
    race.train("retune", tried, count)
    for _ in range(ROUNDS):
        best = race.ranked(tried, count)[0]
        better = [c for c in tried if race.score(c, count) < race.score(baseline, count)]
        known = {arm.name for arm in tried}
        more = [arm for arm in extend(best, better) if arm.name not in known]
        more = _within(more, count, RETUNE_MOST * plan.search - race.spent)
        if not more:
            break
        race.train("retune", more, count)
        tried += more
    order = race.ranked(tried, count)
    chosen = min(order, key=lambda arm: (not _as_good(race, arm, order[0]), arm.cost))
    for place, arm in enumerate(order, 1):
        reason = f"{_nth(place)} of {len(order)} settings on validation data"
        if arm is chosen and place > 1:
            reason += ", and the cheapest within one standard error of the first"
        race.tell("retune", arm, count, kept=arm is chosen, reason=reason)
    return chosen


def _as_good(race: Race, arm: Arm, best: Arm) -> bool:
    """Whether an arm is within one standard error of the best, so that its cost may decide."""
    if arm is best:
        return True
    behind = race.behind(arm, best)
    return behind is not None and behind[0] <= behind[1]


def _within(arms: Sequence[Arm], count: int, budget: float) -> list[Arm]:
    """Take the first arms that a budget allows."""
    kept, left = [], budget
    for arm in arms:
        left -= arm.cost * count
        if left >= 0:
            kept.append(arm)
    return kept


def _rungs(race: Race, plan: Plan, control: Arm, candidates: Sequence[Arm]) -> list[Arm]:
    """Race the candidates; return the finalists, the best first."""
    left = plan.search - race.spent
    alive = _affordable(race, control, candidates, left)
    count = 0
    for rung in range(1, RUNGS + 1):
        if not alive:
            break
        stage, cost = f"rung {rung}", control.cost + sum(arm.cost for arm in alive)
        more = first_seeds(left, cost) if rung == 1 else int(left / (RUNGS - rung + 1) / cost)
        count, before = count + _fair(race, control, alive, count, more), race.spent
        race.train(stage, [control, *alive], count)
        left -= race.spent - before
        alive = _survivors(race, plan, control, alive, rung, count)
    return alive


def _fair(race: Race, control: Arm, alive: Sequence[Arm], count: int, more: int) -> int:
    """Limit the new seeds of a rung: no remedy gets more trials than the retuned baseline.

    The first rung needs one seed at least; a later one without new seeds ranks by what is known.
    """
    least = 0 if count else 1
    if not race.trials.get(RETUNED):  # nothing could be retuned
        return max(more, least)
    sizes = Counter(arm.group for arm in alive)
    own, known = race.trials[RETUNED] + race.trials.get(BASELINE, 0), len(race.seen(control))
    while more > least and any(
        race.trials.get(group, 0) + size * more > own + max(0, count + more - known)
        for group, size in sizes.items()
    ):
        more -= 1
    return max(more, least)


def _affordable(race: Race, control: Arm, candidates: Sequence[Arm], budget: float) -> list[Arm]:
    """Leave out the last groups until one seed of all leaves room for the later rungs."""
    groups = list(dict.fromkeys(arm.group for arm in candidates))
    while len(groups) > 1:
        cost = control.cost + sum(arm.cost for arm in candidates if arm.group in groups)
        if cost <= 0.6 * budget:
            break
        groups.pop()
    for arm in candidates:
        if arm.group not in groups:
            race.tell("rung 1", arm, 0, kept=False, reason="no budget left to try it")
    return [arm for arm in candidates if arm.group in groups]


def _survivors(
    race: Race, plan: Plan, control: Arm, alive: Sequence[Arm], rung: int, count: int
) -> list[Arm]:
    stage, last = f"rung {rung}", rung == RUNGS
    ranked = race.ranked(alive, count)
    # One more than the finalists, so that the last rung still has a choice to make.
    keep = plan.finalists if last else max(math.ceil(len(ranked) / KEPT), plan.finalists + 1)
    kept = list[Arm]()
    race.tell(stage, control, count, kept=True, reason="the retuned control is never dropped")
    for place, arm in enumerate(ranked, 1):
        flaw = _flaw(race, arm, kept, last=last) if len(kept) < keep else ""
        going = len(kept) < keep and not flaw and not race.failure(arm)
        where = f"{_nth(place)} of {len(ranked)} on validation data"
        race.tell(stage, arm, count, kept=going, reason=f"{where}{flaw}")
        kept += [arm] if going else []
    return kept


def _flaw(race: Race, arm: Arm, kept: Sequence[Arm], *, last: bool) -> str:
    """Say why an arm does not go on although there is room for it; empty if it does."""
    if sum(other.group == arm.group for other in kept) >= STRENGTHS:
        return ", behind better strengths"
    # Every further finalist costs seeds, and power by Holm's correction.
    if last and kept and not _as_good(race, arm, kept[0]):
        return ", more than a standard error behind the first"
    return ""


def _nth(place: int) -> str:
    """Write a place as a word.

    >>> [_nth(place) for place in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{'th' if place % 100 in (11, 12, 13) else ending}"
