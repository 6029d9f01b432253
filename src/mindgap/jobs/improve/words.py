"""The words of ``improve``: headline, sentences, claims, and code to paste."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from mindgap.core import TwoWay
from mindgap.report.improved import Row
from mindgap.report.wording import amount, both_ends, change
from mindgap.training.race.arm import Arm
from mindgap.training.race.judge import Judged

LARGE = 2.0  # a cost, and a worst seed against the median, from which a sentence names it


class Told(NamedTuple):
    """What all sentences need to know.

    Args:
        metric: What is measured.
        rate: Whether it is a share of wrong answers.
        seeds: Number of fresh seeds, in every fold.
        samples: Number of test samples, in all folds.
        folds: Number of outer folds; one if there is a test set.
    """

    metric: str
    rate: bool
    seeds: int
    samples: int
    folds: int = 1

    @property
    def sizes(self) -> str:
        """On how much a number rests."""
        if self.folds == 1:
            return f"{self.seeds} fresh seeds, {self.samples:,} test samples"
        return (
            f"{self.seeds} fresh seeds in each of {self.folds} folds, {self.samples:,} samples "
            "tested once"
        )


def headline(
    told: Told,
    before: float,
    control: Judged | None,
    best: Judged | None,
    *,
    more_data: bool = False,
) -> tuple[str, str]:
    """Say what helps, in one word and one sentence.

    Args:
        told: Metric and sizes.
        before: Mean test error of the recipe as given.
        control: The retuned control, if it differs from the baseline.
        best: The finalist to tell of.
        more_data: Whether less data did clearly worse.
    """
    retuned = "" if control is None else f"; {_retuning(told, before, control)}"
    if best is not None and best.word == "helps":
        start = best.error + best.gain.difference
        if control is not None and math.isclose(start, control.error):
            start = control.error  # written twice, it must not be rounded in two ways
        text = f"{_name(best.arm)} lowers {told.metric} from {amount(start, told.rate)} to "
        return (
            "helps",
            f"{text}{amount(best.error, told.rate)} ({_certainty(told, best.gain)}){retuned}.",
        )
    if control is not None and control.word == "helps":
        gain = f"({_certainty(told, control.gain)})"
        change_ = f"from {amount(before, told.rate)} to {amount(control.error, told.rate)} {gain}"
        return (
            "retuning helps",
            f"{_retuned(told, control)} lowers {told.metric} {change_}; nothing else tried "
            "helps beyond noise.",
        )
    if best is not None and best.word == "no difference":
        return "no difference", "What was tried changes no prediction on the test samples."
    if best is not None and best.word == "harms":
        return "harms", f"What was tried raises {told.metric}: keep the recipe as it is."
    tail = "; twice the data would" if more_data else ""
    return "could not tell", f"Nothing tried helps beyond noise{tail}."


def _retuned(told: Told, control: Judged) -> str:
    return f"Retuning ({control.arm.name})" if told.folds == 1 else "What retuning picks"


def _retuning(told: Told, before: float, control: Judged) -> str:
    after = amount(control.error, told.rate)
    return f"retuning alone gave {after} from {amount(before, told.rate)}"


def _certainty(told: Told, gain: TwoWay) -> str:
    unit = " points" if told.rate else ""
    return (
        f"gain {change(gain.difference, told.rate)}{unit}, 95 % interval "
        f"{both_ends(gain.interval, told.rate)}, {told.sizes}"
    )


def _name(arm: Arm) -> str:
    return arm.name[:1].upper() + arm.name[1:]


def about(told: Told, row: Judged) -> str:
    """Tell of one finalist: its estimate whatever the verdict, and what is short."""
    unit = " points" if told.rate else ""
    text = (
        f"{_name(row.arm)}: {row.word}. Its {told.metric} is {amount(row.error, told.rate)}, gain "
        f"{change(row.gain.difference, told.rate)}{unit} (95 % interval "
        f"{both_ends(row.gain.interval, told.rate)}, {'corrected p' if told.folds == 1 else 'p'} "
        f"{row.p_value:.2g})."
    )
    if row.word == "could not tell":
        least = change(row.detectable, told.rate).lstrip("+")
        text += f" A gain below {least}{unit} would mostly stay unseen: {_lack(told, row)}."
    if row.worst > LARGE * row.median > 0:
        text += f" Its worst seed has {amount(row.worst, told.rate)}."
    if row.arm.cost >= LARGE:
        text += f" It takes {row.arm.cost:.2g} times the training time."
    return text


def _lack(told: Told, row: Judged) -> str:
    if row.short == "samples":
        text = f"{told.samples:,} test samples are too few, however many seeds are trained"
        return text if told.folds > 1 else f"{text}; folds=3 would test every sample once"
    return f"{told.seeds} seeds are too few"


def curve(told: Told, full: float, doubled: float, half: TwoWay) -> str:
    """Tell what more data would give, from training on less."""
    if half.interval.low <= 0:
        unit = " points" if told.rate else ""
        return (
            "Whether more data would help could not be told: half of the data costs "
            f"{change(half.difference, told.rate)}{unit} on validation samples (95 % interval "
            f"{both_ends(half.interval, told.rate)})."
        )
    kind = told.metric.replace("test", "validation")
    return (
        f"Twice the data would lower the {kind} from {amount(full, told.rate)} to about "
        f"{amount(doubled, told.rate)}, as a power law through a quarter, half and all of the data "
        "says."
    )


def claims(finalists: int, validation: Sequence[int], retuned: bool) -> tuple[str, ...]:
    """Say which population each interval speaks of.

    Args:
        finalists: Number of arms that were tested.
        validation: Number of validation samples in each fold of the search.
        retuned: Whether anything was retuned.
    """
    control = "the retuned control" if retuned else "the baseline as given (nothing was retuned)"
    return (
        "Gains of finalists are against "
        f"{control}; the gain of the retuned control is against the baseline as given.",
        "Each 95 % interval speaks of this training set, of new seeds, and of new samples from where "
        "the test samples come from. It does not speak of new training sets.",
        f"p-values are one-sided and corrected for {finalists} finalist"
        f"{'' if finalists == 1 else 's'} by Holm's method; retuning is tested as a question of its "
        "own. An arm helps if its corrected p-value is at most 0.025.",
        f"All choices were made on {_validated(validation)}. Test targets were opened once, after all "
        "training. The estimate is printed whatever the verdict.",
        _COST,
    )


_COST = "Cost is the training time as a multiple of the recipe's as given, as remedies declare it."


def _validated(folds: Sequence[int]) -> str:
    text = f"{sum(folds):,} validation samples"
    if len(folds) == 1:
        return text
    return f"{text} from the training data, in {len(folds)} folds that seeds take turns with"


def claims_of_folds(folds: int) -> tuple[str, ...]:
    """Say what outer folds allow to claim.

    Args:
        folds: Number of outer folds.
    """
    return (
        "The gain is that of what improve picks, not of one arm: each of "
        f"{folds} folds was searched on its own, and may have picked another arm. It is against the "
        "retuned control of the same fold; retuning is against the recipe as given.",
        "Training and test data were pooled. Every sample is test data in one fold, and training "
        "data in the others. No search saw the targets that judge it.",
        "Each 95 % interval speaks of these training sets, of new seeds, and of new samples from "
        f"where these come from. Networks learned from {100 - 100 / folds:.0f} % of the data: with "
        "all of them, expect a little less error.",
        "The p-value is one-sided. What improve picks helps if it is at most 0.025.",
        _COST,
    )


def code_of(arm: Arm, *, recipe: bool = True) -> str:
    """Write how to train an arm, to paste.

    Args:
        arm: The arm.
        recipe: Whether a recipe is trained, and not a function of the user's called.
    """
    lines = ["import mindgap"] if recipe else []
    names = sorted({type(remedy).__name__ for remedy in arm.remedies})
    lines += [f"from mindgap.remedies import {', '.join(names)}"] if names else []
    lines += ["", *_fix_lines(arm.fix)] if lines else []
    if not recipe:
        more = "".join(f", {name}={value!r}" for name, value in arm.settings.items())
        lines.append(f"model = train(seed, [{', '.join(map(_call, arm.remedies))}]{more})")
        return "\n".join(lines)
    if arm.settings:
        changes = ", ".join(f"{name}={value!r}" for name, value in arm.settings.items())
        lines.append(f"recipe = recipe.replace({changes})")
    remedies = ", ".join(map(_call, arm.remedies))
    lines.append(f"fitted = mindgap.fit(recipe{f', [{remedies}]' if remedies else ''})")
    if arm.fix.get("recompute"):
        lines += [
            "from mindgap.training.race.fixes import recompute",
            "recompute(fitted.model, recipe.splits()[0])",
        ]
    return "\n".join(lines)


def _call(remedy: Any) -> str:
    plain = type(remedy)().parameters
    fields = {name: value for name, value in remedy.parameters.items() if value != plain[name]}
    named = fields or {remedy.strength: getattr(remedy, remedy.strength)}
    return f"{type(remedy).__name__}({', '.join(f'{k}={v!r}' for k, v in named.items())})"


def _fix_lines(fix: Any) -> list[str]:
    lines = list[str]()
    if "relabel" in fix:
        lines += [
            "inputs, targets = recipe.train",
            f"for place, label in {fix['relabel']!r}:",
            "    targets[place] = label",
        ]
    if "drop" in fix:
        lines += [
            "import torch",
            "inputs, targets = recipe.train",
            "keep = torch.ones(len(targets), dtype=torch.bool)",
            f"keep[{fix['drop']!r}] = False",
            "recipe = recipe.replace(train=(inputs[keep], targets[keep]))",
        ]
    if fix.get("rescale"):
        lines += [
            "from mindgap.training.race.fixes import rescaled",
            "recipe = rescaled(recipe)  # standardizes the inputs inside the model",
        ]
    return lines


def row_of(judged: Judged, role: Any) -> Row:
    """Make the row of a judged arm."""
    return Row(
        arm=judged.arm.name,
        role=role,
        error=judged.error,
        cost=judged.arm.cost,
        gain=judged.gain.difference,
        interval=judged.gain.interval,
        p_value=judged.p_value,
        word=judged.word,
        detectable=judged.detectable,
        short=judged.short,
        median=judged.median,
        worst=judged.worst,
    )


def best_of(judged: Sequence[Judged]) -> Judged | None:
    """Return the finalist to tell of: one that helps, else the one with the largest gain."""
    order = {"helps": 0, "could not tell": 1, "no difference": 2, "harms": 3}
    ranked = sorted(judged, key=lambda row: (order[row.word], -row.gain.difference))
    return ranked[0] if ranked else None
