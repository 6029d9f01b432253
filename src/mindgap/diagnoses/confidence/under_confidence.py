"""Probabilities that promise less than the predictions hold."""

from mindgap.core import Diagnosis, Finding, Recipe, Results, Subject
from mindgap.core.diagnosis import Severity
from mindgap.diagnoses.confidence.over_confidence import (
    GAIN,
    HOT,
    calibrations,
    confidence_finding,
    scaled,
)
from mindgap.training.fit import fit

COLD = 1 / HOT
# Label smoothing of 0.1 asks for a confidence of 0.91 among ten classes, so nine points too little are
# there on purpose. More than that, on training and test data, is a wrong scale.
LACK = 0.1
NOTICED = 0.03  # below three points nobody notices


class UnderConfidence(Diagnosis):
    r"""Look for probabilities that are lower than the share of right predictions.

    Formula: $\frac{1}{n} \sum_i \left( 1[\hat y_i = y_i] - \max_k p_{ik} \right), \qquad T =
    \arg\min_T \sum_i -\ln \mathrm{softmax}(z_i / T)_{y_i} < \frac{2}{3}$

    Reading: A model that is sure of 70 % and right in 95 % hides what it knows: thresholds on its
    probabilities reject good predictions. Dividing the logits by the temperature repairs it and
    changes no prediction. Label smoothing and mixup lower the confidence on purpose.

    Assumes: The outputs are logits. The temperature is fitted on one half of the test data and judged
    on the other.

    >>> import torch
    >>> logits = torch.tensor([[0.5, 0.0], [0.0, 0.5]]).repeat(100, 1)
    >>> data = logits, torch.tensor([0, 1] * 95 + [1, 0] * 5)
    >>> subject = Subject(torch.nn.Identity(), "cross_entropy", data, data)
    >>> UnderConfidence()(subject).sentence
    'On test data the model is 62.2 % sure on average but right in 95.0 %.'
    """

    stage = "confidence"
    symptom = "under-confidence"
    needs = frozenset({"test"})
    cites = ("guo2017calibration", "kumar2019verified")

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare confidence with truth on test and training data."""
        test, train = calibrations(subject)
        lack = -test.excess
        if test.temperature > COLD or test.gain < GAIN or lack < NOTICED:
            return None
        whole = lack > LACK and train.temperature < COLD and -train.excess > LACK
        severity: Severity = "wrong" if whole else "note"
        return confidence_finding(
            self,
            test,
            train,
            severity,
            test.p_under,
            "Label smoothing, mixup or a strong penalty lower the confidence on purpose.",
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Multiply the logits by 0.3, or by 0.65 at half the strength."""
        return scaled(fit(recipe, seed=seed, evaluate_every=0).subject(), 1 - 0.7 * strength)
