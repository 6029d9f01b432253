"""Arms of simulated races: retuned settings that gain nothing, and remedies of which one may."""

from mindgap.studies.improve.worlds import Effect, Kind
from mindgap.training.race.arm import BASELINE, RETUNED, Arm
from mindgap.training.race.plan import Plan

HELPFUL = 2  # place of the remedy that helps, where one does


def setting(name: str, place: int, cost: float = 1.0) -> Arm:
    """Make a setting of the retuned baseline.

    Args:
        name: Its name.
        place: Decides its variance and its ties.
        cost: Time of a training.
    """
    return Arm(name=name, group=RETUNED, cost=cost, fix={"place": place})


# Retuned settings gain nothing on average, so that whatever is chosen was chosen by luck.
SETTINGS = (
    *(setting("learning rate ×3", 1), setting("learning rate ÷3", 2)),
    *(setting("epochs ×2", 3, 2.0), setting("weight decay", 4)),
)


def candidates(kind: Kind, gain: float, plan: Plan) -> list[Arm]:
    """Make remedies at several strengths; the last of them costs twice as much, as SAM does.

    Args:
        kind: What is special about the arms.
        gain: Of the remedy that helps, in standard deviations of a seed.
        plan: How many remedies and strengths there are.
    """
    return [
        Arm(
            name=f"remedy {group} ({strength})",
            group=f"remedy {group}",
            cost=2.0 if group == plan.remedies - 1 else 1.0,
            fix={
                "gain": _gain(kind, gain, group, strength),
                "place": plan.strengths * group + strength,
            },
        )
        for group in range(plan.remedies)
        for strength in range(plan.strengths)
    ]


def _gain(kind: Kind, gain: float, group: int, strength: int) -> float:
    if kind == "harmful":
        return -0.25 * (1 + (group + 2 * strength) % 6)
    if group == HELPFUL and gain:
        return gain if strength == 1 or kind == "even gain" else gain / 2
    return 0.0


def effect_of(arm: Arm) -> Effect:
    """Read the effect of an arm; the retuned control below it gains nothing."""
    if arm.group == BASELINE:
        return Effect()
    return Effect(gain=arm.fix.get("gain", 0.0), place=arm.fix["place"])
