"""The verdict on a landscape: what the slice shows, in words."""

from mindgap.core import Advice
from mindgap.jobs.landscape.answer import Landscape
from mindgap.report import wording
from mindgap.report.parts import Tone, Verdict

CONNECTED = 0.1  # of the line's barrier that may be left on the path
LOWER = 0.01  # of the loss's range by which another point must be lower to be told


def judge_landscape(found: Landscape) -> Verdict:
    """Say what the surface shows, and what to do with it.

    Args:
        found: The losses.
    """
    label, tone, headline = _connected(found) if found.between is not None else _around(found)
    return Verdict(
        kind="landscape",
        label=label,
        tone=tone,
        headline=headline,
        sentences=tuple(_sentences(found)),
        advice=tuple(Advice(text=text) for text in _next_steps(found)),
    )


def _connected(found: Landscape) -> tuple[str, Tone, str]:
    assert found.between is not None
    line, bent = found.between.line_barrier, found.between.bent_barrier
    told = f"the loss rises by {wording.number(bent, 3)} on it and by {wording.number(line, 3)} on the line"
    if line <= 0.01 * max(found.numbers()["highest loss of the grid"], 1e-12):
        return "Connected by a line", "good", f"No barrier lies between both minima: {told}."
    if bent <= CONNECTED * line:
        return "Connected by a bent path", "good", f"A bent path connects both minima: {told}."
    return "Not connected", "neutral", f"No path of low loss was found: {told}."


def _around(found: Landscape) -> tuple[str, Tone, str]:
    lowest, x, y = found.lowest
    spread = found.numbers()["highest loss of the grid"] - lowest
    if found.center - lowest > LOWER * max(spread, 1e-12):
        place = f"({wording.number(x, 3)}, {wording.number(y, 3)})"
        return (
            "Not at the bottom",
            "warn",
            f"The loss is lower at {place} than at the model: {wording.number(lowest, 3)} against "
            f"{wording.number(found.center, 3)}.",
        )
    return (
        "At the bottom of this slice",
        "neutral",
        f"No point of the grid has a clearly lower loss than the model, "
        f"{wording.number(found.center, 3)} (lowest {wording.number(lowest, 3)}).",
    )


def _sentences(found: Landscape) -> list[str]:
    numbers = found.numbers()
    highest, median = (
        wording.number(numbers[f"{name} loss of the grid"], 3) for name in ("highest", "median")
    )
    told = [f"On the grid the loss has median {median} and reaches {highest}."]
    if found.not_convex is not None:
        told.append(
            f"{wording.percent(found.not_convex)} of the inner points lie above the chord of two "
            "neighbors: there the loss is not convex."
        )
    return [*told, *(f"{name}: {text}." for name, text in found.settings.items())]


def _next_steps(found: Landscape) -> list[str]:
    if found.between is not None:
        return ["Search longer (more steps) before you call two minima separate."]
    return [
        "Compare landscapes only with the same normalization, span and data, and over several seeds "
        "of the directions."
    ]
