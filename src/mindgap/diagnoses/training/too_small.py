"""A model that cannot fit its training data, however long it is trained."""

from torch import nn

from mindgap.core import Advice, Diagnosis, Finding, InputError, Recipe, Results, Subject
from mindgap.diagnoses.training.under_trained import (
    FALL,
    FEWEST,
    closed,
    deciding_run,
    fit_evidence,
    loss_bars,
    smaller_fall,
    still_learning,
)
from mindgap.ops.evidence.fit import Fit, broadcast_advice
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.ops.models.parameters import count
from mindgap.training.fit import fit
from mindgap.training.rival import attainable
from mindgap.training.short_run import ShortRun


class TooSmall(Diagnosis):
    r"""Look for a model that cannot fit its training data, even if it is trained longer.

    Formula: $\frac{1}{n} \sum_i 1[f(x_i) \ne y_i] > \frac{1}{n} \sum_i 1[r_{-i}(x_i) \ne y_i] + 0.02$,
    and 1,000 more steps hardly lower the loss

    Reading: A simple predictor does better on samples that it has not seen than the model does on
    samples that it was trained on, and more steps do not help. The model lacks units, layers or the
    right form, or a penalty holds it back.

    Assumes: Inputs without a problem, which other diagnoses look for. A bottleneck, a strong penalty
    and saturated units look the same.

    >>> from mindgap.studies.diagnoses.healthy import healthy_recipe
    >>> finding = TooSmall()(TooSmall.plant(healthy_recipe("image").replace(epochs=60)))
    >>> finding.severity, finding.sentence.split(":")[0]
    ('wrong', 'The model is too small for its data')
    """

    stage = "fit"
    symptom = "under-fitting"
    explains = frozenset(
        {"gradient-masking", "ignored-class", "over-confidence", "rare-class", "under-confidence"}
    )
    needs = frozenset({"test"})
    cites = ("goodfellow2016deep",)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare with what is attainable, and train a copy a little longer."""
        found = attainable(subject)
        if not found.under:
            return None
        try:
            run = deciding_run(subject, found)
        except InputError:  # without gradients, or too large to be small
            return None
        fall = smaller_fall(run)
        if len(run.places) < FEWEST or still_learning(found, run):
            return None
        unit = " of the variance" if subject.task == "regression" else ""
        weights = sum(count(subject.model).values())
        free = sum(p.numel() for p in subject.model.parameters() if p.requires_grad)
        frozen = 0 < free < weights
        trained = f", {free:,} of which are trained" if frozen else ""
        thawed = Advice(
            text="Train the frozen weights as well, with a small learning rate.",
            code="model.requires_grad_(True)",
        )
        larger = Advice(
            text="Give the model more units or layers: double its width until the training error "
            "stops falling."
        )
        longer = Advice(text="Train longer as well: the loss still falls a little.")
        short = run.epochs < 1  # too little to tell a small model from one that was stopped early
        return self.finding(
            f"The model is too small {'or trained too briefly' if short else 'for its data'}: its "
            f"training error is {100 * found.model:.1f} %{unit}, a simple predictor's "
            f"{100 * found.reference:.1f} %.",
            p_value=found.p_value,
            evidence=fit_evidence(found, run),
            sentences=(
                f"It has {weights:,} weights{trained}. {run.steps} more steps {_told(found, run)}.",
            ),
            advice=(
                *broadcast_advice(subject),
                *((thawed,) if frozen else ()),
                larger,
                *((longer,) if short or fall > FALL else ()),
            ),
            charts=(loss_bars(run),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train a perceptron of two hidden units; three at half the strength."""
        width = max(1, round(4 - 2 * strength))
        small = with_layer(recipe, lambda _: nn.Identity(), width=width)
        return fit(small, seed=seed).subject()


def _told(found: Fit, run: ShortRun) -> str:
    fall = smaller_fall(run)
    if abs(fall) < 0.005:
        return "hardly change the loss"
    way = f", which is {100 * closed(found, run):.0f} % of the way" if fall > 0 else ""
    return f"{'lower' if fall > 0 else 'raise'} the loss by {100 * abs(fall):.0f} %{way}"
