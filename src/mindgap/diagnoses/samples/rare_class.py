"""A class with so few training samples that the model fails on it."""

import torch
from torch import Tensor

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    Points,
    Recipe,
    Results,
    Scatter,
    Series,
    Subject,
    Suspects,
    hypergeometric_tail,
    proportion_interval,
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.shares import Shares, shares
from mindgap.ops.samples import class_name
from mindgap.training.fit import fit

LEVEL = 1e-3  # raw p-value of an exact test, times the number of rare classes
# Of an equal share, and by how much the error of the class must exceed that of the others. Of 200
# random tables with three classes, one in ten has a class below half of an equal share, and two of
# those have an error twenty points higher: worth a look, but nothing is wrong with them.
VERY_RARE, WORSE = 0.25, 0.05
RARE, MUCH_WORSE = 0.5, 0.2
FEWEST = 5  # test samples of a class below which its error says nothing
MOST = 24  # classes in a line of code


class RareClass(Diagnosis):
    r"""Look for a class with few training samples on which the model fails.

    Formula: $n_c < \frac{n}{4K} \;\text{and}\; e_c > e_{others} + 0.05$, or $n_c < \frac{n}{2K}
    \;\text{and}\; e_c > e_{others} + 0.2$

    Reading: The class is rare in the training data, and its test error is surely higher than that
    of the other classes. A hard class looks the same. So it is a suspicion only, unless the class
    has less than a quarter of an equal share and is predicted too seldom.

    Assumes: Classification, or labels that are rarely on. The p-value is Fisher's exact one.

    >>> y = torch.tensor([0] * 200 + [1] * 10)
    >>> x = torch.ones(210, 1)
    >>> net = torch.nn.Linear(1, 2)
    >>> _ = torch.nn.init.zeros_(net.weight), net.bias.data.copy_(torch.tensor([1.0, 0.0]))
    >>> print(RareClass()(Subject(net, "cross_entropy", (x, y), (x, y))).sentence)
    Class 1 has 10 of 210 training samples, and 100 % of its test samples are predicted wrong.
    """

    stage = "balance"
    symptom = "imbalance"
    needs = frozenset({"test"})
    cites = ("he2009learning",)
    explains = frozenset({"ignored-class", "label-shift", "over-fitting", "wrong-test-labels"})

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare the errors of rare classes with those of all others."""
        if subject.task == "regression":
            return None
        found = shares(subject)
        rare = _rare(subject, found)
        if not rare:
            return None
        wrong, counts = _errors(subject, len(found.test))
        p_values = {k: len(rare) * _p_value(wrong, counts, k) for k in rare}
        worst = min(p_values, key=lambda k: (p_values[k], k))
        rate = float(wrong[worst] / counts[worst])
        others = float((wrong.sum() - wrong[worst]) / (counts.sum() - counts[worst]).clamp_min(1))
        very = float(found.train[worst]) < VERY_RARE * _equal(subject, found)
        if p_values[worst] > LEVEL or rate < others + (WORSE if very else MUCH_WORSE):
            return None
        sure = very and _seldom(subject, found, worst)
        severity: Severity = "wrong" if sure else "suspect"
        return self.finding(
            _headline(subject, found, worst, rate),
            severity,
            p_value=min(1.0, p_values[worst]),
            # If labels turn out to be wrong, such a class is rare since it lost its own.
            explained_by="wrong-labels" if worst in found.losers() else "",
            evidence=(
                Evidence(
                    name="share of the training samples",
                    value=float(found.train[worst]) / found.train_size,
                    percent=True,
                ),
                Evidence(
                    name="test error of the class",
                    value=rate,
                    interval=proportion_interval(int(wrong[worst]), int(counts[worst])),
                    percent=True,
                ),
                Evidence(name="test error of the other classes", value=others, percent=True),
            ),
            sentences=(f"The other classes have an error of {100 * others:.1f} %.",),
            advice=_advice(subject, found),
            charts=(_plot(subject, found, wrong, counts),),
            suspects=_suspects(subject, worst),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Drop all but one in fifty training samples of a class (one in ten at half strength)."""
        random = torch.Generator().manual_seed(seed)
        inputs, targets = recipe.train
        classes = targets.unique()
        rare = classes[torch.randint(len(classes), (1,), generator=random)]
        mine = (targets == rare).nonzero().flatten()
        mine = mine[torch.randperm(len(mine), generator=random)]
        kept = max(2, round(len(mine) * 0.02 ** min(strength, 1.0)))
        keep = torch.ones(len(targets), dtype=torch.bool)
        keep[mine[kept:]] = False
        # Fewer samples make fewer steps per epoch; the model must not be under-trained as well.
        longer = recipe.replace(train=(inputs[keep], targets[keep]), epochs=2 * recipe.epochs)
        return fit(longer, seed=seed).subject()


