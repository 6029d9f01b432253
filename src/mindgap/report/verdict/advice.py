"""What to try next: remedies of the catalog that treat this kind of case, as suggestions to verify."""

from collections.abc import Mapping

from mindgap.core import Remedy, catalog
from mindgap.report.parts import Advice

MOST = 4  # more than a reader would try

# Words that a remedy's ``treats`` may contain, by the kind of case that they point to.
SYMPTOMS: Mapping[str, tuple[str, ...]] = {
    "over-fitting": (
        "memor",
        "noise",
        "over-fit",
        "overfit",
        "sharp",
        "training on after",
        "wrong label",
        "small data",
    ),
    "under-fitting": ("under-fit", "underfit", "slow", "hard samples"),
    "diverged": ("explod", "diverg", "unstable"),
    "late": ("training on after",),
}
FIRST_STEPS: Mapping[str, tuple[str, ...]] = {
    "diverged": ("Lower the learning rate, by a factor of ten to begin with.",),
    "leak": (
        "Split the data again so that equal samples stay on one side, train anew, and examine "
        "again.",
        "Look for samples that entered twice: repeated rows, augmented copies, several records of "
        "one source.",
    ),
    "over-fitting": (
        "Look for more, or more varied, training data before changing anything else.",
    ),
    "under-fitting": (
        "Train longer, raise the learning rate or widen the model, until the training error falls.",
    ),
    "undecided": ("Collect more test samples from where the model will be used.",),
    "no test data": (
        "Hold samples out before training and pass them as test=(inputs, targets).",
        "If none can be spared, train on folds of the data and examine each on the fold left out.",
    ),
    "easier test data": (
        "Check that train and test data come from the same source, and were prepared in the same "
        "way.",
        "If the training data carry wrong labels or augmentation, compare on clean samples.",
    ),
    "fine": (
        "Check samples from where the model will be used: a test set from the same source cannot "
        "show a shift.",
    ),
}


def advise(kind: str, *, rising: bool = False) -> tuple[Advice, ...]:
    """First steps for a kind of case, then the remedies that treat it."""
    symptom = kind.removeprefix("mild ")
    steps = tuple(Advice(text=text) for text in FIRST_STEPS[symptom])
    late = _treating("late") if rising else {}
    remedies = {**late, **_treating(symptom)}
    return (*steps, *(_suggestion(name, cls) for name, cls in remedies.items()))[:MOST]


def _treating(symptom: str) -> dict[str, type[Remedy]]:
    words = SYMPTOMS.get(symptom, ())
    found = {name: cls for name, cls in catalog("remedy").items() if issubclass(cls, Remedy)}
    return {
        name: cls
        for name, cls in found.items()
        if any(word in cls.treats.lower() for word in words)
    }


def _suggestion(name: str, cls: type[Remedy]) -> Advice:
    return Advice(text=f"{cls.words().summary} Against {cls.treats}.", remedy=name)
