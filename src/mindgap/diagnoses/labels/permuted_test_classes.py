"""Test labels that number the classes differently."""

import torch

from mindgap.core import Advice, Diagnosis, Evidence, Finding, Heatmap, Recipe, Results, Subject
from mindgap.ops.evidence.alignment import Renamed, renamed
from mindgap.ops.samples import class_name
from mindgap.training.fit import fit

# The p-value is exact and pays for all renamings that were tried: of 36 healthy classifiers none
# came below one. What follows is an effect.
LEVEL = 1e-3
AFTER = 0.5  # of the training accuracy of the renamed classes, that renaming must bring back
SHOWN = 4  # renamings that fit into a sentence


class PermutedTestClasses(Diagnosis):
    r"""Look for test labels that number the classes differently than the training labels.

    Formula: $\max_{\pi} \frac{1}{n'} \sum_i 1[\hat{y}_i = \pi(y'_i)]$ over permutations π of the
    classes

    Reading: If the renamed labels agree with the predictions, and the given ones do not, the files
    were read with different lists of classes. The advice gives the mapping.

    Assumes: The model has learned its training labels. The best renaming is found exactly, by the
    Hungarian method; the p-value counts all that are possible.

    >>> x = torch.eye(3).repeat(50, 1)
    >>> y = torch.arange(3).repeat(50)
    >>> test = torch.tensor([1, 0, 2])[y]
    >>> subject = Subject(torch.nn.Identity(), "cross_entropy", (x, y), (x, test))
    >>> PermutedTestClasses()(subject).sentence
    'The test labels swap classes: 0 means 1, 1 means 0.'
    """

    cites = ("kuhn1955hungarian",)
    stage = "test labels"
    voids = True
    symptom = "wrong test labels"
    needs = frozenset({"test", "classification"})
    explains = frozenset(
        {
            "shuffled-test-labels",
            "lagged-test-labels",
            "wrong-test-labels",
            "wrong-labels",
            "label-shift",
            "rare-class",
            "ignored-class",
            "shortcut",
            "over-fitting",
            "late-over-fitting",
            "over-confidence",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Rename the classes so that labels and predictions agree best."""
        labels, predicted = subject.targets("test"), subject.predictions("test")
        classes = subject.outputs("test").shape[1]
        found = renamed(labels.cpu(), predicted.cpu(), classes)
        if found is None or found.p_value > LEVEL or not _learned(subject, found):
            return None
        return self._found(subject, found, float((labels == predicted).double().mean()))

    def _found(self, subject: Subject, found: Renamed, accuracy: float) -> Finding:
        labels, predicted = subject.targets("test").cpu(), subject.predictions("test").cpu()
        better = float((found.names[labels] == predicted).double().mean())
        pairs = [
            f"{class_name(subject.classes, k)} means {class_name(subject.classes, int(found.names[k]))}"
            for k in found.moved
        ]
        more = f" and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
        return self.finding(
            f"The test labels swap classes: {', '.join(pairs[:SHOWN])}{more}.",
            p_value=found.p_value,
            evidence=(
                Evidence(name="test accuracy as labeled", value=accuracy, percent=True),
                Evidence(name="test accuracy if renamed", value=better, percent=True),
                Evidence(name="classes renamed", value=len(found.moved)),
            ),
            sentences=(
                f"Renamed, the test accuracy is {100 * better:.1f} % instead of {100 * accuracy:.1f} %.",
                "Training and test labels were read with different lists of classes.",
            ),
            advice=(
                Advice(
                    text="Read both files with the same list of classes, or rename the test labels.",
                    code=f"renamed = torch.tensor({found.names.tolist()})\n"
                    "test_targets = renamed[test_targets]",
                ),
            ),
            charts=(_confusion(subject, found),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Shift the numbers of the test classes by one; less strength shifts fewer, two at least."""
        inputs, targets = recipe.test
        classes = int(recipe.train[1].max()) + 1
        random = torch.Generator().manual_seed(seed)
        moved = torch.randperm(classes, generator=random)[: max(2, round(strength * classes))]
        names = torch.arange(classes)
        names[moved] = moved.roll(1)
        return fit(recipe.replace(test=(inputs, names[targets])), seed=seed).subject()


def _learned(subject: Subject, found: Renamed) -> bool:
    """Whether the model knows the renamed classes, by their given names, on the training data."""
    labels, predicted = subject.targets("train").cpu(), subject.predictions("train").cpu()
    at = torch.isin(labels, torch.tensor(found.moved))
    if not at.any():
        return False
    right = float((labels == predicted)[at].double().mean())
    wrong = float((found.names[labels] == predicted)[at].double().mean())
    return right > 2 * wrong and found.after > AFTER * right and found.after > 2 * found.before


def _confusion(subject: Subject, found: Renamed) -> Heatmap:
    labels, predicted = subject.targets("test").cpu(), subject.predictions("test").cpu()
    names = [class_name(subject.classes, k) for k in range(len(found.names))]
    counts = torch.zeros(len(names), len(names)).long()
    counts.index_put_((labels, predicted), torch.ones_like(labels), accumulate=True)
    return Heatmap(
        title="Test labels and predictions",
        x=names,
        y=names,
        z=counts.tolist(),
        x_label="predicted",
        y_label="label",
        z_label="samples",
    )
