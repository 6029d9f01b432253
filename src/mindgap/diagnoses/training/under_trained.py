"""Training that ended while the loss was still falling."""

from mindgap.core import Advice, Bar, Diagnosis, Evidence, Finding, Recipe, Results, Series, Subject
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.fit import Fit, broadcast_advice
from mindgap.training.fit import fit
from mindgap.training.rival import attainable
from mindgap.training.short_run import STEPS, ShortRun, short_run

# Of 60 trained nets, those stopped after two epochs closed 36 to 107 % of the difference to what is
# attainable within the short run, those with two or three hidden units at most 23 %.
CLOSED = 0.3
# Where that leaves it open, five times as many steps are taken. Of 44 nets of two or three hidden
# units none closed more than 45 %, of 34 that were stopped early all but three closed 60 % and more;
# the three lost nothing any more, and are rightly called small.
LONGER, CLOSED_LATER = 5, 0.5
FALL = 0.05  # of the loss, below which longer training is not worth its time
# The falling rate of the short run alone lowers the loss of a healthy net that was trained at a
# constant rate: by up to 13 % where its training error is above ERROR (91 nets), and more below it.
STILL_FALLING, FALLING_FAST = 0.2, 0.3
FEWEST = 25  # held-out training samples, of a hundred: fewer say nothing about learning
SURE = 1e-4  # p-value of a fall: enough after a correction for all diagnoses
ERROR = 0.05  # share of wrong samples, or of the variance of the targets


class UnderTrained(Diagnosis):
    r"""Look for training that ended too early: a few more steps lower the loss much.

    A copy is trained for 200 steps with a rate that falls to zero, or for 1,000 where 200 leave it
    open. Its loss is measured on training samples that these steps do not use, and on test samples.

    Formula: $1 - \frac{\sum_i \ell(f'(x_i), y_i)}{\sum_i \ell(f(x_i), y_i)}$ with $f'$ after 200 steps

    Reading: Sure and large: the model can do better as it is, so train it longer before anything
    else is changed. It is sure if the model also does worse on its training data than a reference
    predictor does on samples that it has not seen.

    Assumes: The model can be trained by gradients. A model that needs much larger or smaller steps
    than Adam's usual ones may go unnoticed.

    >>> from mindgap.studies.diagnoses.healthy import healthy_recipe
    >>> finding = UnderTrained()(UnderTrained.plant(healthy_recipe("table")))
    >>> finding.severity, finding.sentence.split(":")[0]
    ('wrong', 'Training ended too early')
    """

    stage = "fit"
    symptom = "under-fitting"
    explains = frozenset(
        {
            "ignored-class",
            "over-confidence",
            "over-fitting",
            "rare-class",
            "too-small",
            "under-confidence",
        }
    )
    needs = frozenset({"test"})
    cites = ("goodfellow2016deep",)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Train a copy a little longer and compare."""
        found = attainable(subject)
        run = deciding_run(subject, found)
        severity = _severity(found, run) if len(run.places) >= FEWEST else None
        if severity is None:
            return None
        fall = smaller_fall(run)
        return self.finding(
            f"Training ended too early: {run.steps} more steps lower the training loss by "
            f"{100 * run.fall:.0f} % and the test loss by {100 * run.test_fall:.0f} %.",
            severity,
            p_value=run.p_value,
            evidence=fit_evidence(found, run),
            sentences=(
                f"The share of the loss that training longer saves is at least {100 * fall:.0f} % on "
                "samples that the extra steps did not use.",
                *fit_sentences(found, subject),
            ),
            advice=(
                *broadcast_advice(subject),
                Advice(
                    text="Train at least twice as long, with a learning rate that falls to zero.",
                    code="scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)",
                ),
            ),
            charts=(loss_bars(run),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Stop after some twenty steps, or after twice as many at half the strength."""
        steps = 20 / max(strength, 0.1)
        size = max(recipe.batch_size, round(len(recipe.train[0]) / steps))
        return fit(recipe.replace(epochs=1, batch_size=size), seed=seed).subject()


def _severity(found: Fit, run: ShortRun) -> Severity | None:
    fall = smaller_fall(run)
    if found.under:
        return "wrong" if still_learning(found, run) else None
    epoch = 1 - (1 - fall) ** (1 / min(run.epochs, 1.0))  # expensive models get less than an epoch
    if found.model < ERROR or epoch < STILL_FALLING or run.p_value > SURE:
        return None
    return "wrong" if epoch > FALLING_FAST else "suspect"


def deciding_run(subject: Subject, found: Fit) -> ShortRun:
    """Return the short run, or a longer one where it leaves open why the model fits badly.

    Args:
        subject: With a model that has gradients.
        found: Errors of the model and of the predictor that does better.
    """
    run = short_run(subject)
    decided = not found.under or run.epochs < 1 or still_learning(found, run)
    return run if decided else short_run(subject, times=LONGER)


def still_learning(found: Fit, run: ShortRun) -> bool:
    """Tell whether more steps would bring a model that fits badly to what is attainable.

    A run that is shorter than an epoch, as expensive models get it, cannot go far. There a fall counts
    that would be large after a whole epoch, if it is sure.

    Args:
        found: Errors of the model and of the predictor that does better.
        run: The short run.
    """
    fall = smaller_fall(run)
    needed = CLOSED if run.steps <= STEPS else CLOSED_LATER
    if fall > FALL and closed(found, run) > needed:
        return True
    return run.epochs < 1 and run.p_value < SURE and fall / run.epochs > FALL


def smaller_fall(run: ShortRun) -> float:
    """Return the fall of the loss on training or test samples, whichever is smaller."""
    return min(run.fall, run.test_fall)


def closed(found: Fit, run: ShortRun) -> float:
    """Return which share of the difference to the attainable error the fall of the loss makes up.

    Args:
        found: Errors of the model and of the predictor that does better.
        run: The short run.
    """
    return smaller_fall(run) / max(1 - found.reference / max(found.model, 1e-300), 1e-300)


def fit_evidence(found: Fit, run: ShortRun) -> tuple[Evidence, ...]:
    """Return the errors and the falls of the losses as evidence."""
    return (
        Evidence(name="training error", value=found.model, percent=True),
        Evidence(name="error of a simple predictor", value=found.reference, percent=True),
        Evidence(name="fall of the training loss", value=run.fall, percent=True),
        Evidence(name="fall of the test loss", value=run.test_fall, percent=True),
    )


def fit_sentences(found: Fit, subject: Subject) -> tuple[str, ...]:
    """Tell the comparison with the better predictor, if there is one."""
    if not found.under:
        return ()
    unit = " of the targets' variance" if subject.task == "regression" else ""
    return (
        f"The training error is {100 * found.model:.1f} %{unit}; a simple predictor reaches "
        f"{100 * found.reference:.1f} % on samples that it has not seen.",
    )


def loss_bars(run: ShortRun) -> Bar:
    """Draw the losses before and after the short run."""
    names = ["training samples", "test samples"] if len(run.test_after) else ["training samples"]
    sides = {
        "now": (run.before, run.test_before),
        f"after {run.steps} more steps": (run.after, run.test_after),
    }
    return Bar(
        title="Loss before and after a little more training",
        y_label="loss",
        series=[
            Series(name=name, x=names, y=[float(part.mean()) for part in parts[: len(names)]])
            for name, parts in sides.items()
        ],
    )
