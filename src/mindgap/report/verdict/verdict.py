"""The verdict: the first finding, or that nothing wrong was found, with the gap and the guarantee."""

import collections
import math
from collections.abc import Mapping, Sequence

from mindgap.core import Advice, Finding, Interval, Result
from mindgap.diagnoses.diagnose import Checked
from mindgap.report import wording
from mindgap.report.parts import Card, Facts, Tone, Verdict
from mindgap.report.verdict.findings import title_of

# Two points: about what another seed or another split moves, so nobody should act on less.
NOTABLE_GAP = 0.02
CLEAR_GAP = 0.005  # half a point: one lucky test sample moves a lower end that lies closer to zero

REUSED = "reused-test-data"  # below it, a guarantee must hold for all models that were compared

KINDS: Mapping[str, tuple[str, Tone, str]] = {
    "fine": ("Checked", "good", "Nothing wrong found in {made}: {unseen}, {seen}."),
    "undecided": (
        "Undecided",
        "neutral",
        "Nothing wrong found in {made}, but there are too few test samples to tell whether this "
        "model over-fits.",
    ),
    "no test data": (
        "Not measured",
        "neutral",
        "The gap cannot be measured: there are no test data.",
    ),
    "not checked": ("Not checked", "neutral", "Nothing was checked: {unseen}, {seen}."),
}
FIRST_STEPS: Mapping[str, tuple[str, ...]] = {
    "fine": (
        "Check samples from where the model will be used: a test set from the same source cannot "
        "show a shift.",
    ),
    "undecided": ("Collect more test samples from where the model will be used.",),
    "no test data": (
        "Hold samples out before training and pass them as test=(inputs, targets).",
        "If none can be spared, train on folds of the data and examine each on the fold left out.",
    ),
    "not checked": ("Leave out diagnoses=() to check the model and its data.",),
}


def judge(
    facts: Facts,
    gap: Result,
    cards: Sequence[Card],
    findings: Sequence[Finding] = (),
    checked: Sequence[Checked] = (),
) -> Verdict:
    """Judge a subject by what was found, its facts, its gap and its bounds.

    Args:
        facts: Sizes and errors.
        gap: The generalization gap.
        cards: Results of measures and bounds.
        findings: What diagnoses found, what explains the failure first.
        checked: What each diagnosis was good for.
    """
    first = next((f for f in findings if f.severity != "note" and not f.explained_by), None)
    if first is None:
        return _healthy(facts, gap, cards, findings, checked)
    words = [
        *first.sentences,
        _gap_sentence(facts, gap),
        guarantee(facts, cards, findings),
        _interruption(facts),
        _failure(cards, checked),
    ]
    return Verdict(
        kind=first.name,
        label=title_of(first.name, checked),
        tone="bad" if first.severity == "wrong" else "warn",
        headline=first.sentence,
        sentences=tuple(filter(None, words)),
        advice=first.advice,
    )


def _healthy(
    facts: Facts,
    gap: Result,
    cards: Sequence[Card],
    findings: Sequence[Finding],
    checked: Sequence[Checked],
) -> Verdict:
    kind = _kind_of(facts, gap, checked)
    label, tone, headline = KINDS[kind]
    made = sum(row.outcome in ("found", "nothing") for row in checked)
    words = [
        _interruption(facts),
        _gap_sentence(facts, gap),
        _shortage(facts, gap) if kind == "undecided" else "",
        guarantee(facts, cards, findings) or _no_guarantee(facts, cards, findings),
        _untested(made, checked) if kind == "no test data" else "",
        _failure(cards, checked),
    ]
    return Verdict(
        kind=kind,
        label=label,
        tone=tone,
        headline=headline.format(
            made=wording.count(made, "check"),
            seen=_rate(facts, facts.train_error, "its training data"),
            unseen=_rate(facts, facts.test_error, "unseen data"),
        ),
        sentences=tuple(filter(None, words)),
        advice=tuple(Advice(text=text) for text in FIRST_STEPS[kind]),
    )


def _kind_of(facts: Facts, gap: Result, checked: Sequence[Checked]) -> str:
    if gap.value is None or gap.interval is None:
        return "no test data"
    if not any(row.outcome in ("found", "nothing") for row in checked):
        return "not checked"
    return "undecided" if _is_wide(facts, gap.interval) else "fine"


def _is_wide(facts: Facts, interval: Interval) -> bool:
    """Tell whether the interval holds both no gap and one that is worth acting on."""
    low, high = interval.low / facts.scale, interval.high / facts.scale
    return low <= CLEAR_GAP and high > NOTABLE_GAP


def _rate(facts: Facts, value: float | None, where: str) -> str:
    if not facts.rate:
        return f"loss {wording.number(value, 3)} on {where}"
    judged = "of all labels " if facts.labels else ""
    return f"{wording.error(facts, value)} {judged}wrong on {where}"


def _interruption(facts: Facts) -> str:
    """Say that training was interrupted; empty if it was not, as all sentences here."""
    return f"Training was {facts.stopped}." if facts.stopped.startswith("interrupted") else ""


