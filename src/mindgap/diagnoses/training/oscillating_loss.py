"""A training loss that goes up and down instead of falling."""

import math
from collections.abc import Callable

import torch

from mindgap.core import Advice, Diagnosis, Evidence, Finding, Recipe, Results, Subject
from mindgap.ops.evidence.curves import Course, baseline_loss, course, describes, loss_chart
from mindgap.training.fit import fit
from mindgap.training.rival import attainable

# None of 116 runs at or below the best rate of their optimizer (Adam, SGD with momentum; batches of 32
# and 64; images, tables, sequences) passes the three limits together.
UPS = 0.3  # share of epochs after which the loss is higher than before
SWING = 0.25  # mean change from epoch to epoch, as a share of the mean loss
MATTERS = 0.02  # the same as a share of the loss of a constant output
FEWEST = 6  # epochs, of which the second half is looked at
# The best late loss, as a share of that of a constant output, that shows that the steps were not too
# long to learn at all; runs at a hundred times the best rate stayed above 0.28.
LEARNED = 0.25
MISSED = 0.5  # the best late loss, as a share of the last one, that shows bad luck at the end
LOST = (
    0.1  # of the loss of a constant output, by which the last loss is then above the best late one
)


class OscillatingLoss(Diagnosis):
    r"""Look for a training loss that goes up and down from epoch to epoch.

    Formula: $\frac{1}{T/2} \sum_{t > T/2} |L_t - L_{t-1}| > \frac{1}{4} \bar L$, and $L_t > L_{t-1}$
    in more than 30 % of these epochs

    Reading: The model is what the last epoch happened to leave. If an epoch shortly before was much
    better and the last one fits badly, that explains the failure. Let the learning rate fall, use
    larger batches, or average the weights.

    Assumes: The losses of at least six epochs were recorded on the training data.

    >>> x = torch.linspace(-1, 1, 8)[:, None]
    >>> rows = tuple({"train_loss": 0.4 + 0.3 * (-1) ** k} for k in range(8))
    >>> subject = Subject(torch.nn.Linear(1, 1), "mse", (x, x), history=rows)
    >>> OscillatingLoss()(subject).sentence
    'The training loss swings: it changes by 176 % of its mean from one epoch to the next.'
    """

    stage = "training run"
    symptom = "divergence"
    explains = frozenset(
        {
            "constant-predictor",
            "dead-units",
            "exploding-weights",
            "ignored-class",
            "learning-rate-too-high",
            "over-confidence",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )
    needs = frozenset({"history"})
    cites = ("goodfellow2016deep",)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Look at the swings of the second half of the run."""
        found = course(subject.history)
        if found is None or not swings(subject, found):
            return None
        bad = unlucky_end(subject, found)
        return self.finding(
            f"The training loss swings: it changes by {100 * found.swing:.0f} % of its mean from one epoch "
            "to the next.",
            "wrong" if bad else "note",
            p_value=attainable(subject).p_value if bad and attainable(subject).under else None,
            evidence=(
                Evidence(name="epochs in which it rose", value=found.ups, percent=True),
                Evidence(name="lowest late training loss", value=found.late_lowest),
                Evidence(name="last training loss", value=found.last),
            ),
            sentences=(
                f"The last loss is {found.last:.3g}; the lowest of the second half is "
                f"{found.late_lowest:.3g}.",
            ),
            advice=(
                Advice(
                    text="Let the learning rate fall to zero, or start with a third of it.",
                    code="scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)",
                ),
                Advice(text="Or average the weights of the last epochs (torch.optim.swa_utils)."),
            ),
            charts=(loss_chart(subject.history, "A loss that swings"),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Climb the loss in every third late epoch, at last so far that it ends near a constant."""
        epochs = 3 * max(recipe.epochs // 2, FEWEST)
        low, high = _LENGTHS
        for _ in range(_TRIES):
            length = math.sqrt(low * high)
            planted = recipe.replace(schedule=_climbing(length, epochs), epochs=epochs)
            subject = fit(planted, seed=seed).subject()
            wanted = _ENDS * strength * baseline_loss(subject)
            last = subject.history[-1]["train_loss"]
            if 1 / _NEAR < last / wanted < _NEAR:
                break
            low, high = (length, high) if last < wanted else (low, length)
        return subject


# Lengths of the steps up the loss, as shares of those down, between which that of the last epoch is
# looked for, and the length in other epochs; the last loss that it should lead to, as a share of a
# constant output's, and how near it is.
_LENGTHS, _SHORT, _TRIES, _ENDS, _NEAR = (0.05, 50.0), 0.2, 10, 0.7, 1.5


def _climbing(
    length: float, epochs: int
) -> Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LambdaLR]:
    def factor(epoch: int) -> float:
        if epoch < epochs // 2 or epoch % 3 != 2:
            return 1.0
        return -length if epoch == epochs - 1 else -_SHORT

    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def unlucky_end(subject: Subject, found: Course) -> bool:
    """Tell whether the loss swings and only the end of the run is to blame for a bad fit.

    It is not if even the best late epoch had learned little.

    Args:
        subject: With its curves.
        found: How the training loss moved.
    """
    if subject.test is None or not swings(subject, found) or not describes(subject):
        return False
    lost = found.last - found.late_lowest > LOST * baseline_loss(subject)
    return _had_learned(subject, found) and (lost or attainable(subject).under)


def _had_learned(subject: Subject, found: Course) -> bool:
    return found.late_lowest < min(MISSED * found.last, LEARNED * baseline_loss(subject))


def swings(subject: Subject, found: Course) -> bool:
    """Tell whether the loss of the second half went up and down by amounts that matter.

    Args:
        subject: Tells the loss of a constant output.
        found: How the training loss moved.
    """
    often = found.epochs >= FEWEST and found.ups >= UPS and found.swing > SWING
    if not often:
        return False
    moves = found.swing * 0.5 * (found.last + found.late_lowest)
    return moves > MATTERS * baseline_loss(subject)
