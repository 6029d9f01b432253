"""Which kind of case this is: the thresholds, and the order in which they are checked."""

from collections.abc import Mapping

from mindgap.bounds.held_out import TOLERATED
from mindgap.core import Interval, Result
from mindgap.report.parts import Facts, Tone

# Two points: about what another seed or another split moves, so nobody should act on less.
NOTABLE_GAP = 0.02
CLEAR_GAP = 0.005  # half a point: one lucky test sample moves a lower end that lies closer to zero
SERIOUS_GAP = 0.05  # from here on the model in use will feel unlike the model in training
HIGH_TRAIN_ERROR = 0.3  # share of the baseline's error: seven tenths should at least be learned

KINDS: Mapping[str, tuple[str, Tone]] = {
    "diverged": ("Training diverged", "bad"),
    "leak": ("Test data leak", "bad"),
    "over-fitting": ("Over-fitting", "bad"),
    "mild over-fitting": ("Mild over-fitting", "warn"),
    "under-fitting": ("Under-fitting", "warn"),
    "undecided": ("Undecided", "neutral"),
    "no test data": ("Not measured", "neutral"),
    "easier test data": ("Odd test data", "warn"),
    "fine": ("Carries over", "good"),
}


def kind_of(facts: Facts, gap: Result) -> str:
    """Decide which of :data:`KINDS` this is; what voids the evidence comes before what it says."""
    if facts.stopped.startswith("diverged"):
        return "diverged"
    if facts.overlap > TOLERATED:
        return "leak"
    if gap.value is None or gap.interval is None:
        return "under-fitting" if underfits(facts) else "no test data"
    return _measured_kind(facts, gap.value / facts.scale, gap.interval)


def _measured_kind(facts: Facts, size: float, interval: Interval) -> str:
    low, high = interval.low / facts.scale, interval.high / facts.scale
    if low > CLEAR_GAP and high > NOTABLE_GAP:
        return "over-fitting" if size >= SERIOUS_GAP else "mild over-fitting"
    if underfits(facts):
        return "under-fitting"
    if high < 0 and size <= -NOTABLE_GAP:
        return "easier test data"
    return "fine" if high <= NOTABLE_GAP else "undecided"


def underfits(facts: Facts) -> bool:
    """Tell whether the training error is too large a share of the baseline's."""
    return facts.baseline > 0 and facts.train_error > HIGH_TRAIN_ERROR * facts.baseline