def _equal(subject: Subject, found: Shares) -> float:
    """Return the number of training samples of a class if all had the same; of a label, half."""
    return found.train_size / (len(found.train) if subject.task == "classification" else 2)


def _rare(subject: Subject, found: Shares) -> list[int]:
    limit = RARE * _equal(subject, found)
    few = (found.train > 0) & (found.train < limit) & (found.test >= FEWEST)
    chosen: list[int] = few.nonzero().flatten().tolist()
    return chosen


def _errors(subject: Subject, count: int) -> tuple[Tensor, Tensor]:
    """Count errors and samples of every class; of a label, the samples that have it."""
    targets = subject.targets("test").cpu()
    if subject.task == "multilabel":
        truth = targets.reshape(len(targets), -1) > 0.5
        answers = subject.predictions("test").cpu().reshape(len(targets), -1) > 0.5
        return (truth & ~answers).double().sum(0), truth.double().sum(0)
    wrong = subject.errors("test").detach().cpu().double()
    zeros = torch.zeros(count, dtype=torch.float64)
    return zeros.index_add(0, targets, wrong), torch.bincount(targets, minlength=count).double()


def _p_value(wrong: Tensor, counts: Tensor, index: int) -> float:
    return hypergeometric_tail(
        int(wrong[index]), int(counts[index]), int(wrong.sum()), int(counts.sum())
    )


def _seldom(subject: Subject, found: Shares, index: int) -> bool:
    """Tell whether the model predicts the class less often than the test data have it."""
    answers = subject.predictions("test").cpu()
    if subject.task == "multilabel":
        predicted = int((answers.reshape(len(answers), -1)[:, index] > 0.5).sum())
    else:
        predicted = int((answers == index).sum())
    return predicted < float(found.test[index])


def _headline(subject: Subject, found: Shares, worst: int, rate: float) -> str:
    kind = "Class" if subject.task == "classification" else "Label"
    return (
        f"{kind} {class_name(subject.classes, worst)} has {int(found.train[worst]):,} of "
        f"{found.train_size:,} training samples, and {100 * rate:.0f} % of its test samples are "
        "predicted wrong."
    )


def _advice(subject: Subject, found: Shares) -> tuple[Advice, ...]:
    collect = Advice(text="Collect more training samples of the class.")
    if len(found.train) > MOST:
        return (collect,)
    if subject.task == "multilabel":
        off = (found.train_size - found.train) / found.train.clamp_min(1)
        numbers = ", ".join(f"{value:.3g}" for value in off.tolist())
        code = f"loss = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor([{numbers}]))"
    else:
        weights = found.train_size / (len(found.train) * found.train.clamp_min(1))
        numbers = ", ".join(f"{value:.3g}" for value in weights.tolist())
        code = f"loss = torch.nn.CrossEntropyLoss(weight=torch.tensor([{numbers}]))"
    return (
        collect,
        Advice(text="Retrain with a loss in which every class weighs the same.", code=code),
    )


def _plot(subject: Subject, found: Shares, wrong: Tensor, counts: Tensor) -> Bar | Scatter:
    rates = torch.where(counts > 0, wrong / counts.clamp_min(1), torch.zeros_like(wrong))
    if len(rates) > MOST:
        seen = counts > 0
        return Scatter(
            title="Error of every class by its number of training samples",
            x_label="training samples",
            y_label="test error",
            points=[Points(x=found.train[seen].tolist(), y=rates[seen].tolist())],
            x_scale="log",
        )
    order = found.train.argsort().tolist()
    names = [f"{class_name(subject.classes, k)} ({int(found.train[k]):,})" for k in order]
    return Bar(
        title="Test error of every class (training samples)",
        series=[Series(x=names, y=rates[order].tolist())],
        percent=True,
    )


def _suspects(subject: Subject, worst: int) -> Suspects:
    targets, answers = subject.targets("test").cpu(), subject.predictions("test").cpu()
    if subject.task == "multilabel":
        mine = (targets.reshape(len(targets), -1)[:, worst] > 0.5) & (
            answers.reshape(len(targets), -1)[:, worst] <= 0.5
        )
        return Suspects(split="test", index=mine.nonzero().flatten().tolist())
    places = ((targets == worst) & (answers != worst)).nonzero().flatten()
    told = [class_name(subject.classes, int(k)) for k in answers[places]]
    return Suspects(split="test", index=places.tolist(), columns={"prediction": told})
