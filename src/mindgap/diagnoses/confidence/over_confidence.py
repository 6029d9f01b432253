"""Probabilities that promise more than the predictions hold."""

import dataclasses
from typing import Any

import torch

from mindgap.core import Advice, Diagnosis, Evidence, Finding, InputError, Recipe, Results, Subject
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.calibration import (
    Calibration,
    ScaledOutputs,
    calibration,
    p_excess,
    reliability,
)
from mindgap.training.fit import fit

HOT = 1.5  # a temperature that is worth applying
# Training on a loss drives the temperature of the training data below one, because larger logits
# still lower it: 0.01 to 0.75 in 91 healthy nets. Above, something else has scaled the logits.
TRAINING_HOT = 1.05
GAIN = 0.1  # of the loss, that the temperature must save on samples it was not fitted on
FEWEST = 50  # samples below which a calibration says nothing
ERRS = 0.004  # share of training errors that a plant needs: who is always right is never too sure

CODE = """temperature = {temperature:.3g}  # from the test data; for use, fit it on validation data
logits = model(inputs) / temperature"""


class OverConfidence(Diagnosis):
    r"""Look for probabilities that are higher than the share of right predictions.

    Formula: $\frac{1}{n} \sum_i \left( \max_k p_{ik} - 1[\hat y_i = y_i] \right), \qquad T =
    \arg\min_T \sum_i -\ln \mathrm{softmax}(z_i / T)_{y_i}$

    Reading: A model that is sure of 99 % and right in 90 % misleads whoever acts on it. Dividing the
    logits by the temperature repairs the probabilities and changes no prediction. If the training
    data need the temperature as well, the scale of the logits is wrong; otherwise it goes with
    over-fitting.

    Assumes: The outputs are logits. The temperature is fitted on one half of the test data and judged
    on the other.

    >>> logits = torch.tensor([[9.0, 0.0], [0.0, 9.0]]).repeat(100, 1)
    >>> data = logits, torch.tensor([0, 1] * 75 + [1, 0] * 25)
    >>> subject = Subject(torch.nn.Identity(), "cross_entropy", data, data)
    >>> OverConfidence()(subject).sentence
    'On test data the model is 100.0 % sure on average and right in 75.0 %.'
    """

    stage = "confidence"
    symptom = "over-confidence"
    explains = frozenset({"noise-sensitivity"})
    needs = frozenset({"test"})
    cites = ("guo2017calibration", "kumar2019verified")

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare confidence with truth on test and training data."""
        test, train = calibrations(subject)
        if test.temperature < HOT or test.gain < GAIN or test.excess < 0:
            return None
        p_value = test.p_over
        severity: Severity = "note"  # it goes with over-fitting, which comes before it
        if train.temperature > TRAINING_HOT:
            # Both splits are said to be too sure, so both bear on the claim.
            confidence = torch.cat([test.confidence, train.confidence])
            p_value = p_excess(confidence, torch.cat([test.correct, train.correct]))
            severity = "wrong"
        return confidence_finding(self, test, train, severity, p_value)

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Multiply the logits by five, or by three at half the strength.

        Noise is added to all inputs until some training samples are predicted wrongly.
        """
        for noise in (0.0, 0.3, 0.6, 0.9, 1.3, 2.0):
            subject = fit(noisy_inputs(recipe, noise, seed), seed=seed, evaluate_every=0).subject()
            if subject.mean_error("train") > ERRS:
                break
        return scaled(subject, 1 + 4 * strength)


def calibrations(subject: Subject) -> tuple[Calibration, Calibration]:
    """Return the calibrations of test and training data.

    Args:
        subject: A regression has none.
    """
    if len(subject.split("test")) < FEWEST:
        raise InputError(
            f"A calibration must have at least {FEWEST} test samples, got "
            f"{len(subject.split('test'))}. Add test samples."
        )
    return calibration(subject, "test"), calibration(subject, "train")


def confidence_finding(
    diagnosis: Diagnosis,
    test: Calibration,
    train: Calibration,
    severity: Severity,
    p_value: float,
    *more: str,
) -> Finding:
    """Tell how confidence and truth differ, with the temperature to paste.

    Args:
        diagnosis: Whose finding it is.
        test: Calibration of the test data.
        train: Calibration of the training data.
        severity: Of the finding.
        p_value: Of the finding.
        more: Further sentences.
    """
    sure, right = float(test.confidence.mean()), float(test.correct.mean())
    verb = "and" if sure > right else "but"
    return diagnosis.finding(
        f"On test data the model is {100 * sure:.1f} % sure on average {verb} right in {100 * right:.1f} %.",
        severity,
        p_value=p_value,
        evidence=(
            Evidence(
                name="confidence minus accuracy (test)",
                value=test.excess,
                interval=test.interval,
                percent=True,
            ),
            Evidence(
                name="calibration error (test)",
                value=test.error,
                interval=test.error_interval,
                percent=True,
            ),
            Evidence(name="best temperature (test)", value=test.temperature),
            Evidence(name="best temperature (training)", value=train.temperature),
            Evidence(name="loss saved by it (test)", value=test.gain, percent=True),
        ),
        sentences=(
            f"Logits divided by {test.temperature:.3g} lower the test loss by {100 * test.gain:.0f} % and "
            "change no prediction.",
            *more,
        ),
        advice=(
            Advice(
                text="Divide the logits by the temperature, before softmax or sigmoid.",
                code=CODE.format(temperature=test.temperature),
            ),
        ),
        charts=(reliability(test, "How often the model is right (test data)"),),
    )


def scaled(subject: Subject, factor: float) -> Subject:
    """Return a subject whose logits are multiplied by a constant.

    Args:
        subject: The subject, whose data are kept.
        factor: The constant.
    """
    return Subject(
        ScaledOutputs(subject.model, factor).eval(),
        subject.loss,
        subject.train,
        subject.test,
        task=subject.task,
        name=subject.name,
        classes=subject.classes,
        history=subject.history,
    )


def noisy_inputs(recipe: Recipe, noise: float, seed: int) -> Recipe:
    """Return a recipe with Gaussian noise on the inputs of both splits, which makes it harder.

    Args:
        recipe: With tuples of tensors as data.
        noise: The noise, as a multiple of the inputs' standard deviation.
        seed: Seed of the noise.
    """
    if not noise:
        return recipe
    random = torch.Generator().manual_seed(seed)
    size = noise * recipe.train[0].std()
    splits: dict[str, Any] = {
        name: (inputs + size * torch.randn(inputs.shape, generator=random), targets)
        for name, (inputs, targets) in (("train", recipe.train), ("test", recipe.test))
    }
    return dataclasses.replace(recipe, **splits)
