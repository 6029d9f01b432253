"""Classes or targets that are spread differently over training and test data."""

import math

import torch
from torch import Tensor

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    Histogram,
    Recipe,
    Results,
    Series,
    Subject,
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.shares import Shares, shares
from mindgap.ops.evidence.two_sample import kolmogorov
from mindgap.ops.samples import class_name
from mindgap.training.fit import fit

LEVEL = 1e-3  # raw p-value of exact tests, before the correction for all diagnoses
LEAST = 0.05  # total variation beyond what chance gives, or difference of a label's share
LARGE = 0.1  # total variation that voids a test error as an estimate for the training mixture
HARM = 0.01  # change of the error rate by the mixture alone
DISTANCE = 0.1  # of Kolmogorov and Smirnov, between targets of a regression
MOST = 24  # classes in a sentence's code


class LabelShift(Diagnosis):
    r"""Look for classes or targets that are spread differently over training and test data.

    Formula: $\frac{1}{2} \sum_c |\hat p_{test}(c) - \hat p_{train}(c)|$, in a regression
    $\sup_y |F_{test}(y) - F_{train}(y)|$

    Reading: The test error is an average over another mixture of classes than the model was trained
    on. Compare errors class by class. The p-value is the better of Fisher's exact one per class and
    the chi-square one of all classes; that of a regression is Kolmogorov and Smirnov's.

    Assumes: Samples are independent. Stratified splits only make false alarms rarer.

    >>> y = torch.arange(400) % 2
    >>> test = torch.tensor([0] * 180 + [1] * 20)
    >>> net = torch.nn.Linear(1, 2)
    >>> subject = Subject(net, "cross_entropy", (torch.ones(400, 1), y), (torch.ones(200, 1), test))
    >>> print(LabelShift()(subject).sentence)
    Class 0 makes up 90 % of the test data but 50 % of the training data.
    """

    stage = "balance"
    symptom = "shifted labels"
    needs = frozenset({"test"})
    cites = ("lipton2018detecting",)
    explains = frozenset({"under-confidence"})

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare the counts of every class, or the distributions of the targets."""
        if subject.task == "regression":
            return self._targets(subject)
        found = shares(subject)
        p_value = _p_value(subject, found)
        distance, beyond = _distance(subject, found)
        if p_value > LEVEL or beyond < LEAST:
            return None
        cost = _cost(subject, found)
        large = beyond > LARGE or abs(cost) > HARM
        worst = int(found.differences.abs().argmax())
        return self.finding(
            _headline(subject, found, worst),
            "wrong" if large else "note",
            p_value=p_value,
            evidence=(
                Evidence(name="distance of the mixtures", value=distance, percent=True),
                Evidence(name="distance beyond chance", value=beyond, percent=True),
                Evidence(name="test error due to the mixture", value=cost, percent=True),
            ),
            sentences=(_costs(cost),),
            advice=_advice(subject, found),
            charts=(_bars(subject, found),),
        )

    def _targets(self, subject: Subject) -> Finding | None:
        own, other = (_flat(subject.targets(which)) for which in ("train", "test"))
        distances, p_values = kolmogorov(own, other)
        p_value = min(1.0, float(p_values.min()) * len(p_values))
        worst = int(p_values.argmin() if float(p_values.min()) > 0 else distances.argmax())
        if p_value > LEVEL or float(distances[worst]) < DISTANCE:
            return None
        means = [float(part[:, worst].mean()) for part in (own, other)]
        severity: Severity = "wrong" if float(distances[worst]) > 2 * DISTANCE else "note"
        which = f" of output {worst}" if len(p_values) > 1 else ""
        return self.finding(
            f"The targets{which} are spread differently: their mean is {means[1]:.3g} in the test "
            f"data and {means[0]:.3g} in the training data.",
            severity,
            p_value=p_value,
            evidence=(
                Evidence(name="distance of the distributions", value=float(distances[worst])),
                Evidence(name="mean training target", value=means[0]),
                Evidence(name="mean test target", value=means[1]),
            ),
            advice=(
                Advice(
                    text="Split the data at random, or by ranges of the target, so that both sides "
                    "cover the same values."
                ),
            ),
            charts=(
                Histogram.of(
                    {"training": own[:, worst], "test": other[:, worst]},
                    title="Targets",
                    x_label="target",
                    shares=True,
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Drop up to nine of ten test samples of half of the classes, or of the low targets."""
        random = torch.Generator().manual_seed(seed)
        inputs, targets = recipe.test
        if targets.is_floating_point():
            level = targets.reshape(len(targets), -1)[:, 0]
            low = level < level.median()
        else:
            low = targets <= (int(targets.max()) - 1) // 2
        dropped = low & (torch.rand(len(targets), generator=random) < 0.9 * strength)
        return fit(recipe.replace(test=(inputs[~dropped], targets[~dropped])), seed=seed).subject()


