"""Test targets that have nothing to do with the test inputs."""

import math

import torch
from torch import Tensor

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    InputError,
    Recipe,
    Results,
    Series,
    Subject,
    Which,
    hypergeometric_tail,
    normal_tail,
)
from mindgap.ops.evidence.alignment import find_lag, lag, renamed
from mindgap.ops.evidence.reference import Reference, reference
from mindgap.ops.evidence.spoiled import some
from mindgap.training.fit import fit

LEVEL = 1e-4  # shuffled targets give p-values below 1e-20: an honest difference need not pass
LEARNED = 0.2  # that the reference predictor must know above chance, else nothing can be said
LEFT = 0.15  # of that may be left in shuffled test data, beyond three standard errors
# Kolmogorov distance of the reference's scores between both splits: shuffled targets leave the
# inputs alone, while foreign inputs, which look alike in the errors, change the scores.
SAME = 0.1


class ShuffledTestLabels(Diagnosis):
    r"""Look for test targets that have nothing to do with the test inputs.

    Formula: $A_{\text{test}} - C \le 0.15\,(A_{\text{train}} - C)$, where A is the agreement of
    predictions and targets and C what chance gives

    Reading: The model, and a predictor that needs no training, know the training data but say no
    more about the test targets than chance. The inputs look alike. So the targets belong to other
    samples: they were shuffled, sorted or read from another file.

    Assumes: Chance agreement is that of the given shares of classes; in a regression A is the rank
    correlation and C is zero.

    >>> random = torch.Generator().manual_seed(0)
    >>> y = torch.randint(0, 2, (400,), generator=random)
    >>> x = torch.randn(400, 2, generator=random) + 4 * y[:, None]
    >>> wrong = y[torch.randperm(400, generator=random)]
    >>> model = torch.nn.Linear(2, 2)
    >>> with torch.no_grad():
    ...     _ = model.weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    ...     _ = model.bias.copy_(torch.tensor([4.0, -4.0]))
    >>> subject = Subject(model, "cross_entropy", (x[:200], y[:200]), (x[200:], wrong[200:]))
    >>> ShuffledTestLabels()(subject).sentence
    'The test targets have nothing to do with the test inputs.'
    """

    cites = ("kaufman2012leakage",)
    stage = "test labels"
    voids = True
    symptom = "wrong test labels"
    needs = frozenset({"test"})
    explains = frozenset(
        {
            "wrong-test-labels",
            "wrong-labels",
            "rare-class",
            "ignored-class",
            "over-fitting",
            "late-over-fitting",
            "over-confidence",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare how well training and test targets are predicted, above chance."""
        refuse_several_labels(subject)
        found = reference(subject)
        known, left = reference_agreement(found, "train"), reference_agreement(found, "test")
        own, own_left = agreement(subject, "train"), agreement(subject, "test")
        error = 3 / math.sqrt(len(found.test))
        p_value = chance(found)
        shuffled = (
            known > LEARNED
            and own > LEARNED
            and left < LEFT * known + error
            and own_left < LEFT * own + error
            and p_value < LEVEL
            and same_scores(found)
            and not _renamed_or_moved(subject)
        )
        return self._found(subject, own, own_left, p_value) if shuffled else None

    def _found(self, subject: Subject, known: float, left: float, p_value: float) -> Finding:
        word = "accuracy above chance" if subject.task == "classification" else "rank correlation"
        return self.finding(
            "The test targets have nothing to do with the test inputs.",
            p_value=p_value,
            evidence=(
                Evidence(name=f"{word} on training data", value=known),
                Evidence(name=f"{word} on test data", value=left),
            ),
            sentences=(
                f"The model's {word} is {known:.2f} on the training data and {left:.2f} on the "
                "test data.",
                "The test inputs look like the training inputs, so their targets must be others'.",
            ),
            advice=(
                Advice(
                    text="Read inputs and targets of the test data together, in the same order.",
                    code=(
                        "order = torch.randperm(len(test_inputs))\n"
                        "test_inputs, test_targets = test_inputs[order], test_targets[order]"
                        "  # one order for both"
                    ),
                ),
            ),
            charts=(
                Bar(
                    title="What the model knows",
                    y_label=word,
                    series=(Series(x=["training data", "test data"], y=[known, left]),),
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Shuffle the test targets; with less strength only a share of them."""
        random = torch.Generator().manual_seed(seed)
        inputs, targets = recipe.test
        places = some(len(targets), strength, random)
        mixed = targets.clone()
        mixed[places] = targets[places[torch.randperm(len(places), generator=random)]]
        return fit(recipe.replace(test=(inputs, mixed)), seed=seed).subject()


def _abovechance(predicted: Tensor, labels: Tensor) -> float:
    """Agreement of classes minus that of independent ones with the same shares."""
    classes = int(max(predicted.max(), labels.max())) + 1
    shares = [part.bincount(minlength=classes).double() / len(part) for part in (predicted, labels)]
    return float((predicted == labels).double().mean() - shares[0] @ shares[1])


def refuse_several_labels(subject: Subject) -> None:
    """Raise InputError if a sample has several labels: each could be shuffled on its own."""
    if subject.task == "multilabel":
        raise InputError(
            "Shuffled targets are looked for in a classification or regression, got several "
            "labels per sample. Test one label at a time."
        )


def agreement(subject: Subject, which: Which) -> float:
    """Return how well the model's predictions agree with the targets, above chance."""
    if subject.task == "classification":
        labels = subject.targets(which).cpu()
        return _abovechance(subject.predictions(which).cpu(), labels)
    return lag(subject, which).now


def reference_agreement(found: Reference, which: Which) -> float:
    """Return how well a reference predictor agrees with the targets, above chance."""
    scores, targets = found.scores(which), found.targets(which)
    if found.classification:
        return _abovechance(scores.argmax(1), targets.argmax(1))
    return find_lag(scores, targets, "regression").now


def chance(found: Reference, good: Which = "train", bad: Which = "test") -> float:
    """How likely the reference does that much worse on one split than on the other by chance."""
    if found.classification:
        wrong = {which: int(found.errors(which).sum()) for which in (good, bad)}
        total = len(found.train) + len(found.test)
        return hypergeometric_tail(wrong[bad], len(found.scores(bad)), sum(wrong.values()), total)
    turned = [
        math.atanh(min(0.9999, max(-0.9999, reference_agreement(found, which))))
        for which in (good, bad)
    ]
    error = math.sqrt(sum(1 / max(len(found.scores(w)) - 3, 1) for w in (good, bad)))
    return normal_tail((turned[0] - turned[1]) / error)


def same_scores(found: Reference) -> bool:
    """Whether the reference's scores are spread alike in both splits."""
    train, test = (
        found.margins(which) if found.classification else found.scores(which).mean(1)
        for which in ("train", "test")
    )
    pool = torch.cat([train, test]).sort().values
    ranks = [
        torch.searchsorted(part.sort().values, pool, right=True).double() / len(part)
        for part in (train, test)
    ]
    error = 1.63 * math.sqrt(1 / len(train) + 1 / len(test))  # exceeded in one case of a hundred
    return float((ranks[0] - ranks[1]).abs().max()) < SAME + error


def _renamed_or_moved(subject: Subject) -> bool:
    """Whether renaming classes or moving targets explains it; that has a name of its own."""
    if lag(subject, "test").p_value < LEVEL:
        return True
    if subject.task != "classification":
        return False
    labels, predicted = subject.targets("test").cpu(), subject.predictions("test").cpu()
    found = renamed(labels, predicted, subject.outputs("test").shape[1])
    return found is not None and found.p_value < LEVEL
