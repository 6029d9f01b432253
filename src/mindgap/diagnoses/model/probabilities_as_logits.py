"""Outputs of another form than the loss takes: probabilities as logits, or logits as logarithms."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Histogram,
    InputError,
    Recipe,
    Results,
    Subject,
    align,
)
from mindgap.ops.evidence.passes import some_places
from mindgap.training.fit import fit

SAMPLES = 2_000
ROUNDING = 1e-3  # of a sum of probabilities in half precision
REACHED = 0.9  # what an output comes to after a sigmoid, if the model has learned anything


class ProbabilitiesAsLogits(Diagnosis):
    r"""Look for probabilities that the loss takes for logits, and logits taken for logarithms.

    Formula: $f(x) \in [0, 1]^K, \; \sum_k f_k(x) = 1 \;\text{for all}\; x, \;\text{while}\;
    \ell(f(x), y) = -\ln \frac{e^{f_y(x)}}{\sum_k e^{f_k(x)}}$

    Reading: The loss applies a softmax (or sigmoid) that the model has applied already. It can
    then not fall below a floor, its gradients are small, and confidence is far too low. Raw
    outputs given to a loss of log-probabilities can make it fall without limit.

    Assumes: Nothing. The loss is recognized by its values.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Softmax(1))
    >>> subject = Subject(net, "cross_entropy", (torch.randn(9, 2), torch.arange(9) % 3))
    >>> ProbabilitiesAsLogits()(subject).sentence
    'The model ends with a softmax, and the loss applies another one.'
    """

    stage = "evaluation"
    symptom = "under-fitting"
    exact = True
    cites = ("goodfellow2016deep",)
    explains = frozenset(
        {
            "constant-predictor",
            "ignored-class",
            "learning-rate-too-low",
            "over-confidence",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare the form of the outputs with the form that the loss takes."""
        if subject.task == "regression":
            raise InputError(
                "Probabilities must belong to classes, got a regression. Choose another diagnosis."
            )
        places = some_places(subject, "train", SAMPLES)
        outputs = subject.outputs("train")[places].detach()
        targets = align(outputs, subject.targets("train")[places])
        losses = subject.losses("train")[places].detach()
        if subject.task == "multilabel":
            return self._sigmoid(outputs) if _doubled_sigmoid(outputs, targets, losses) else None
        if _in_unit(outputs) and _close(
            losses, F.cross_entropy(outputs, targets, reduction="none")
        ):
            sums = outputs.double().sum(1)
            if float((sums - 1).abs().max()) <= ROUNDING:
                return self._softmax(
                    outputs,
                    "The model ends with a softmax, and the loss applies another one.",
                    "softmax",
                )
            # Logits of a net that has hardly learned may lie there, too, but do not reach one.
            if float(outputs.max()) > REACHED:
                return self._softmax(
                    outputs,
                    "The loss takes logits, but all outputs lie between 0 and 1, as after a sigmoid.",
                    "sigmoid",
                )
        return self._logits(outputs) if _unnormalized(outputs, targets, losses) else None

    def _softmax(self, outputs: Tensor, headline: str, layer: str) -> Finding:
        floor = float((1 + (outputs.shape[1] - 1) * torch.tensor(-1.0).exp()).log())
        return self.finding(
            headline,
            evidence=(
                Evidence(name="largest output", value=float(outputs.max())),
                Evidence(name="sum of a sample's outputs", value=float(outputs.sum(1).mean())),
                Evidence(name="lowest loss that is possible", value=floor),
            ),
            sentences=(
                f"Even perfect predictions keep a loss of {floor:.2f}, and gradients are small.",
                "Confidence cannot be read from these outputs: the model seems unsure of all.",
            ),
            advice=(
                Advice(
                    text=f"Remove the {layer} from the model and retrain: the loss wants logits.",
                    code="loss = torch.nn.functional.cross_entropy(logits, labels)",
                ),
                *((_as_it_is(),) if layer == "softmax" else ()),
            ),
            charts=(_chart(outputs),),
        )

    def _sigmoid(self, outputs: Tensor) -> Finding:
        return self.finding(
            "The model ends with a sigmoid, and the loss applies another one.",
            evidence=(
                Evidence(name="smallest output", value=float(outputs.min())),
                Evidence(name="largest output", value=float(outputs.max())),
            ),
            sentences=(
                "To the loss every output means a probability between 50 % and 73 %.",
                "Labels are predicted where the output is above 0, which is always.",
            ),
            advice=(
                Advice(
                    text="Remove the sigmoid from the model and retrain: the loss wants logits.",
                    code="loss = torch.nn.functional.binary_cross_entropy_with_logits("
                    "logits, labels)",
                ),
            ),
            charts=(_chart(outputs),),
        )

    def _logits(self, outputs: Tensor) -> Finding:
        total = float(outputs.double().logsumexp(1).exp().clamp_max(1e30).mean())
        return self.finding(
            "The loss takes log-probabilities, but the model gives raw outputs.",
            evidence=(
                Evidence(name="sum of a sample's probabilities, which must be 1", value=total),
            ),
            sentences=("Such a loss can fall without limit while the predictions stay the same.",),
            advice=(
                Advice(
                    text="Give the model a log-softmax, or use the loss that applies it.",
                    code="loss = torch.nn.functional.cross_entropy(outputs, labels)",
                ),
            ),
            charts=(_chart(outputs),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:  # noqa: ARG003
        """End the model with a softmax that the loss applies as well."""
        made = recipe.model
        return fit(
            recipe.replace(model=lambda: nn.Sequential(made(), nn.Softmax(1))), seed=seed
        ).subject()


def _close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-3, atol=1e-5)


def _as_it_is() -> Advice:
    return Advice(
        text="To evaluate this model as it is, give the loss of log-probabilities.",
        code="loss = torch.nn.functional.nll_loss(outputs.log(), labels)",
    )


def _in_unit(outputs: Tensor) -> bool:
    return float(outputs.min()) >= -ROUNDING and float(outputs.max()) <= 1 + ROUNDING


def _doubled_sigmoid(outputs: Tensor, targets: Tensor, losses: Tensor) -> bool:
    if float(outputs.min()) < 0 or float(outputs.max()) > 1:
        return False
    again = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return _close(losses, again.flatten(1).mean(1) if again.ndim > 1 else again)


def _unnormalized(outputs: Tensor, targets: Tensor, losses: Tensor) -> bool:
    raw = -outputs.gather(1, targets[:, None]).squeeze(1)
    return _close(losses, raw) and float(outputs.double().logsumexp(1).abs().max()) > ROUNDING


def _chart(outputs: Tensor) -> Histogram:
    return Histogram.of(
        {"outputs": outputs.flatten()},
        title="Outputs of the model on training samples",
        x_label="output",
        clip_low=False,
    )
