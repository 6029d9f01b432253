"""Steps so short that training hardly moved."""

import math

from mindgap.core import Advice, Evidence, Finding, Recipe, Results, Subject
from mindgap.diagnoses.training.curve_diagnosis import CurveDiagnosis
from mindgap.ops.evidence.curves import course, loss_chart, speed
from mindgap.training.fit import fit
from mindgap.training.rival import attainable
from mindgap.training.short_run import short_run

UPS = 0.1  # a run of short steps falls in nearly all epochs
FEWEST = 3  # epochs from which a speed can be told
# Of 42 runs at a tenth of the best rate or less that fitted badly, 40 were 2.9 to 240 times slower
# than a short run, and two 1.5 times; runs at the best rate that were stopped early were faster.
SLOWER = 2.5
FALL = 0.05  # of the loss, that faster steps must save


class LearningRateTooLow(CurveDiagnosis):
    r"""Look for a loss that fell steadily but far more slowly than larger steps make it fall.

    Formula: $\ln \frac{L}{L_{+200}} > 2.5 \ln \frac{L_{t-e}}{L_t}$, where $e$ epochs see as many
    samples as 200 further steps of Adam at 0.003

    Reading: The model fits badly, its loss still falls, and steps of the usual length lower it
    several times faster than its own last epochs did. Raise the learning rate before training
    longer.

    Assumes: The curves were recorded, over at least three epochs. A rate that a schedule had lowered
    to zero at the end looks the same.

    >>> from mindgap.studies.diagnoses.healthy import healthy_recipe
    >>> finding = LearningRateTooLow()(LearningRateTooLow.plant(healthy_recipe("table")))
    >>> finding.severity, finding.sentence.split(":")[0]
    ('wrong', 'The learning rate was too low')
    """

    stage = "training run"
    symptom = "under-fitting"
    explains = frozenset(
        {
            "constant-predictor",
            "ignored-class",
            "over-confidence",
            "over-fitting",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )
    needs = frozenset({"history", "test"})
    cites = ("smith2017cyclical", "goodfellow2016deep")

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare the speed of the last epochs with that of a short run."""
        found = course(subject.history)
        if found is None or found.epochs < FEWEST or found.ups > UPS:
            return None
        quality = attainable(subject)
        if not quality.under:
            return None
        run = short_run(subject)
        own = speed(subject.history, run.epochs)
        fall = min(run.fall, run.test_fall)
        if own is None or fall < FALL or -math.log(1 - fall) < SLOWER * max(own, 0.0):
            return None
        faster = -math.log(1 - fall) / max(own, 1e-3)
        lost = 1 - math.exp(-max(own, 0.0))
        return self.finding(
            f"The learning rate was too low: {run.steps} larger steps lower the loss by {100 * fall:.0f} %, "
            f"the run's own last epochs by {100 * lost:.1f} %.",
            p_value=max(quality.p_value, run.p_value),
            evidence=(
                Evidence(name="fall by larger steps", value=fall, percent=True),
                Evidence(name="fall by as many samples of the run", value=lost, percent=True),
                Evidence(name="training error", value=quality.model, percent=True),
                Evidence(name="error of a simple predictor", value=quality.reference, percent=True),
            ),
            sentences=(
                f"Both saw {run.epochs:.1f} times the training data. Per sample, larger steps are "
                f"{'at least ' if own < 1e-3 else ''}{faster:.0f} times as fast.",
            ),
            advice=(
                Advice(
                    text="Retrain with ten times the learning rate.",
                    code='optimizer.param_groups[0]["lr"] *= 10',
                ),
            ),
            charts=(loss_chart(subject.history, "A loss that falls slowly"),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train at a hundredth of the rate, or at a thirtieth at half the strength."""
        rate = recipe.learning_rate * 0.01 * 10 ** (1 - strength)
        return fit(recipe.replace(learning_rate=rate), seed=seed).subject()
