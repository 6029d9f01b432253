"""A gap between training and test error that nothing else explains."""

import math

from torch import nn

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    Interval,
    Recipe,
    Results,
    Series,
    Subject,
    binomial_upper_tail,
    normal_tail,
)
from mindgap.core.diagnosis import Severity
from mindgap.diagnoses.confidence.over_confidence import noisy_inputs
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.ops.evidence.reference import reference
from mindgap.training.fit import fit

# The verdict's: two points are what another seed moves, half a point what one test sample does, and
# from five points on the model in use will feel unlike the model in training.
NOTABLE_GAP, CLEAR_GAP, SERIOUS_GAP = 0.02, 0.005, 0.05
SHARE = 0.3  # of the test error; a smaller share of it would stay if the gap were closed
# A net with no training error has a gap as large as its test error, and that may be all the data
# allow: healthy nets on 1,000 to 2,000 samples had gaps of up to 6 points. If a predictor without any
# training does better on the test data, or the gap is this large, it is not.
LARGE_GAP = 0.15
BETTER = 0.01  # p-value of the reference's lead on the test data


class OverFitting(Diagnosis):
    r"""Look for a test error far above the training error, when nothing else explains it.

    Formula: $\frac{1}{n'}\sum_i e(f(x'_i), y'_i) - \frac{1}{n}\sum_i e(f(x_i), y_i)$, in a regression
    divided by the variance of the targets

    Reading: The model has learned its training samples and not what they have in common. It is sure
    to fail if a simple reference predictor does better on the test data. It comes last: shifted
    inputs, wrong labels and bad evaluation make the same gap, so look at what is listed before it.

    Assumes: Test samples that were not used for training or choices.

    >>> import torch
    >>> x = torch.eye(200)
    >>> lookup = nn.Linear(200, 2)
    >>> labels = torch.arange(200) % 2
    >>> with torch.no_grad():
    ...     _ = lookup.weight.copy_(torch.stack([1.0 - labels, labels + 0.0]))
    >>> test = x.roll(1, 1), labels
    >>> OverFitting()(Subject(lookup, "cross_entropy", (x, labels), test)).sentence
    'The model over-fits: its error is 0.0 % on training data and 100.0 % on test data.'
    """

    stage = "over-fitting"
    symptom = "over-fitting"
    explains = frozenset({"noise-sensitivity"})
    needs = frozenset({"test"})
    cites = ("kawaguchi2017generalization",)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare training and test error, and the test error with the reference's."""
        unit = _unit(subject)
        train, test = (subject.errors(which).double().cpu() for which in ("train", "test"))
        train, test = train / unit, test / unit
        low, high = float(train.mean()), float(test.mean())
        gap = high - low
        if gap < NOTABLE_GAP or gap < SHARE * high:
            return None
        half = 1.96 * math.sqrt(float(test.var()) / len(test)) if len(test) > 1 else math.inf
        other = float(reference(subject).errors("test").double().mean()) / unit
        word = " of the targets' variance" if subject.task == "regression" else ""
        return self.finding(
            f"The model over-fits: its error is {100 * low:.1f} %{word} on training data and {100 * high:.1f} % on "
            "test data.",
            _severity(subject, gap, high - other),
            p_value=_p_value(subject),
            evidence=(
                Evidence(
                    name="gap",
                    value=gap,
                    interval=Interval(low=gap - half, high=gap + half),
                    percent=True,
                ),
                Evidence(name="test error of a simple predictor", value=other, percent=True),
            ),
            sentences=(
                f"A simple predictor reaches {100 * other:.1f} % on the test data"
                + (", so the data allow a better model." if other < high else "."),
            ),
            advice=(
                Advice(text="Collect more training data, or augment those you have."),
                Advice(
                    text="Penalize large weights: start with 0.01 and triple it while the "
                    "validation error falls.",
                    remedy="weight-decay",
                    code="optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)",
                ),
            ),
            charts=(
                Bar(
                    title="Errors",
                    y_label="error",
                    percent=True,
                    series=[
                        Series(
                            x=["training", "test", "simple predictor (test)"], y=[low, high, other]
                        )
                    ],
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train a wide net on a tenth of the data, with noise; curves are not recorded."""
        inputs, targets = recipe.train
        kept = max(32, round(len(inputs) * 0.1 / max(strength, 0.1)))
        few = recipe.replace(train=(inputs[:kept], targets[:kept]), epochs=150, batch_size=16)
        wide = with_layer(noisy_inputs(few, 1.5, seed), lambda _: nn.Identity(), width=256)
        return fit(wide, seed=seed, evaluate_every=0).subject()


def _unit(subject: Subject) -> float:
    if subject.task != "regression":
        return 1.0
    return max(float(subject.targets("train").double().var(0, correction=0).mean()), 1e-300)


def _severity(subject: Subject, gap: float, lead: float) -> Severity:
    if gap < SERIOUS_GAP:
        return "note"
    beaten = lead > NOTABLE_GAP and _beaten(subject) < BETTER
    return "wrong" if beaten or gap > LARGE_GAP else "suspect"


def _beaten(subject: Subject) -> float:
    """How likely the reference leads so far on the test data by chance, if it is no better."""
    known = reference(subject).errors("test").double()
    ours = subject.errors("test").double().cpu()
    if len(ours) != len(known):
        return 1.0
    lead = ours - known
    error = float(lead.std()) / math.sqrt(max(len(lead), 1))
    return normal_tail(float(lead.mean()) / error) if error > 0 else 1.0


def _p_value(subject: Subject) -> float:
    """How likely the test error is so high by chance, if it is the training error."""
    train, test = (subject.errors(which).double().cpu() for which in ("train", "test"))
    if subject.task == "classification":
        rate = min(float(train.mean()) + CLEAR_GAP, 1.0)
        return binomial_upper_tail(round(float(test.sum())), len(test), rate)
    error = math.sqrt(float(test.var()) / len(test) + float(train.var()) / len(train))
    return normal_tail(float(test.mean() - train.mean()) / error) if error > 0 else 1.0
