"""Training that went on after the model was at its best."""

import math

from torch import nn

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Interval,
    Mark,
    Recipe,
    Results,
    Subject,
    normal_tail,
)
from mindgap.core.diagnosis import Severity
from mindgap.diagnoses.confidence.over_confidence import noisy_inputs
from mindgap.ops.evidence.curves import baseline_loss, loss_chart, turning_point
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.training.fit import fit

# The loss of a healthy net on unseen data often rises by a few percent at the end.
NOTED, MUCH = 0.1, 0.25
MATTERS = 0.02  # of the loss of a constant output: tiny losses double and harm nobody
# Two points of error, as in the verdict: less than that another seed moves it.
NOTABLE_GAP = 0.02
WIDTH, NOISE, EPOCHS, RATE = 256, 1.5, 250, 5e-3  # of what is planted


class LateOverFitting(Diagnosis):
    r"""Look for a loss on unseen data that rose while the training loss fell.

    Formula: $\frac{L'_T - \min_t L'_t}{\min_t L'_t}$ with $L'_t$ the loss on validation or test data
    after epoch $t$

    Reading: The model was better some epochs ago, as far as its loss goes. What it learned since
    then is specific to the training samples. Stop there, or regularize.

    Assumes: Losses were recorded every few epochs. The standard error is that of the last test loss:
    losses of the same samples at two epochs differ less than those of other samples, so the p-value
    is rather too large.

    >>> import torch
    >>> x = torch.linspace(-1, 1, 8)[:, None]
    >>> rows = tuple({"train_loss": 3.0 - k, "test_loss": 1 + (k - 1) ** 2} for k in range(3))
    >>> subject = Subject(torch.nn.Linear(1, 1), "mse", (x, x), (x, x), history=rows)
    >>> LateOverFitting()(subject).sentence
    'The model was best after epoch 2: the test loss has risen by 100 % since.'
    """

    stage = "training run"
    symptom = "late over-fitting"
    explains = frozenset({"noise-sensitivity", "over-confidence", "over-fitting"})
    needs = frozenset({"history", "test"})
    cites = ("prechelt1998early",)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Find where the loss on unseen data turned."""
        turn = turning_point(subject.history)
        if turn is None or turn.last < (1 + NOTED) * turn.lowest:
            return None
        rise = turn.last - turn.lowest
        if rise < MATTERS * baseline_loss(subject):
            return None
        losses = subject.losses("test").double()
        error = float(losses.std()) / math.sqrt(len(losses))
        half = 1.96 * error
        last = int(subject.history[-1].get("epoch", len(subject.history)))
        share = rise / max(turn.lowest, 1e-300)
        return self.finding(
            f"The model was best after epoch {turn.epoch}: the {turn.which} loss has risen by "
            f"{100 * share:.0f} % since.",
            _severity(subject, share),
            p_value=normal_tail(rise / error) if error > 0 else 1.0,
            evidence=(
                Evidence(
                    name=f"rise of the {turn.which} loss",
                    value=rise,
                    interval=Interval(low=rise - half, high=rise + half),
                ),
                Evidence(name=f"lowest {turn.which} loss", value=turn.lowest),
                Evidence(name=f"last {turn.which} loss", value=turn.last),
            ),
            sentences=(
                f"In the {last - turn.epoch} epochs since, only the training loss went on to fall.",
            ),
            advice=(
                Advice(
                    text=f"Stop after about {turn.epoch} epochs, chosen by a validation loss.",
                    remedy="early-stopping",
                    code="fit(recipe, [EarlyStopping()])",
                ),
            ),
            charts=(
                loss_chart(
                    subject.history,
                    "Losses over the epochs",
                    [Mark(name="best", x=float(turn.epoch))],
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train a wide net for long on a tenth of the data, with noise; on more at less strength."""
        inputs, targets = recipe.train
        kept = max(32, round(len(inputs) * 0.1 / max(strength, 0.1)))
        few = recipe.replace(
            train=(inputs[:kept], targets[:kept]),
            epochs=EPOCHS,
            batch_size=16,
            learning_rate=max(recipe.learning_rate, RATE),
        )
        wide = with_layer(noisy_inputs(few, NOISE, seed), lambda _: nn.Identity(), width=WIDTH)
        return fit(wide, seed=seed).subject()


def _severity(subject: Subject, share: float) -> Severity:
    gap = subject.mean_error("test") - subject.mean_error("train")
    if subject.task == "regression":
        gap /= max(float(subject.targets("train").double().var()), 1e-300)
    if share > MUCH and gap > NOTABLE_GAP:
        return "wrong"
    return "suspect" if share > MUCH else "note"
