"""Steps so long that training could not settle."""

from mindgap.core import Advice, Evidence, Finding, InputError, Recipe, Results, Subject
from mindgap.diagnoses.training.curve_diagnosis import CurveDiagnosis
from mindgap.diagnoses.training.oscillating_loss import unlucky_end
from mindgap.diagnoses.training.under_trained import ERROR, LONGER, SURE
from mindgap.ops.evidence.curves import (
    Course,
    baseline_loss,
    course,
    loss_chart,
    series,
    training_losses,
)
from mindgap.training.fit import fit
from mindgap.training.rival import attainable
from mindgap.training.short_run import ShortRun, short_run

# What 192 runs at rates from a hundredth to a thousand times the best one show: below the best rate
# the loss falls in all epochs; at ten times the best rate and above it rises in a quarter of them or
# more, or rose above its first value, or fell back.
UPS, WILD = 0.2, 0.3
SPIKE = 1.3  # a running loss so far above that of a constant output, or of the first epoch
FELL_BACK = 1.25  # last loss, as a multiple of the lowest
# Share of the loss by which 200 steps from the start must do better than the whole run: more where
# the model does not lose against simple predictors.
BETTER, MUCH_BETTER = 0.05, 0.2


class LearningRateTooHigh(CurveDiagnosis):
    r"""Look for a run that a short one with smaller steps beats, and whose loss did not fall.

    Formula: $\frac{1}{n} \sum_i \ell(f_{200}(x_i), y_i) < 0.95 \cdot \frac{1}{n} \sum_i \ell(f(x_i),
    y_i)$ with $f_{200}$ after 200 (or 1,000) small steps from the initial weights

    Reading: The model fits badly, its loss rose or stood still, and a few hundred steps of Adam from
    its initial weights do better than the whole run. So neither the model nor the data are to blame,
    but the steps.

    Assumes: The curves and the initial weights were recorded. Without the initial weights it is a
    suspicion. With them, gradients and units that were healthy in the initial network and are not
    any more are explained by it.

    >>> from mindgap.studies.diagnoses.healthy import healthy_recipe
    >>> finding = LearningRateTooHigh()(LearningRateTooHigh.plant(healthy_recipe("table")))
    >>> finding.severity, finding.sentence.split(":")[0]
    ('wrong', 'The learning rate was too high')
    """

    stage = "training run"
    symptom = "divergence"
    explains = frozenset(
        {
            "constant-predictor",
            "dead-units",
            "exploding-weights",
            "gradient-masking",
            "ignored-class",
            "noise-sensitivity",
            "over-confidence",
            "rank-collapse",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )
    needs = frozenset({"history", "test"})
    cites = ("smith2017cyclical", "goodfellow2016deep")

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare the run with a short one from the same start."""
        found = course(subject.history)
        if found is None or not _restless(subject, found):
            return None
        if unlucky_end(subject, found):
            return None  # which another diagnosis names
        quality = attainable(subject)
        if not (quality.under or quality.model > ERROR):
            return None
        run, start = _better_run(subject, found, BETTER if quality.under else MUCH_BETTER)
        if run is None and (subject.initial is not None or not quality.under):
            return None
        _, losses = training_losses(subject.history)
        better = (
            ()
            if run is None
            else (
                Evidence(
                    name=f"loss saved by {run.steps} small steps {start}",
                    value=run.fall,
                    percent=True,
                ),
            )
        )
        told = (
            f"The learning rate was too high: after {found.epochs} epochs the loss is "
            f"{found.last:.3g}"
        )
        return self.finding(
            f"{told}, but {run.steps} smaller steps {start} reach {float(run.after.mean()):.3g}."
            if run is not None
            else f"{told}, and it went up and down.",
            "suspect" if run is None else "wrong",
            p_value=quality.p_value if run is None else run.p_value,
            evidence=(
                *better,
                Evidence(name="training error", value=quality.model, percent=True),
                Evidence(name="error of a simple predictor", value=quality.reference, percent=True),
                Evidence(name="late epochs in which the loss rose", value=found.ups, percent=True),
            ),
            sentences=(
                f"The training loss was {losses[0]:.3g} after the first epoch, {min(losses):.3g} at "
                f"best and {losses[-1]:.3g} at the end.",
            ),
            advice=(
                Advice(
                    text="Retrain with a tenth of the learning rate, and let it fall to zero.",
                    code='optimizer.param_groups[0]["lr"] /= 10\n'
                    "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)",
                ),
            ),
            charts=(loss_chart(subject.history, "A loss that did not settle"),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train at a rate that is a hundred times too high, or thirty times at less strength."""
        rate = recipe.learning_rate * 100 * 3 ** (2 * strength - 2)
        return fit(recipe.replace(learning_rate=rate), seed=seed).subject()


def _better_run(subject: Subject, found: Course, saved: float) -> tuple[ShortRun | None, str]:
    """Return a run of small steps that does better than the whole run, and where it starts."""
    try:
        better = list[ShortRun]()
        for times in (1, LONGER) if subject.initial is not None else ():
            run = short_run(subject, "initial", times)
            better += [run] if min(run.fall, run.test_fall) > saved else []
            if better and better[-1].p_value < SURE:
                break
        if better:
            return min(better, key=lambda run: run.p_value), "from the start"
        run = short_run(subject)
    except (InputError, RuntimeError):  # no gradients, or other parts than those of the model now
        return None, ""
    # Small steps from here that save much, where the run's own steps went up and down, show it too.
    much = found.ups > WILD and min(run.fall, run.test_fall) > MUCH_BETTER
    return (run, "from here") if much else (None, "")


def _restless(subject: Subject, found: Course) -> bool:
    """Tell whether the loss rose often, fell back from its best, or shot up at the start."""
    if found.ups >= UPS or found.last > FELL_BACK * found.lowest:
        return True
    _, running = series(subject.history, "running_loss")
    start = baseline_loss(subject) if subject.task != "regression" else None
    usual = max(start or 0.0, running[0] if running and start is None else 0.0)
    return bool(running) and max(running) > SPIKE * usual > 0
