"""Whether predicted probabilities are true: confidence, temperature, calibration error."""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import (
    InputError,
    Interval,
    Line,
    Series,
    Subject,
    Which,
    align,
    binomial_upper_tail,
)

BINS = 15  # of equal size, as Guo et al. (2017) use them
COLDEST, HOTTEST = 0.01, 100.0  # temperatures among which the best is searched


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How far confidence and truth differ on a split.

    Args:
        confidence: The probability of the predicted class, per sample.
        correct: Whether it is the true class.
        excess: Mean of confidence minus correct, over samples.
        interval: Its interval of 95 %.
        p_over: How likely a calibrated model has so much excess by chance.
        p_under: How likely a calibrated model has so little.
        temperature: The best divisor of the logits.
        gain: The share of the loss that the temperature of the other half of the samples saves.
        error: The debiased calibration error.
        error_interval: Its interval of 95 %.
    """

    confidence: Tensor
    correct: Tensor
    excess: float
    interval: Interval
    p_over: float
    p_under: float
    temperature: float
    gain: float
    error: float
    error_interval: Interval


def calibration(subject: Subject, which: Which) -> Calibration:
    """Compare confidence with truth on a split, once per subject.

    Args:
        subject: Whose outputs are logits of classes or of yes/no labels.
        which: The split.

    >>> logits = torch.tensor([[3.0, 0.0], [0.0, 3.0]]).repeat(100, 1)
    >>> labels = torch.tensor([0, 1] * 75 + [1, 0] * 25)
    >>> found = calibration(
    ...     Subject(torch.nn.Identity(), "cross_entropy", (logits, labels)), "train"
    ... )
    >>> round(found.excess, 2), round(found.temperature, 2)
    (0.2, 2.74)
    """
    return subject.cached(("calibration", which), lambda: _calibration(subject, which))


def _calibration(subject: Subject, which: Which) -> Calibration:
    logits, labels = as_classes(subject, subject.outputs(which), subject.targets(which))
    confidence, correct = _confidence(logits, labels)
    gain, temperature = _cross_fitted(logits, labels)
    over = confidence - correct
    mean, half = float(over.mean()), 1.96 * float(over.std()) / math.sqrt(len(over))
    value, interval = calibration_error(confidence, correct)
    return Calibration(
        confidence=confidence,
        correct=correct,
        excess=mean,
        interval=Interval(low=mean - half, high=mean + half),
        p_over=p_excess(confidence, correct),
        p_under=p_excess(1 - confidence, 1 - correct),
        temperature=temperature,
        gain=gain,
        error=value,
        error_interval=interval,
    )


def as_classes(subject: Subject, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (samples, labels, classes) and class numbers (samples, labels).

    Args:
        subject: Tells the task; a regression has no classes.
        outputs: Logits as the model gives them.
        targets: Their targets.
    """
    logits = outputs.detach().double().cpu()
    if getattr(subject.model, "scores_only", False):
        raise InputError("Confidence needs probabilities, got an estimator without predict_proba.")
    if subject.task == "classification":
        return logits[:, None], targets.cpu()[:, None]
    if subject.task == "regression":
        raise InputError("Confidence needs classes or yes/no labels, got a regression.")
    flat = logits.reshape(len(logits), -1)
    labels = align(outputs, targets).cpu().reshape(len(flat), -1)
    return torch.stack([torch.zeros_like(flat), flat], 2), (labels > 0.5).long()


