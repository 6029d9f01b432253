"""Test targets that belong to the sample before, or after."""

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    InputError,
    Line,
    Recipe,
    Results,
    Series,
    Subject,
)
from mindgap.ops.evidence.alignment import Lag, lag
from mindgap.training.fit import fit

# The p-value pays for all lags. What follows are effects, as shares of what the model reaches on
# the training data.
LEVEL = 1e-3
PEAK = 0.25  # that the lag must exceed its neighbors by: a smooth series has no such peak
SAME = 0.1  # a peak of that size at the same lag of the training data is how the model predicts
SHOWN = 8  # lags to either side in the chart


class LaggedTestLabels(Diagnosis):
    r"""Look for test targets that are moved by some places against the inputs.

    Formula: $\max_{l \ne 0} \frac{1}{n'} \sum_i 1[\hat{y}_i = y'_{i+l}]$, or the rank correlation in
    a regression

    Reading: If the predictions agree with the targets some rows further on, a row was lost or added
    in one of two files. The advice moves the targets back.

    Assumes: The model has learned its training targets. All lags are tried at once by a Fourier
    transform; a peak must exceed its neighbors, so that slow series do not look moved.

    >>> import torch
    >>> y = torch.randint(0, 4, (200,), generator=torch.Generator().manual_seed(0))
    >>> x = torch.eye(4)[y]
    >>> subject = Subject(torch.nn.Identity(), "cross_entropy", (x, y), (x, y.roll(1)))
    >>> LaggedTestLabels()(subject).sentence
    'The test targets come 1 row too late.'
    """

    cites = ("kaufman2012leakage",)
    stage = "test labels"
    voids = True
    symptom = "wrong test labels"
    needs = frozenset({"test"})
    explains = frozenset(
        {
            "shuffled-test-labels",
            "permuted-test-classes",
            "wrong-test-labels",
            "wrong-labels",
            "rare-class",
            "ignored-class",
            "shortcut",
            "over-fitting",
            "late-over-fitting",
            "over-confidence",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Move the targets by every number of places and compare them with the predictions."""
        if subject.task == "multilabel":
            raise InputError(
                "A lag is looked for in a classification or regression, got several labels per "
                "sample. Test one label at a time."
            )
        found = lag(subject, "test")
        return self._found(subject, found) if lagged(subject, found) else None

    def _found(self, subject: Subject, found: Lag) -> Finding:
        rows = f"{abs(found.best)} row{'' if abs(found.best) == 1 else 's'}"
        word = "accuracy" if subject.task == "classification" else "rank correlation"
        percent = subject.task == "classification"
        told = [f"{100 * x:.1f} %" if percent else f"{x:.2f}" for x in (found.then, found.now)]
        return self.finding(
            f"The test targets come {rows} too {'late' if found.best > 0 else 'early'}.",
            p_value=found.p_value,
            evidence=(
                Evidence(name=f"test {word} as given", value=found.now, percent=percent),
                Evidence(name=f"test {word} if moved", value=found.then, percent=percent),
            ),
            sentences=(
                f"Moved back by {rows}, the test {word} is {told[0]} instead of {told[1]}.",
                "A row was lost or added in the inputs or in the targets.",
            ),
            advice=(
                Advice(
                    text="Find the row that was lost, or move the targets back and check both ends.",
                    code=f"test_targets = test_targets.roll({-found.best}, 0)",
                ),
            ),
            charts=(_chart(found, word, percent),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Move the test targets by one row; with less strength only the last ones."""
        inputs, targets = recipe.test
        first = round((1 - strength) * len(targets))
        moved = targets.clone()
        moved[first:] = targets[first:].roll(1, 0)
        return fit(recipe.replace(test=(inputs, moved)), seed=seed).subject()


def lagged(subject: Subject, found: Lag) -> bool:
    """Whether targets are moved, and not only predicted late as in the training data.

    Args:
        subject: A classification or regression with test data.
        found: The lag of its test data.
    """
    known = lag(subject, "train")
    reached = known.now - known.usual
    peak = found.then - found.usual
    usual = float(known.agreement[[found.best % len(known.agreement)]]) - known.usual
    return (
        found.p_value < LEVEL
        and reached > PEAK
        and peak > PEAK * reached
        and usual < SAME * reached
    )


def _chart(found: Lag, word: str, percent: bool) -> Line:
    most = min(abs(found.best) + SHOWN, (len(found.agreement) - 1) // 2)
    lags = list(range(-most, most + 1))
    return Line(
        title=f"Test {word} if the targets are moved",
        x_label="rows",
        y_label=word,
        percent=percent,
        series=(Series(x=lags, y=[float(found.agreement[k]) for k in lags]),),
    )
