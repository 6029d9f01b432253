"""The verdict: a headline, the sentences that support it, and what to try next."""

import collections
import math
from collections.abc import Mapping, Sequence

from mindgap.bounds.held_out import TOLERATED
from mindgap.core import Result
from mindgap.report import wording
from mindgap.report.parts import Card, Facts, Verdict
from mindgap.report.verdict.advice import advise
from mindgap.report.verdict.diagnosis import CLEAR_GAP, KINDS, NOTABLE_GAP, kind_of, underfits
from mindgap.report.verdict.facts import turning_point


def stop(facts: Facts) -> str:
    """Say why training ended before its time; empty if it did not, as all sentences here."""
    if facts.stopped.startswith("diverged: "):
        return f"In training {facts.stopped.removeprefix('diverged: ')}."
    return f"Training was {facts.stopped}." if facts.stopped.startswith("interrupted") else ""


def leak(facts: Facts) -> str:
    """Say that test samples also appear in the training data."""
    if not facts.overlap:
        return ""
    share = (
        f"{wording.percent(facts.overlap)} of the test samples also appear, with the same target, "
        "in the training data"
    )
    if facts.overlap <= TOLERATED:
        return f"{share}. So few may be natural duplicates, but look at them."
    return f"{share}. The gap below is therefore too small, and no bound on held-out data holds."


def unstable(facts: Facts) -> str:
    """Say that the model is random, or that it mixes the samples of a batch."""
    if not facts.unstable:
        return ""
    return (
        f"This model is not a function of the sample alone: {facts.unstable}. Another pass or "
        "another batch size gives other numbers, and bounds on held-out data may not hold."
    )


def _gap_sentence(facts: Facts, gap: Result) -> str:
    """Say how large the gap is, with its interval, or that it cannot be known."""
    what = "error" if facts.rate else "loss"
    if gap.value is None:
        return (
            f"The training {what} is {wording.error(facts, facts.train_error)}. Without samples "
            f"that the model has never seen, this says nothing about the {what} in use."
        )
    size = f"The gap between test and training {what} is {wording.gap(facts, gap.value)}"
    samples = wording.count(facts.test_samples, "test sample")
    if gap.interval is None or not math.isfinite(gap.interval.high):
        return f"{size}, from {samples}: too few for an interval."
    level, ends = wording.level(gap.interval), wording.ends(facts, gap.interval)
    return f"{size}, with {level} confidence between {ends} (from {samples})."


def _shortage(facts: Facts, gap: Result) -> str:
    """Say how many test samples would settle an undecided gap."""
    needed = samples_needed(facts, gap)
    if needed is None:
        return "One test sample has no spread; a few hundred give a first interval."
    return (
        "The interval reaches from almost nothing to a gap worth acting on. About "
        f"{wording.count(needed - facts.test_samples, 'more test sample')} ({needed:,} in all) "
        "would settle it."
    )


def samples_needed(facts: Facts, gap: Result) -> int | None:
    """Compute the number of test samples at which the interval would decide the diagnosis.

    A half width shrinks with the square root of the number of samples. The gap is assumed to stay
    the same.
    """
    if gap.value is None or gap.interval is None or not math.isfinite(gap.interval.high):
        return None
    half = (gap.interval.high - gap.interval.low) / 2
    target = max(gap.value - CLEAR_GAP * facts.scale, NOTABLE_GAP * facts.scale - gap.value)
    return max(math.ceil(facts.test_samples * (half / target) ** 2), facts.test_samples + 1)


def train(facts: Facts) -> str:
    """Say that the training error is high, compared with the baseline."""
    if not underfits(facts):
        return ""
    verb = "is wrong on" if facts.rate else "has a loss of"
    judged = "labels of the training samples" if facts.labels else "training samples"
    end = f"of the {judged}" if facts.rate else "on the training data"
    baseline = "majority-class" if facts.rate else "mean-target"
    return (
        f"This model {verb} {wording.error(facts, facts.train_error)} {end}, the {baseline} "
        f"baseline {verb} {wording.error(facts, facts.baseline)}: the model has not learned enough "
        "yet."
    )


