"""Gradients that grow without bound towards the first layers."""

from torch import nn

from mindgap.core import Advice, Recipe, Subject
from mindgap.diagnoses.training.gradient_diagnosis import GradientDiagnosis, deep_subject
from mindgap.ops.signal.depth import Profile

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

    symptom = "divergence"
    state = "exploding"
    extent = "growth of the gradient"
    form = "The gradient explodes {where}: it grows {size} times on its way back."
    explains = GradientDiagnosis.explains | {
        "dead-units",
        "gradient-masking",
        "late-over-fitting",
        "noise-sensitivity",
        "oscillating-loss",
    }
    advice = (
        Advice(
            text="Clip the gradient.",
            code="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            remedy="gradient-clipping",
        ),
        Advice(text="Or put LayerNorm or BatchNorm before the activations."),
    )

    @staticmethod
    def size(profile: Profile) -> float:
        """Return how many times it has grown."""
        return profile.most

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train a deep perceptron whose weights are drawn several times too large."""
        depth = max(2, round(DEPTH * strength))
        return deep_subject(recipe, depth, nn.ReLU, GAIN, seed=seed)
