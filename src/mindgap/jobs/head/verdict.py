"""The verdict on a chosen head: whether weights by local variance lowered the test error."""

from mindgap.core import Advice
from mindgap.core.chart.numbers import rounded_down
from mindgap.jobs.head.choose import LEVEL, HeadChoice
from mindgap.report import wording
from mindgap.report.parts import Tone, Verdict

KINDS: dict[str, tuple[str, Tone]] = {
    "untested": ("Not tested", "neutral"),
    "no effect": ("No effect shown", "neutral"),
    "worse": ("Made it worse", "bad"),
    "control": ("No better than its control", "warn"),
    "better": ("Lowered the test error", "good"),
}


def judge_head(choice: HeadChoice) -> Verdict:
    """Judge the chosen head by its paired comparisons on test data.

    Args:
        choice: The search, the heads and their test errors.
    """
    label, tone = KINDS[choice.kind]
    m, k = choice.search.best
    chosen = (
        f"m = {m:g} and k = {k} were the best of {len(choice.search.settings)} settings on "
        f"{wording.count(choice.search.samples, 'held-out training sample')}."
    )
    return Verdict(
        kind=choice.kind,
        label=label,
        tone=tone,
        headline=choice.verdict,
        sentences=(*_compared(choice), chosen),
        advice=tuple(Advice(text=step) for step in _next_steps(choice)),
    )


def _compared(choice: HeadChoice) -> list[str]:
    """Give the difference from a head without weights, for the weights and their control."""
    words = {"weighted": "With the weights", "permuted": "With the same weights on other samples"}
    corrected = choice.corrected()
    return [
        f"{text} the test error changes by {wording.number(test.difference, 3)} "
        f"[{rounded_down(test.interval.low)}, {wording.rounded_up(test.interval.high)}] "
        f"from a head retrained without weights (p = {corrected[arm]:.2g}, Holm)."
        for arm, text in words.items()
        if (test := choice.against.get(arm)) is not None
    ]


def _next_steps(choice: HeadChoice) -> list[str]:
    """Say which network to use; retraining alone is often taken for an effect of the weights."""
    if not choice.against:
        return ["Hold test data out and pass them: only they can say whether the weights help."]
    if choice.kind == "better":
        return ["Use the new state dict, and repeat the comparison with other seeds."]
    given = choice.against["as given"]
    if given.difference > 0 and choice.corrected()["as given"] < LEVEL:
        return [
            "Use the head retrained without weights: next to the network as given, it lowered the "
            "test error by itself."
        ]
    return ["Keep the network as given: it is the simplest of these."]
