"""Gradients that grow without bound towards the first layers."""

from torch import nn

from mindgap.core import Advice, Finding, Recipe, Results, Subject
from mindgap.diagnoses.training.gradient_diagnosis import CODE, GradientDiagnosis, deep_subject

DEPTH, GAIN = 16, 5.0  # of the plant


class ExplodingGradients(GradientDiagnosis):
    r"""Look for layers, or steps of a sequence, where the gradient has grown out of bounds.

    Formula: $\lVert \delta_l \rVert > 10^4 \min_{k \ge l} \lVert \delta_k \rVert$ with
    $\delta_l = \partial L / \partial a_l$

    Reading: The function is so steep that the smallest step, or the smallest change of an input,
    changes everything. No learning rate suits all layers. In a model that fits its training data
    this is a note. In one that does not, it is the likely cause.

    Assumes: A model with gradients. The gradient is that of the trained model: one that recovered
    during training is not seen; a monitor sees it.

    >>> import torch
    >>> net = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(4)])
    >>> _ = torch.nn.init.eye_(net[2].weight).data.mul_(1e9)
    >>> finding = ExplodingGradients()(Subject(net, "mse", (torch.eye(2), torch.eye(2))))
    >>> finding.sentence.split(":")[0]
    "The gradient explodes at layer '2'"
    """

    stage = "collapse"
    symptom = "divergence"
    exact = True
    method = ("S1",)
    cites = ("pascanu2013difficulty", "goodfellow2016deep")
    state = "exploding"
    explains = frozenset(
        {
            "constant-predictor",
            "dead-units",
            "ignored-class",
            "late-over-fitting",
            "learning-rate-too-high",
            "learning-rate-too-low",
            "noise-sensitivity",
            "oscillating-loss",
            "over-confidence",
            "over-fitting",
            "rank-collapse",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Pass the gradient back and compare layers."""
        found = self.judged(subject)
        if found is None:
            return None
        trace, name, profile, per = found
        most, rate = max(profile.growth), profile.rate
        return self.told(
            subject,
            f"The gradient explodes at layer {name!r}: it grows {most:.1e} times on its way back.",
            {
                "growth of the gradient": most,
                **({} if rate is None else {f"factor per {per}": rate}),
            },
            trace,
            (
                Advice(
                    text="Retrain with weights that keep the variance constant from layer to layer.",
                    code=CODE,
                ),
                Advice(
                    text="Clip the gradient.",
                    code="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
                    remedy="gradient-clipping",
                ),
                Advice(text="Or put LayerNorm or BatchNorm before the activations."),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train a deep perceptron whose weights are drawn several times too large."""
        depth = max(2, round(DEPTH * strength))
        return deep_subject(recipe, depth, nn.ReLU, GAIN, seed=seed)
