"""A model that predicts the same for all samples."""

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
    align,
)
from mindgap.ops.evidence.fit import broadcast_advice
from mindgap.ops.evidence.passes import unseen
from mindgap.ops.evidence.perceptron import last_linear
from mindgap.ops.samples import class_name
from mindgap.training.fit import fit

ALMOST_ALL = 0.995  # of the predictions are the same
# Where nearly all targets are equal, the best model may well predict them alone.
ONE_SIDED = 0.9
# A regression that explains as little as 0.04 % of the variance should spread by this share of the
# targets' standard deviation; less is a constant.
SPREAD = 0.02
FEWEST = 20  # samples: fewer may be alike by chance


class ConstantPredictor(Diagnosis):
    r"""Look for a model that predicts the same class, labels or value for all samples.

    Formula: $\max_c \frac{1}{n} \sum_i [\hat y_i = c] \ge 0.995 \;\text{or, in a regression,}\;
    \mathrm{sd}(\hat y) < 0.02 \, \mathrm{sd}(y)$

    Reading: The model ignores its inputs. Where more than nine in ten targets are equal too, that
    may be the best it can do, so it is only a suspicion there.

    Assumes: The targets themselves vary.

    >>> net = torch.nn.Linear(1, 2)
    >>> _ = torch.nn.init.zeros_(net.weight)
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> finding = ConstantPredictor()(Subject(net, "cross_entropy", (x, (x[:, 0] > 0).long())))
    >>> finding.severity
    'wrong'
    """

    stage = "collapse"
    symptom = "under-fitting"
    exact = True
    cites = ("goodfellow2016deep",)
    explains = frozenset(
        {
            "ignored-class",
            "over-confidence",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Count the most frequent prediction, on training and on test data."""
        if len(subject.train) < FEWEST:
            return None
        return self._value(subject) if subject.task == "regression" else self._class(subject)

    def _class(self, subject: Subject) -> Finding | None:
        which = unseen(subject)
        shares = [_most(subject.predictions(part)) for part in {"train", which}]
        if min(share for _, share in shares) < ALMOST_ALL:
            return None
        answer, share = _most(subject.predictions(which))
        outputs = subject.outputs(which)
        targets = align(outputs, subject.targets(which)).reshape(len(outputs), -1)
        _, common = _most(targets)
        if common >= ALMOST_ALL:
            return None
        told = _told(subject, answer)
        return self.finding(
            f"The model predicts {told} for {100 * share:.1f} % of the samples.",
            "suspect" if common > ONE_SIDED else "wrong",
            evidence=(
                Evidence(name="share of the most frequent prediction", value=share, percent=True),
                Evidence(name="share of the most frequent target", value=common, percent=True),
                Evidence(name="error", value=subject.mean_error(which), percent=True),
            ),
            sentences=(f"Of the targets, the most frequent one makes up {100 * common:.1f} %.",),
            advice=_advice(),
            charts=_counts(subject, outputs),
        )

    def _value(self, subject: Subject) -> Finding | None:
        which = unseen(subject)
        outputs, targets = subject.outputs(which), subject.targets(which)
        spread, wanted = (_spread(values) for values in (outputs, targets))
        if wanted <= 0 or spread >= SPREAD * wanted:
            return None
        return self.finding(
            "The model predicts almost the same value for all samples: its predictions spread by "
            f"{100 * spread / wanted:.2f} % of what the targets do.",
            evidence=(
                Evidence(name="standard deviation of the predictions", value=spread),
                Evidence(name="standard deviation of the targets", value=wanted),
            ),
            advice=(*broadcast_advice(subject), *_advice()),
            charts=(
                Histogram.of(
                    {"targets": targets.flatten(), "predictions": outputs.flatten()},
                    title="Targets and predictions",
                    shares=True,
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Shrink the weights of the last layer, so that its bias decides."""
        subject = fit(recipe, seed=seed).subject()
        with torch.no_grad():
            last_linear(subject.model).weight.mul_(max(0.0, 1 - strength))
        return subject


def _most(answers: Tensor) -> tuple[Tensor, float]:
    """Return the most frequent row and its share."""
    flat = answers.reshape(len(answers), -1)
    found, counts = flat.unique(dim=0, return_counts=True)
    return found[counts.argmax()], int(counts.max()) / len(flat)


def _spread(values: Tensor) -> float:
    return float(values.double().reshape(len(values), -1).std(0, correction=0).max())


def _told(subject: Subject, answer: Tensor) -> str:
    if subject.task == "classification":
        return f"class {class_name(subject.classes, int(answer))!r}"
    return "no label" if not answer.any() else "the same labels"


def _advice() -> tuple[Advice, ...]:
    return (
        Advice(
            text="Check that one batch can be learned by heart. If not, the inputs do not reach "
            "the outputs: look for dead layers, unscaled inputs or a learning rate too high.",
            code="for _ in range(200):\n"
            "    optimizer.zero_grad()\n"
            "    loss = loss_function(model(inputs[:32]), targets[:32])\n"
            "    loss.backward()\n"
            "    optimizer.step()\n"
            "print(loss)  # should be near zero",
        ),
        Advice(text="Retrain with inputs scaled to mean 0 and variance 1, and a smaller step."),
    )


def _counts(subject: Subject, outputs: Tensor) -> tuple[Bar, ...]:
    if subject.task != "classification":
        return ()
    which, count = unseen(subject), outputs.shape[1]
    names = [class_name(subject.classes, k) for k in range(count)]
    columns = {"targets": subject.targets(which), "predictions": subject.predictions(which)}
    return (
        Bar(
            title="Targets and predictions by class",
            series=tuple(
                Series(name=name, x=names, y=(torch.bincount(part, minlength=count)).tolist())
                for name, part in columns.items()
            ),
        ),
    )
