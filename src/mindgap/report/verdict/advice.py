"""What to try next: first steps for a case, and the remedies that treat its symptoms."""

from collections.abc import Iterable, Mapping
from typing import get_args

from mindgap.core import Remedy, Symptom, catalog
from mindgap.report.parts import Advice

MOST = 4  # more than a reader would try

SYMPTOMS: Mapping[str, frozenset[Symptom]] = {
    "diverged": frozenset({"divergence"}),
    "over-fitting": frozenset({"over-fitting"}),
    "under-fitting": frozenset({"under-fitting", "hard samples"}),
}
FIRST_STEPS: Mapping[str, tuple[str, ...]] = {
    "diverged": ("Lower the learning rate, by a factor of ten to begin with.",),
    "leak": (
        "Split the data so that equal samples stay on one side, retrain, and examine the new "
        "model.",
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
        "Check that training and test data come from the same source and were prepared in the "
        "same way.",
        "If the training data carry wrong labels or augmentation, compare on clean samples.",
    ),
    "fine": (
        "Check samples from where the model will be used: a test set from the same source cannot "
        "show a shift.",
    ),
}


def advise(kind: str, found: Iterable[Symptom] = ()) -> tuple[Advice, ...]:
    """Give the first steps for a kind of case, then the remedies that treat it, best first.

    Remedies are suggestions to verify. They are ranked by how many symptoms of the case they
    treat, and among equals by what they cost, so the most specific remedy comes first.

    Args:
        kind: The kind of case that the verdict found.
        found: Further symptoms, from the training curves or a diagnosis.

    >>> [advice.remedy for advice in advise("over-fitting", ["late over-fitting"])]
    ['', 'early-stopping', 'weight-averaging', 'weight-decay']
    """
    case = kind.removeprefix("mild ")
    symptoms = SYMPTOMS.get(case, frozenset()) | frozenset(found)
    steps = [Advice(text=text) for text in FIRST_STEPS[case]]
    remedies = sorted(_treating(symptoms), key=lambda cls: _rank(cls, symptoms))
    return (*steps, *(_suggestion(cls, symptoms) for cls in remedies))[:MOST]


def _treating(symptoms: frozenset[Symptom]) -> list[type[Remedy]]:
    remedies = [cls for cls in catalog("remedy").values() if issubclass(cls, Remedy)]
    return [cls for cls in remedies if cls.treats & symptoms]


def _rank(cls: type[Remedy], symptoms: frozenset[Symptom]) -> tuple[int, float]:
    return -len(cls.treats & symptoms), cls.cost


def _suggestion(cls: type[Remedy], symptoms: frozenset[Symptom]) -> Advice:
    shared = [symptom for symptom in get_args(Symptom) if symptom in cls.treats & symptoms]
    return Advice(text=f"{cls.words().summary} Against {' and '.join(shared)}.", remedy=cls.name)
