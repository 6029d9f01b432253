"""Training whose loss exploded."""

import math

import torch

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Mark,
    Recipe,
    Results,
    Subject,
    option,
)
from mindgap.diagnoses.training.gradient_diagnosis import was_healthy
from mindgap.ops.evidence.curves import baseline_loss, loss_chart, training_losses
from mindgap.training.fit import fit

# A run that ends at twice the loss of a constant output, and at twice its own best, has lost what it
# had learned. Of 192 runs at rates from 1/3000 to 1000 times the best, seven did, all above it.
FACTOR = 2.0
GROWTH = 1e6  # of the learning rate over the planted run

CODE = """optimizer.param_groups[0]["lr"] /= 10
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # before optimizer.step()"""


class Diverged(Diagnosis):
    r"""Look for a training loss that exploded or became no number.

    Formula: $L_T > 2 \max(L_{const}, \min_t L_t)$, or $L_t \notin \mathbb{R}$ for some $t$

    Reading: The steps were so large that they destroyed what had been learned. What the model is
    now says nothing about the data. Everything else that is found follows from this. Where nothing
    had been learned, since the loss was never near that of a constant output, a gradient that
    explodes comes first, unless it was healthy in the initial network.

    Assumes: The curves of this run were recorded, or ``stopped`` says why it ended.

    >>> x = torch.linspace(-1, 1, 8)[:, None]
    >>> rows = tuple({"train_loss": loss} for loss in (1.0, 0.5, 40.0))
    >>> subject = Subject(torch.nn.Linear(1, 1), "mse", (x, x), history=rows)
    >>> Diverged()(subject).sentence
    'Training diverged: the loss ended at 40, a constant output has 0.429.'
    """

    stage = "training run"
    symptom = "divergence"
    exact = True
    explains = frozenset(
        {
            "constant-predictor",
            "dead-units",
            "exploding-gradients",
            "exploding-weights",
            "gradient-masking",
            "ignored-class",
            "late-over-fitting",
            "learning-rate-too-high",
            "learning-rate-too-low",
            "noise-sensitivity",
            "oscillating-loss",
            "over-confidence",
            "over-fitting",
            "rank-collapse",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )
    cites = ("goodfellow2016deep", "pascanu2013difficulty")

    stopped: str = option("", help="why training ended early, as Fitted.stopped says it")

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Look at why training stopped, at losses that are no numbers, and at the last loss."""
        rows = subject.history
        _, losses = training_losses(rows)
        broken = [int(row.get("epoch", k + 1)) for k, row in enumerate(rows) if not _finite(row)]
        if self.stopped.startswith("diverged"):
            return self._found(subject, f"Training stopped: it {self.stopped}.", losses)
        if broken:
            sentence = f"Training diverged: losses of epoch {broken[0]} are not finite numbers."
            return self._found(subject, sentence, losses)
        if len(losses) < 2:
            return None
        constant = baseline_loss(subject)
        if not losses[-1] > FACTOR * max(constant, min(losses)) > 0:
            return None
        return self._found(
            subject,
            f"Training diverged: the loss ended at {losses[-1]:.3g}, a constant output has "
            f"{constant:.3g}.",
            losses,
        )

    def _found(self, subject: Subject, sentence: str, losses: list[float]) -> Finding:
        places, _ = training_losses(subject.history)
        lowest = min(losses, default=math.nan)
        # A loss that never was near that of a constant output cannot have been learned and lost.
        hopeless = lowest > FACTOR * baseline_loss(subject) and not was_healthy(
            subject, "exploding"
        )
        marks = [Mark(name="lowest", x=places[losses.index(lowest)])] if losses else []
        numbers = {"last training loss": losses[-1], "lowest": lowest} if losses else {}
        return self.finding(
            sentence,
            evidence=tuple(Evidence(name=name, value=value) for name, value in numbers.items()),
            explained_by="exploding-gradients" if hopeless else "",
            advice=(
                Advice(
                    text="Retrain with a learning rate ten times smaller and clipped gradients.",
                    code=CODE,
                ),
            ),
            charts=(loss_chart(subject.history, "Losses until the run ended", marks),)
            if losses
            else (),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Let the learning rate grow a million-fold over the run."""
        growth = (GROWTH**strength) ** (1 / max(recipe.epochs - 1, 1))

        def schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
            return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: growth**epoch)

        return fit(recipe.replace(schedule=schedule), seed=seed).subject()


def _finite(row: object) -> bool:
    assert isinstance(row, dict)
    return all(math.isfinite(value) for name, value in row.items() if name.endswith("loss"))
