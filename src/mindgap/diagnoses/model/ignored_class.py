"""Classes that the model never or hardly ever predicts, although they are there."""

import dataclasses

import torch
from torch import Tensor

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    Mark,
    Recipe,
    Results,
    Subject,
    Suspects,
    binomial_upper_tail,
    proportion_interval,
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.perceptron import last_linear
from mindgap.ops.evidence.reference import reference
from mindgap.ops.evidence.rows import rows
from mindgap.ops.samples import class_name
from mindgap.training.fit import fit

FEWEST = 5  # training samples that a class must have to be learned at all
HARDLY = 0.05  # of a class's samples are recognized, on training and on test data
FIFTH = 0.2  # a model that recognizes this share of a class does not ignore it: the null hypothesis
LEARNABLE = 0.3  # of the class's samples: what the reference predictor must recognize
MARGIN = 0.05  # of error by which the model may be worse than the reference on the other classes


@dataclasses.dataclass(frozen=True)
class _Class:
    """A class with its training and test samples, and how many of them are recognized."""

    number: int
    hits: int
    count: int

    @property
    def p_value(self) -> float:
        """How likely so few are recognized if a fifth should be."""
        return binomial_upper_tail(self.count - self.hits, self.count, 1 - FIFTH)


class IgnoredClass(Diagnosis):
    r"""Look for classes that the model never or hardly ever predicts although they are present.

    Formula: $\frac{\sum_i [\hat y_i = y_i = k]}{\sum_i [y_i = k]} < 0.05 \;\text{on training and on
    test data}$

    Reading: All samples of the class are lost, which a small total error can hide. It is a fault
    if a reference predictor recognizes the class and the model fits the others, and a note if the
    model fits the others badly too. The p-value is the binomial tail of a fifth recognized.

    Assumes: Samples are independent.

    >>> net = torch.nn.Linear(1, 3)
    >>> with torch.no_grad():
    ...     _ = net.weight.copy_(torch.tensor([[-9.0], [0.0], [9.0]]))
    ...     _ = net.bias.copy_(torch.tensor([0.0, -9.0, 0.0]))
    >>> x = torch.linspace(-1, 0.99, 300)[:, None]
    >>> y = ((x[:, 0] + 1) * 1.5).long()
    >>> IgnoredClass()(Subject(net, "cross_entropy", (x, y))).sentence
    "The model never predicts class '1', which 33 % of the training samples have."
    """

    stage = "fit"
    symptom = "imbalance"
    needs = frozenset({"classification"})
    cites = ("he2009learning", "brodersen2010balanced")
    explains = frozenset(
        {
            "over-confidence",
            "over-fitting",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Count recognized samples of every class, on training and test data."""
        ignored = _ignored(subject)
        present = subject.targets("train").unique()
        if not ignored or len(ignored) >= len(present) - 1:  # one class left: a constant predictor
            return None
        worst = min(ignored, key=lambda found: found.p_value)
        share = float((subject.targets("train") == worst.number).double().mean())
        name = class_name(subject.classes, worst.number)
        how = "never" if worst.hits == 0 else "hardly ever"
        others = [class_name(subject.classes, found.number) for found in ignored if found != worst]
        return self.finding(
            f"The model {how} predicts class {name!r}, which {100 * share:.0f} % of the training samples "
            "have.",
            _severity(subject, [found.number for found in ignored]),
            p_value=min(1.0, len(present) * worst.p_value),
            evidence=(
                Evidence(
                    name="samples of the class that are recognized",
                    value=worst.hits / worst.count,
                    interval=proportion_interval(worst.hits, worst.count),
                    percent=True,
                ),
                Evidence(name="samples of the class", value=worst.count),
            ),
            sentences=(
                (f"The same holds for {len(others)} more: {', '.join(others[:5])}.",)
                if others
                else ()
            ),
            advice=(
                Advice(
                    text="Check that the loss sees the class: class weights, masks, and the "
                    "numbers of labels and outputs."
                ),
                Advice(
                    text="If it is rare, weigh its samples more, and retrain.",
                    code="counts = torch.bincount(labels)\n"
                    "loss_function = torch.nn.CrossEntropyLoss(\n"
                    "    weight=counts.sum() / (len(counts) * counts.clamp(min=1))\n"
                    ")",
                ),
            ),
            charts=(_chart(subject),),
            suspects=_suspects(subject, worst.number),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Lower the output of one class until no other one is below it."""
        subject = fit(recipe, seed=seed).subject()
        outputs = subject.outputs("train")
        number = seed % outputs.shape[1]
        lead = outputs[:, number] - outputs.scatter(
            1, torch.full_like(outputs[:, :1], number, dtype=torch.long), -torch.inf
        ).amax(1)
        with torch.no_grad():
            last_linear(subject.model).bias[number] -= strength * lead.max()
        return subject


def _hits(targets: Tensor, predictions: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return how many samples of every class there are, and how many are recognized."""
    found = targets[targets == predictions]
    return torch.bincount(targets, minlength=classes), torch.bincount(found, minlength=classes)


def _ignored(subject: Subject) -> list[_Class]:
    classes = subject.outputs("train").shape[1]
    counts, hits = _hits(subject.targets("train"), subject.predictions("train"), classes)
    hardly = (counts >= FEWEST) & (hits < HARDLY * counts)
    if subject.test is not None:
        more, right = _hits(subject.targets("test"), subject.predictions("test"), classes)
        # Test samples of the class must be there: one that nobody asks for is no loss.
        hardly &= (more > 0) & (right <= HARDLY * more)
        counts, hits = counts + more, hits + right
    return [
        _Class(number, int(hits[number]), int(counts[number]))
        for number in hardly.nonzero().flatten().tolist()
    ]


def _severity(subject: Subject, ignored: list[int]) -> Severity:
    """Ask the reference predictor whether the class, and the others, could be learned."""
    if subject.test is None:
        return "suspect"
    places, other = rows(subject, "train").places, reference(subject)
    labels = other.targets("train").argmax(1)
    lost = torch.isin(labels, torch.tensor(ignored))
    wrong = subject.errors("train").cpu()[places]
    gap = float((wrong - other.errors("train"))[~lost].mean()) if bool((~lost).any()) else 1.0
    if gap > MARGIN:
        return "note"
    known = 1 - float(other.errors("train")[lost].mean()) if bool(lost.any()) else 0.0
    return "wrong" if known > LEARNABLE else "suspect"


def _chart(subject: Subject) -> Bar:
    classes = subject.outputs("train").shape[1]
    counts, hits = _hits(subject.targets("train"), subject.predictions("train"), classes)
    shares = (hits / counts.clamp_min(1)).tolist()
    present = [number for number in range(classes) if counts[number]]
    return Bar.of(
        {class_name(subject.classes, number): shares[number] for number in present},
        title="Training samples of every class that are recognized",
        percent=True,
        marks=(Mark(name="ignored", y=HARDLY),),
    )


def _suspects(subject: Subject, number: int) -> Suspects:
    """Return the samples of the class, and what the model takes them for."""
    predictions = subject.predictions("train").cpu()
    places = (subject.targets("train").cpu() == number).nonzero().flatten()
    named = [class_name(subject.classes, int(value)) for value in predictions[places]]
    return Suspects(split="train", index=places.tolist(), columns={"prediction": named})