def _gap_sentence(facts: Facts, gap: Result) -> str:
    """Say how large the gap is, with its interval, or that it cannot be known."""
    what = "error" if facts.rate else "loss"
    if math.isnan(facts.train_error):
        return ""
    if gap.value is None:
        return (
            f"It has {_rate(facts, facts.train_error, 'its training data')}. Without samples that "
            f"the model has never seen, this says nothing about the {what} in use."
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
    """Compute the number of test samples at which the interval would be narrow enough.

    A half width shrinks with the square root of the number of samples. The gap is assumed to stay
    the same.
    """
    if gap.value is None or gap.interval is None or not math.isfinite(gap.interval.high):
        return None
    half = (gap.interval.high - gap.interval.low) / 2
    target = max(gap.value - CLEAR_GAP * facts.scale, NOTABLE_GAP * facts.scale - gap.value)
    return max(math.ceil(facts.test_samples * (half / target) ** 2), facts.test_samples + 1)


def _untested(made: int, checked: Sequence[Checked]) -> str:
    """Say that most checks need test data."""
    if not checked:
        return ""
    return (
        f"Without test data most checks do not apply: {made} of {len(checked)} could be made, and "
        "found nothing wrong."
    )


def _failure(cards: Sequence[Card], checked: Sequence[Checked]) -> str:
    """Say that measures or checks failed."""
    failed = [card.title for card in cards if card.result.reason.startswith("failed")]
    failed += [title_of(row.name, checked) for row in checked if row.outcome == "failed"]
    if not failed:
        return ""
    noun = "One quantity or check" if len(failed) == 1 else f"{len(failed)} quantities or checks"
    named = ", ".join(failed[:3])
    return (
        f"{noun} could not be computed because of an error ({named}). The reasons are listed below."
    )


def guarantee(facts: Facts, cards: Sequence[Card], findings: Sequence[Finding] = ()) -> str:
    """Say what the tightest bound guarantees that is valid and not vacuous.

    Bounds of one basis have a fixed order, so taking the smallest of them is no choice. Taking the
    smallest over several bases is one, and each basis takes its share of delta.

    Args:
        facts: Sizes and errors.
        cards: Results of measures and bounds.
        findings: What was found, which may void every guarantee.
    """
    holding = guaranteeing(cards, findings)
    if not holding:
        return ""
    bases = {card.result.provenance.get("basis", card.result.name) for card in holding}
    return _guarantee(facts, min(holding, key=lambda card: float(card.result)), len(bases))


def guaranteeing(cards: Sequence[Card], findings: Sequence[Finding]) -> list[Card]:
    """Return the bounds that hold for this model, whatever was found."""
    if any(finding.voids for finding in findings):
        return []
    told = {finding.name for finding in findings if finding.severity != "note"}
    compared = max([models_of(card) for card in cards], default=1)
    needed = max(compared, 2 if REUSED in told else 1)
    return [
        card
        for card in cards
        if card.guarantees_model and (models_of(card) >= needed or not is_held_out(card))
    ]


def is_held_out(card: Card) -> bool:
    """Tell whether a bound rests on the test data, on which models may have been compared."""
    return bool(card.result.provenance.get("basis") == "held-out errors")


def models_of(card: Card) -> int:
    """Return for how many models, compared on the test data, the bound holds at once."""
    return int(card.result.provenance.get("parameters", {}).get("hypotheses", 1))


def _guarantee(facts: Facts, card: Card, bases: int) -> str:
    result = card.result
    confidence = 1 - bases * float(result.provenance.get("parameters", {}).get("delta", 0.05))
    value = wording.bounded(result, facts, result.value)
    what = "error" if "%" in value else "loss"
    # A held-out bound counts only test samples that are not in the training data.
    where = "data that are not in the training data" if result.terms.get("shared") else "data"
    chosen = (
        f"even if it is the best of {models_of(card):,} models on these test data"
        if models_of(card) > 1
        else "provided that nothing was chosen by looking at the test data"
    )
    return (
        f"With {wording.at_least(confidence)} confidence the {what} on unseen {where} is below "
        f"{value} (bound: {card.title}), {chosen}."
    )


def _no_guarantee(facts: Facts, cards: Sequence[Card], findings: Sequence[Finding]) -> str:
    """Say why no bound guarantees anything, by the commonest reason."""
    bounds = [card for card in cards if card.result.family == "bound"]
    if not bounds or not facts.test_samples or guaranteeing(cards, ()) or findings:
        return ""
    reasons = collections.Counter(_why_not(card) for card in bounds)
    (reason, times), *_ = reasons.most_common(1)
    return f"No bound gives a guarantee here. For {times} of {len(bounds)} the reason is: {reason}."


def _why_not(card: Card) -> str:
    """Say why a bound guarantees nothing for the model itself."""
    if card.guarantees:
        return f"it is about {card.result.provenance['risk_of']}"
    return card.result.reason or "it is vacuous"