def _flat(targets: Tensor) -> Tensor:
    return targets.detach().cpu().double().reshape(len(targets), -1)


def _p_value(subject: Subject, found: Shares) -> float:
    """Take the better of a test per class and a test of all classes together, times two."""
    single = min(found.p_values()) * len(found.train)
    if subject.task == "multilabel":
        return min(1.0, single)
    return min(1.0, 2 * min(single, found.homogeneity()))


def _distance(subject: Subject, found: Shares) -> tuple[float, float]:
    """Return the distance of the mixtures, and what is left of it without chance."""
    apart, chance = found.differences.abs(), found.chance()
    if subject.task == "multilabel":
        worst = int((apart - chance).argmax())
        return float(apart[worst]), float(apart[worst] - chance[worst])
    distance = float(apart.sum() / 2)
    return distance, distance - float(chance.sum() / 2)


def _cost(subject: Subject, found: Shares) -> float:
    """Return the test error minus what it would be with the training data's shares."""
    if subject.task != "classification":
        return 0.0
    targets = subject.targets("test").cpu()
    errors = subject.errors("test").detach().cpu().double()
    sums = torch.zeros(len(found.test), dtype=torch.float64).index_add_(0, targets, errors)
    seen = found.test > 0
    weights = torch.where(seen, found.train, torch.zeros_like(found.train))
    rates = sums / found.test.clamp_min(1)
    return float(errors.mean() - (weights * rates).sum() / weights.sum().clamp_min(1e-12))


def _headline(subject: Subject, found: Shares, worst: int) -> str:
    kind = "Class" if subject.task == "classification" else "Label"
    name = class_name(subject.classes, worst)
    own = float(found.train[worst]) / found.train_size
    other = float(found.test[worst]) / found.test_size
    return (
        f"{kind} {name} makes up {100 * other:.0f} % of the test data but {100 * own:.0f} % of the training "
        "data."
    )


def _costs(cost: float) -> str:
    if abs(cost) < HARM / 2:
        return "With the mixture of the training data the test error would be about the same."
    word = "lower" if cost > 0 else "higher"
    return (
        "With the mixture of the training data the test error would be "
        f"{100 * abs(cost):.1f} points {word}."
    )


def _advice(subject: Subject, found: Shares) -> tuple[Advice, ...]:
    stratify = Advice(
        text="If the mixture in use is that of the training data, draw the test samples at random "
        "within every class."
    )
    if subject.task != "classification" or len(found.train) > MOST:
        return (stratify,)
    # Half a sample per class keeps the logarithms finite.
    own = (found.train + 0.5) / (found.train + 0.5).sum()
    other = (found.test + 0.5) / (found.test + 0.5).sum()
    shift = ", ".join(f"{math.log(b / a):.3f}" for a, b in zip(own, other, strict=True))
    return (
        Advice(
            text="If the mixture in use is that of the test data, correct the logits for it; no "
            "retraining is needed.",
            code=f"logits = logits + torch.tensor([{shift}])",
        ),
        stratify,
    )


def _bars(subject: Subject, found: Shares) -> Bar:
    order = found.differences.abs().argsort(descending=True)[:MOST].sort().values.tolist()
    names = [class_name(subject.classes, k) for k in order]
    return Bar(
        title="Share of every class"
        if subject.task == "classification"
        else "Share of every label",
        series=[
            Series(name="training", x=names, y=(found.train / found.train_size)[order].tolist()),
            Series(name="test", x=names, y=(found.test / found.test_size)[order].tolist()),
        ],
        percent=True,
    )