def _confidence(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    confidence, predicted = F.softmax(logits, 2).max(2)
    return confidence.mean(1), (predicted == labels).double().mean(1)


def _nll(logits: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The negative log-likelihood of every sample, its labels averaged."""
    flat = F.cross_entropy(logits.flatten(0, 1) / temperature, labels.flatten(), reduction="none")
    return flat.view(labels.shape).mean(1)


def best_temperature(logits: Tensor, labels: Tensor) -> float:
    """Find the divisor of the logits with the least negative log-likelihood.

    The likelihood is concave in the inverse temperature, so its derivative is bisected.

    Args:
        logits: Of shape (…, classes).
        labels: Class numbers, of shape (…).

    >>> round(best_temperature(torch.tensor([[2.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])), 3)
    1.82
    """
    flat, wanted = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1, 1)
    flat = flat - flat.gather(1, wanted)
    low, high = math.log(1 / HOTTEST), math.log(1 / COLDEST)
    for _ in range(24):
        middle = 0.5 * (low + high)
        slope = float((F.softmax(flat * math.exp(middle), 1) * flat).sum(1).mean())
        low, high = (low, middle) if slope > 0 else (middle, high)
    return math.exp(-0.5 * (low + high))


def p_excess(confidence: Tensor, correct: Tensor) -> float:
    """Bound how likely true probabilities lead to so many errors, or more.

    The number of errors is a sum of independent trials of unequal rates. Beyond its mean, its tail
    is at most that of trials of equal rate (Hoeffding, 1956), so the p-value is never too small.
    Shares of several labels per sample are no trials; for them Hoeffding's inequality holds.

    Args:
        confidence: One probability per sample.
        correct: Whether the sample is right, or the share of its labels that are.

    >>> round(p_excess(torch.full((10,), 0.9), torch.tensor([1.0] * 5 + [0.0] * 5)), 5)
    0.00163
    """
    expected, errors = float((1 - confidence).sum()), float((1 - correct).sum())
    if errors <= expected:
        return 1.0
    if bool((correct == correct.round()).all()):
        return binomial_upper_tail(round(errors), len(correct), expected / len(correct))
    return math.exp(-2 * (errors - expected) ** 2 / len(correct))


def _cross_fitted(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return the share of the loss that the other half's temperature saves, and their mean."""
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(0))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    found = [best_temperature(logits[half], labels[half]) for half in halves]
    left = [
        _nll(logits[half], labels[half], other)
        for half, other in zip(halves, reversed(found), strict=True)
    ]
    loss = float(_nll(logits, labels, 1.0).mean())
    saved = 1 - float(torch.cat(left).mean()) / max(loss, 1e-300)
    return saved, math.sqrt(found[0] * found[1])


def tempered_losses(subject: Subject, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return losses as if an over-confident model had been given its best temperature.

    Args:
        subject: Tells task and loss.
        outputs: Outputs of some samples.
        targets: Their targets.
    """
    if subject.task == "regression":
        return subject.loss(outputs, targets).detach()
    temperature = max(1.0, best_temperature(*as_classes(subject, outputs, targets)))
    return subject.loss(outputs / temperature, targets).detach()


def calibration_error(confidence: Tensor, correct: Tensor) -> tuple[float, Interval]:
    """Compute the debiased calibration error of Kumar et al. (2019), with an interval of 95 %.

    Args:
        confidence: One probability per sample.
        correct: One truth per sample.

    >>> value, interval = calibration_error(torch.full((100,), 0.9), torch.ones(100) * 0.6)
    >>> round(value, 3)
    0.3
    """
    bins = [part for part in torch.argsort(confidence).tensor_split(BINS) if len(part) > 1]
    square = variance = 0.0
    for part in bins:
        share = len(part) / len(confidence)
        gap = float(confidence[part].mean() - correct[part].mean())
        # Noise of the mean alone makes the square of a gap positive: it is taken off.
        noise = float(correct[part].var()) / len(part)
        square += share * (gap * gap - noise)
        variance += share * share * (4 * gap * gap * noise + 2 * noise * noise)
    half = 1.96 * math.sqrt(variance)
    ends = (math.sqrt(max(0.0, square + side * half)) for side in (-1, 1))
    return math.sqrt(max(0.0, square)), Interval(**dict(zip(("low", "high"), ends, strict=True)))


def reliability(found: Calibration, title: str) -> Line:
    """Draw how often the model is right at every level of confidence.

    Args:
        found: The calibration of a split.
        title: The title of the chart.
    """
    order = torch.argsort(found.confidence)
    parts = [part for part in order.tensor_split(BINS) if len(part)]
    sure = [float(found.confidence[part].mean()) for part in parts]
    right = [float(found.correct[part].mean()) for part in parts]
    low = min([*sure, *right])
    return Line(
        title=title,
        caption="Each point is one of up to 15 equal shares of the samples. A true probability is "
        "on the diagonal.",
        x_label="confidence",
        y_label="share of right predictions",
        percent=True,
        series=[
            Series(name="model", x=sure, y=right),
            Series(name="true probabilities", x=[low, 1.0], y=[low, 1.0], mode="lines"),
        ],
    )


class ScaledOutputs(nn.Module):
    """A model whose outputs are multiplied by a constant.

    Args:
        model: The model, with a single input.
        factor: The constant.
    """

    def __init__(self, model: nn.Module, factor: float) -> None:
        super().__init__()
        self.model, self.factor = model, factor

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scaled outputs."""
        outputs: Tensor = self.model(inputs)
        return self.factor * outputs