def bound(facts: Facts, cards: Sequence[Card]) -> str:
    """Say what the tightest bound guarantees that is valid and not vacuous.

    Bounds of one basis have a fixed order, so taking the smallest of them is no choice. Taking the
    smallest over several bases is one, and each basis takes its share of delta.
    """
    bounds = [card for card in cards if card.result.family == "bound"]
    holding = [card for card in bounds if card.guarantees_model]
    if holding:
        bases = {card.result.provenance.get("basis", card.result.name) for card in holding}
        return _guarantee(facts, min(holding, key=lambda card: float(card.result)), len(bases))
    if not bounds or not facts.test_samples:
        return ""
    reasons = collections.Counter(_why_not(card) for card in bounds)
    (reason, times), *_ = reasons.most_common(1)
    return f"No bound gives a guarantee here. For {times} of {len(bounds)} the reason is: {reason}."


def _why_not(card: Card) -> str:
    """Say why a bound guarantees nothing for the model itself."""
    if card.guarantees:
        return f"it is about {card.result.provenance['risk_of']}"
    return card.result.reason or "it is vacuous"


def _guarantee(facts: Facts, card: Card, bases: int) -> str:
    result = card.result
    confidence = 1 - bases * float(result.provenance.get("parameters", {}).get("delta", 0.05))
    value = wording.bounded(result, facts, result.value)
    what = "error" if "%" in value else "loss"
    # A held-out bound counts only test samples that are not in the training data.
    where = "data that are not in the training data" if result.terms.get("shared") else "data"
    return (
        f"With {wording.at_least(confidence)} confidence the {what} on unseen {where} is below "
        f"{value} (bound: {card.title}), provided that nothing was chosen by looking at the test "
        "data."
    )


def rise(curves: Sequence[Mapping[str, float]]) -> str:
    """Say that the loss on unseen data rose while the training loss fell."""
    turn = turning_point(curves)
    if turn is None:
        return ""
    return (
        f"The {turn.which} loss was lowest in epoch {turn.epoch} ({wording.number(turn.lowest)}) "
        f"and has risen to {wording.number(turn.last)} since, while the training loss kept falling. "
        "This is what the curve shows, not a choice: choose the epoch on held-out training data."
    )


def failure(cards: Sequence[Card]) -> str:
    """Say that some measures failed."""
    failed = [card.title for card in cards if card.result.reason.startswith("failed")]
    if not failed:
        return ""
    noun = "One quantity" if len(failed) == 1 else f"{len(failed)} quantities"
    named = ", ".join(failed[:3])
    return (
        f"{noun} could not be computed because of an error ({named}). The reasons are listed below."
    )


MOST_SENTENCES = 5  # a verdict that needs more is not one


def judge(
    facts: Facts, gap: Result, cards: Sequence[Card], curves: Sequence[Mapping[str, float]]
) -> Verdict:
    """Judge a subject by its facts, its gap, its results and its training curves."""
    kind = kind_of(facts, gap)
    label, tone = KINDS[kind]
    late = rise(curves)
    words = [
        stop(facts),
        leak(facts),
        unstable(facts),
        _gap_sentence(facts, gap),
        _shortage(facts, gap) if kind == "undecided" else "",
        train(facts),
        "" if kind == "leak" else bound(facts, cards),
        late,
        failure(cards),
    ]
    return Verdict(
        kind=kind,
        label=label,
        tone=tone,
        headline=headline(kind, facts),
        sentences=tuple(sentence for sentence in words if sentence)[:MOST_SENTENCES],
        advice=advise(kind, ["late over-fitting"] if late else []),
    )


HEADLINES: Mapping[str, str] = {
    "diverged": "Training diverged, so what follows is about an unfinished model.",
    "leak": "These test data cannot judge the model: {overlap} of them are in its training data.",
    "over-fitting": "This model over-fits: {unseen}, but {seen}.",
    "mild over-fitting": "This model over-fits a little: {unseen}, {seen}.",
    "under-fitting": "This model under-fits: {seen}.",
    "undecided": "There are too few test samples to tell whether this model over-fits.",
    "no test data": "The gap cannot be measured: there are no test data.",
    "easier test data": "The test data look easier than the training data: {unseen}, {seen}.",
    "fine": "What this model learned carries over: {unseen}, {seen}.",
}


def headline(kind: str, facts: Facts) -> str:
    """Write the one sentence that a reader in a hurry takes away."""
    return HEADLINES[kind].format(
        seen=_rate(facts, facts.train_error, "its training data"),
        unseen=_rate(facts, facts.test_error or 0.0, "unseen data"),
        overlap=wording.percent(facts.overlap),
    )


def _rate(facts: Facts, value: float, where: str) -> str:
    if facts.rate:
        return (
            f"{wording.percent(value)} {'of all labels ' if facts.labels else ''}wrong on {where}"
        )
    return f"loss {wording.number(value, 3)} on {where}"
