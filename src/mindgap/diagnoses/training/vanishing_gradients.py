"""Gradients that do not reach the first layers."""

from torch import nn

from mindgap.core import Advice, Recipe, Subject
from mindgap.diagnoses.training.gradient_diagnosis import GradientDiagnosis, deep_subject
from mindgap.ops.signal.depth import Profile

DEPTH = 14  # of the plant


class VanishingGradients(GradientDiagnosis):
    r"""Look for layers, or steps of a sequence, that next to nothing of the gradient reaches.

    Formula: $\lVert \delta_l \rVert < 10^{-4} \max_{k \ge l} \lVert \delta_k \rVert$ with
    $\delta_l = \partial L / \partial a_l$

    Reading: Layers without gradient stay as they were drawn, so the network cannot use its depth.
    In a model that fits its training data this is a note. In one that does not, it is the likely
    cause. The layer that is named loses most of the gradient; where many do their part, it is the
    one from which on they do.

    Assumes: A model with gradients. The gradient is that of the trained model: one that recovered
    during training is not seen; a monitor sees it.

    >>> import torch
    >>> net = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(4)])
    >>> _ = torch.nn.init.constant_(net[2].weight, 1e-9)
    >>> finding = VanishingGradients()(Subject(net, "mse", (torch.eye(2), torch.eye(2))))
    >>> finding.sentence.split(":")[0]
    "The gradient vanishes at layer '2'"
    """

    symptom = "under-fitting"
    state = "vanishing"
    extent = "smallest share of the gradient"
    form = "The gradient vanishes {where}: {size} of it reaches the first {per}."
    advice = (
        Advice(
            text="Or use ReLU, LayerNorm or BatchNorm, and skip connections; in recurrent "
            "networks an orthogonal start, a GRU or an LSTM."
        ),
    )

    @staticmethod
    def size(profile: Profile) -> float:
        """Return the share that is left."""
        return profile.least

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train a deep perceptron of sigmoids, whose slope is at most a quarter."""
        depth = max(2, round(DEPTH * strength))
        return deep_subject(recipe, depth, nn.Sigmoid, gain=0.6, seed=seed)
