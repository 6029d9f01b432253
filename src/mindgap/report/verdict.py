"""The verdict: a headline, the sentences that support it, and what to try next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mindgap.core.result import Result
from mindgap.report import sentences, wording
from mindgap.report.advice import advise
from mindgap.report.kinds import KINDS, kind_of
from mindgap.report.parts import Card, Facts, Verdict

MOST_SENTENCES = 5  # a verdict that needs more is not one


def judge(facts: Facts, gap: Result, cards: Sequence[Card], curves: Sequence[Mapping[str, float]]) -> Verdict:
    """The verdict on a subject from its facts, its gap, its measured cards and its training curves."""
    kind = kind_of(facts, gap)
    label, tone = KINDS[kind]
    late = sentences.rise(curves)
    words = [
        sentences.stop(facts),
        sentences.leak(facts),
        sentences.gap(facts, gap),
        sentences.shortage(facts, gap) if kind == "undecided" else "",
        sentences.train(facts),
        "" if kind == "leak" else sentences.bound(facts, cards),
        late,
        sentences.failure(cards),
    ]
    return Verdict(
        kind=kind,
        label=label,
        tone=tone,
        headline=headline(kind, facts),
        sentences=tuple(sentence for sentence in words if sentence)[:MOST_SENTENCES],
        advice=advise(kind, rising=bool(late)),
    )


HEADLINES: Mapping[str, str] = {
    "diverged": "Training diverged, so what follows is about an unfinished model.",
    "leak": "These test data cannot judge the model: {overlap} of them stand in its train data.",
    "over-fitting": "This model over-fits: {unseen}, but {seen}.",
    "mild over-fitting": "This model over-fits a little: {unseen}, {seen}.",
    "under-fitting": "This model under-fits: {seen}.",
    "undecided": "There are too few test samples to tell whether this model over-fits.",
    "no test data": "The gap cannot be measured: there are no test data.",
    "easier test data": "The test data look easier than the train data: {unseen}, {seen}.",
    "fine": "What this model learnt carries over: {unseen}, {seen}.",
}


def headline(kind: str, facts: Facts) -> str:
    """The one sentence that a reader in a hurry takes away."""
    return HEADLINES[kind].format(
        seen=_rate(facts, facts.train_error, "its train data"),
        unseen=_rate(facts, facts.test_error or 0.0, "unseen data"),
        overlap=wording.percent(facts.overlap),
    )


def _rate(facts: Facts, value: float, where: str) -> str:
    if facts.rate:
        return f"{wording.percent(value)} wrong on {where}"
    return f"loss {wording.number(value, 3)} on {where}"
