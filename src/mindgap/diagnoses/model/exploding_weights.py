"""Weights that are finite but far beyond what training gives."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from mindgap.core import Advice, Bar, Diagnosis, Evidence, Finding, Mark, Recipe, Results, Subject
from mindgap.core.bound import constant_error
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.passes import constant_loss
from mindgap.training.fit import fit

# The factor by which a layer's weights enlarge a random input of unit variance. Torch initializes
# it to 0.58, Kaiming to 1.4. In 93 nets (perceptrons, convolutional and recurrent ones, also with
# steps far too large) those that learned stayed below 8, or 23 with inputs of 0.001. Runs that went
# out of control had 5 to 1e23, so some of them stay below the limit and other checks name them.
LARGE = 30.0


class ExplodingWeights(Diagnosis):
    r"""Look for layers whose weights are finite but absurdly large, and name the layer.

    Formula: $\max_l \sqrt{\frac{1}{U_l} \sum_{u} \left\| W_{l,u} \right\|^2} > 30$

    Reading: The number is the factor by which a layer enlarges inputs of unit variance. Trained
    nets stay near one. If the model also predicts no better than a constant, training went out of
    control. Otherwise it is a note: normalization or tiny inputs can make up for it.

    Assumes: Weights of two axes or more have one row per unit.

    >>> net = nn.Linear(2, 2)
    >>> _ = nn.init.constant_(net.weight, 1e6), nn.init.normal_(net.bias, 0, 1e7)
    >>> finding = ExplodingWeights()(Subject(net, "mse", (torch.eye(2), torch.eye(2))))
    >>> finding.severity, finding.sentence
    ('wrong', "The weights of 'weight' are too large: they enlarge inputs 1,414,214 times.")
    """

    stage = "values"
    symptom = "divergence"
    exact = True
    method = ("S1",)
    cites = ("pascanu2013difficulty", "goodfellow2016deep")
    explains = frozenset(
        {
            "constant-predictor",
            "dead-units",
            "exploding-gradients",
            "gradient-masking",
            "ignored-class",
            "noise-sensitivity",
            "over-confidence",
            "over-fitting",
            "permuted-test-classes",
            "rank-collapse",
            "rare-class",
            "too-small",
            "under-trained",
            "vanishing-gradients",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compute the gain of every layer, and whether the model is of any use."""
        gains = dict(_gains(subject.model))
        name = max(gains, key=lambda name: gains[name], default="")
        if not name or gains[name] <= LARGE:
            return None
        error, baseline = subject.mean_error("train"), constant_error(subject)
        largest = float(dict(subject.model.named_parameters())[name].detach().abs().max())
        what = "error" if subject.task != "regression" else "loss"
        return self.finding(
            f"The weights of {name!r} are too large: they enlarge inputs {gains[name]:,.0f} times.",
            _severity(subject, error, baseline),
            evidence=(
                Evidence(name="gain of the layer", value=gains[name]),
                Evidence(name="largest weight", value=largest),
                Evidence(name=f"training {what}", value=error),
                Evidence(name=f"training {what} of the best constant", value=baseline),
            ),
            sentences=(
                f"Trained layers have a gain near 1. The training {what} is {error:.3g}, that of "
                f"the best constant {baseline:.3g}.",
            ),
            advice=(
                Advice(
                    text="Retrain with a learning rate ten times smaller and gradients clipped.",
                    code="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
                ),
                Advice(text="Scale inputs and targets to mean 0 and variance 1."),
            ),
            charts=(
                Bar.of(
                    gains,
                    title="Gain of every layer",
                    y_scale="log",
                    marks=(Mark(name="beyond healthy nets", y=LARGE),),
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Add noise to one layer, as a step that is a thousand times too large would."""
        subject = fit(recipe, seed=seed).subject()
        random = torch.Generator().manual_seed(seed)
        weights = [weight for weight in subject.model.parameters() if weight.ndim > 1]
        weight = weights[seed % len(weights)]
        noise = torch.randn(weight.shape, generator=random) / math.sqrt(weight[0].numel())
        with torch.no_grad():
            weight.add_(1000 * strength * noise.to(weight))
        return subject


def _gains(model: nn.Module) -> Iterator[tuple[str, float]]:
    """Return for every matrix or kernel the root of the mean squared norm of its rows."""
    embedded = {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag)
    }
    for name, weight in model.named_parameters():
        if weight.ndim > 1 and weight.numel() and id(weight) not in embedded:
            yield name, float(_gain(weight.detach().double()))


def _gain(weight: Tensor) -> Tensor:
    return weight.flatten(1).square().sum(1).mean().sqrt()


def _severity(subject: Subject, error: float, baseline: float) -> Severity:
    """Say wrong if a constant would do as well, and note if the model works all the same."""
    useless = error > 0.8 * baseline or subject.mean_loss("train") > constant_loss(subject)
    return "wrong" if useless else "note"
