"""Whether a model has learned its training data: compare it with the reference predictor."""

import dataclasses
import math

from torch import Tensor

from mindgap.core import Advice, Subject, align, binomial_upper_tail, normal_tail
from mindgap.ops.evidence.reference import reference
from mindgap.ops.evidence.rows import rows

# The reference predicts every training sample without having seen its target, so a model that was
# trained on the sample should do better. Differences below these amounts matter to nobody.
WORSE = 0.02  # of the samples
WORSE_FACTOR, WORSE_SHARE = 1.3, 0.01  # of the squared error, and of the variance of the targets
EXPLAINS = 0.1  # share of the variance: a loss that broadcasts leaves nearly nothing
SURE = 3.2e-5  # p-value of four standard errors


@dataclasses.dataclass(frozen=True)
class Fit:
    """How well a model fits its training data, next to the reference predictor.

    Args:
        model: Mean error of the model on training samples: the share of wrong classes or labels,
            or the squared error as a share of the variance of the targets.
        reference: Leave-one-out error of the reference predictor on the same samples.
        p_value: How likely a model that is as good as the reference is so much worse by chance.
        under: Whether the model is worse, surely and by an amount that matters.
    """

    model: float
    reference: float
    p_value: float
    under: bool


def fit_quality(subject: Subject) -> Fit:
    """Compare training errors with the leave-one-out errors of the reference, once per subject.

    Args:
        subject: With test data, which the reference needs.

    >>> import torch
    >>> x = torch.linspace(-1, 1, 400)[:, None]
    >>> flat = torch.nn.Linear(1, 1)
    >>> _ = torch.nn.init.zeros_(flat.weight), torch.nn.init.zeros_(flat.bias)
    >>> found = fit_quality(Subject(flat, "mse", (x[::2], x[::2].sin()), (x[1::2], x[1::2].sin())))
    >>> round(found.model, 2), round(found.reference, 2), found.under
    (1.0, 0.0, True)
    """
    return subject.cached("fit quality", lambda: _quality(subject))


def broadcast_advice(subject: Subject) -> tuple[Advice, ...]:
    """Advise to compare shapes where a loss that broadcasts explains that next to nothing is learned.

    Args:
        subject: A regression whose outputs have a dimension of one that its targets lack, or the
            other way around, gets the advice; any other gets none.
    """
    if subject.task != "regression":
        return ()
    outputs, targets = (
        tuple(part.shape[1:]) for part in (subject.outputs("train"), subject.targets("train"))
    )
    if len(outputs) == len(targets) or _explains(subject) > EXPLAINS:
        return ()
    shapes = (
        f"({', '.join(['n', *map(str, shape)])}{'' if shape else ','})"
        for shape in (outputs, targets)
    )
    return (
        Advice(
            text="Check that the training loop gives both the same shape: outputs are {}, targets {}. "
            "A loss that broadcasts them compares every output with every target, and the model "
            "learns the mean of the targets.".format(*shapes),
            code="loss = loss_function(outputs, targets.view_as(outputs))",
        ),
    )


def _explains(subject: Subject) -> float:
    """Return the share of the targets' variance that the model explains, in the training data."""
    outputs, targets = subject.outputs("train"), subject.targets("train")
    wanted = align(outputs, targets).double()
    missed = (outputs.double() - wanted).square().mean()
    return 1 - float(missed / (wanted - wanted.mean(0)).square().mean().clamp_min(1e-300))


def under_fits(subject: Subject) -> bool:
    """Tell whether the model is clearly worse on its training data than the reference predictor.

    Args:
        subject: Without test data there is no reference, and the answer is no.
    """
    return subject.test is not None and fit_quality(subject).under


def _quality(subject: Subject) -> Fit:
    model, other = _errors(subject), reference(subject).errors("train").double()
    if subject.task == "classification":
        return _compared_classes(model, other)
    if subject.task == "multilabel":
        found = reference(subject)
        other = ((found.train > 0.5) != (found.train_targets > 0.5)).double().mean(1)
        return _compared(model, other, 1.0, float(other.mean()) + WORSE)
    spread = float(reference(subject).train_targets.double().var(0, correction=0).mean())
    least = WORSE_FACTOR * float(other.mean()) + WORSE_SHARE * spread
    return _compared(model, other, max(spread, 1e-300), least)


def _errors(subject: Subject) -> Tensor:
    """Return the model's errors at the training samples that the reference looks at."""
    places = rows(subject, "train").places
    if subject.task != "regression":
        return subject.errors("train").detach().cpu()[places].double()
    outputs, targets = subject.outputs("train").detach(), subject.targets("train")
    squares = (outputs - align(outputs, targets)).double().square()
    return squares.reshape(len(squares), -1).mean(1).cpu()[places]


def _compared_classes(model: Tensor, other: Tensor) -> Fit:
    """McNemar's exact test: among samples that one of both gets wrong, which one errs more often."""
    worse, better = int((model > other).sum()), int((model < other).sum())
    p_value = binomial_upper_tail(worse, worse + better, 0.5)
    difference = float(model.mean() - other.mean())
    return Fit(
        float(model.mean()), float(other.mean()), p_value, difference > WORSE and p_value < SURE
    )


def _compared(model: Tensor, other: Tensor, unit: float, least: float) -> Fit:
    """Test the mean of paired differences, in units of the targets' variance."""
    difference = model - other
    error = float(difference.std()) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
    p_value = normal_tail(float(difference.mean()) / error) if error > 0 else 1.0
    under = float(model.mean()) > least and p_value < SURE
    return Fit(float(model.mean()) / unit, float(other.mean()) / unit, p_value, under)
