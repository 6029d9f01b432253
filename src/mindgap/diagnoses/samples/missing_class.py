"""Classes of the test data that no training sample has."""

import torch

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    Recipe,
    Results,
    Series,
    Subject,
    Suspects,
    hypergeometric_tail,
    proportion_interval,
)
from mindgap.ops.evidence.shares import Shares, shares
from mindgap.ops.samples import class_name
from mindgap.training.fit import fit

# So unlikely is it that a random split leaves out a class of this size, over all classes.
LEVEL = 1e-3


class MissingClass(Diagnosis):
    r"""Look for classes of the test data that no training sample has.

    Formula: $n_c = 0 \;\text{and}\; m_c > 0, \quad p = K \binom{m}{m_c} / \binom{n + m}{m_c}$

    Reading: The model cannot know the class, and every test sample of it counts as an error. That
    the class is missing is a fact. The p-value says whether a random split could have left it out.

    Assumes: Classification, or several labels per sample.

    >>> y = torch.arange(300) % 3
    >>> train = (torch.ones(200, 1), y[:200] % 2), (torch.ones(100, 1), y[200:])
    >>> print(MissingClass()(Subject(torch.nn.Linear(1, 3), "cross_entropy", *train)).sentence)
    Class 2 makes up 34 % of the test data, but no training sample has it.
    """

    stage = "split"
    symptom = "shifted labels"
    needs = frozenset({"test"})
    cites = ("lipton2018detecting",)
    explains = frozenset(
        {
            "ignored-class",
            "label-shift",
            "late-over-fitting",
            "over-confidence",
            "over-fitting",
            "permuted-test-classes",
            "rare-class",
            "shuffled-test-labels",
            "wrong-test-labels",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """List the classes that only the test data have."""
        if subject.task == "regression":
            return None
        found = shares(subject)
        missing = ((found.train == 0) & (found.test > 0)).nonzero().flatten().tolist()
        if not missing:
            return None
        p_value = min(1.0, len(found.test) * min(_chance(found, k) for k in missing))
        count = int(found.test[missing].sum())
        share = count / found.test_size
        places = _places(subject, missing)
        return self.finding(
            _headline(subject, missing, share),
            "wrong" if p_value < LEVEL else "note",
            p_value=p_value,
            evidence=(
                Evidence(
                    name="test samples of classes without training samples",
                    value=share,
                    interval=proportion_interval(min(count, found.test_size), found.test_size),
                    percent=True,
                ),
                Evidence(name="classes without training samples", value=len(missing)),
            ),
            sentences=("The model cannot learn a class that it never sees.",),
            advice=_advice(missing),
            charts=(_bars(subject, found, missing),),
            suspects=Suspects(
                split="test",
                index=places,
                columns={"target": [_names(subject, missing)[0]] * len(places)}
                if len(missing) == 1
                else {},
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Take all samples of one class out of the training data, and some out of the test data."""
        random = torch.Generator().manual_seed(seed)
        (inputs, targets), (others, truths) = recipe.train, recipe.test
        classes = targets.unique()
        gone = classes[torch.randint(len(classes), (1,), generator=random)]
        kept = (truths != gone) | (torch.rand(len(truths), generator=random) < strength)
        return fit(
            recipe.replace(
                train=(inputs[targets != gone], targets[targets != gone]),
                test=(others[kept], truths[kept]),
            ),
            seed=seed,
        ).subject()


def _chance(found: Shares, index: int) -> float:
    """Return how likely a random split puts all samples of a class into the test data."""
    count = int(found.test[index])
    return hypergeometric_tail(count, found.test_size, count, found.train_size + found.test_size)


def _names(subject: Subject, missing: list[int]) -> list[str]:
    return [class_name(subject.classes, k) for k in missing]


def _headline(subject: Subject, missing: list[int], share: float) -> str:
    kind = "class" if subject.task == "classification" else "label"
    names = _names(subject, missing)
    percent = f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"
    if len(names) == 1:
        return (
            f"{kind.capitalize()} {names[0]} makes up {percent} of the test data, but no training "
            "sample has it."
        )
    plural = "classes" if kind == "class" else "labels"
    listed = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
    return (
        f"{len(names)} {plural} ({listed}) make up {percent} of the test data, but no training "
        "sample has them."
    )


def _places(subject: Subject, missing: list[int]) -> list[int]:
    targets = subject.targets("test").cpu()
    if subject.task == "multilabel":
        chosen = (targets.reshape(len(targets), -1)[:, missing] > 0.5).any(1)
    else:
        chosen = torch.isin(targets, torch.tensor(missing))
    found: list[int] = chosen.nonzero().flatten().tolist()
    return found


def _advice(missing: list[int]) -> tuple[Advice, ...]:
    return (
        Advice(text="Add training samples of these classes, or split the data class by class."),
        Advice(
            text="Until then judge the model on the classes that it can know:",
            code=f"known = ~torch.isin(test_targets, torch.tensor({missing}))\n"
            "test_inputs, test_targets = test_inputs[known], test_targets[known]",
        ),
    )


def _bars(subject: Subject, found: Shares, missing: list[int]) -> Bar:
    others = [k for k in range(len(found.test)) if k not in missing][:12]
    order = sorted([*missing[:12], *others])
    names = _names(subject, order)
    return Bar(
        title="Samples of every class",
        series=[
            Series(name="training", x=names, y=found.train[order].tolist()),
            Series(name="test", x=names, y=found.test[order].tolist()),
        ],
    )
