"""Activations that change nothing: a layer that is linear on all samples."""

import functools

import torch
from torch import nn

from mindgap.core import Recipe, Subject, evaluating
from mindgap.core.chart import Bar, Mark
from mindgap.core.diagnosis import Advice, Diagnosis, Evidence, Finding, Results, Severity
from mindgap.ops.evidence.activations import Activation, activations
from mindgap.ops.evidence.passes import some_places
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.training.fit import fit
from mindgap.training.rival import attainable

RELU = frozenset({"relu", "relu_", "clamp", "clamp_", "clamp_min", "clip"})
FEWEST = 4  # units of a layer, and samples: below, shares mean nothing
# Of layers that train well up to 37 % of the units are linear (44 healthy nets, seeds 0 to 3).
MOST = 0.95
DEAD = 0.85  # beyond it, dead-units tells


class IdleLayer(Diagnosis):
    r"""Look for ReLU layers that are linear on all samples, so that they could be left out.

    Formula: $\frac{1}{U_l} \sum_u \left[ [a_{lu}(x_i) > 0] \;\text{is the same for all}\; i \right]
    > 0.95$

    Reading: A unit that is always on, or always off, is linear. If all units of a layer are, the
    layer and the next one are a single linear layer: depth that costs time and adds nothing. In a
    model that fits its training data this is a note. In one that does not, it is the likely cause.

    Assumes: The samples looked at (2,000 of the training data) show what a unit can do. Other
    activations than ReLU are not looked at.

    >>> net = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1))
    >>> _ = nn.init.constant_(net[0].bias, 9.0)
    >>> x = torch.linspace(-1, 1, 100)[:, None]
    >>> finding = IdleLayer()(Subject(net, "mse", (x[::2], x[::2]), (x[1::2], x[1::2])))
    >>> finding.sentence
    "The ReLU of layer '1' changes nothing: 16 of its 16 units are linear for all samples."
    """

    stage = "collapse"
    symptom = "dead units"
    exact = True
    method = ("S1",)
    cites = ("lu2020dying",)
    explains = frozenset(
        {
            "constant-predictor",
            "ignored-class",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Pass training samples through the model and count units whose gate never changes."""
        places = some_places(subject, "train")
        if len(places) < FEWEST:
            return None
        some = subject.train.subset(places)
        with evaluating(subject.model):
            layers = activations(
                subject.model,
                (
                    functools.partial(subject.checked_forward, batch.inputs)
                    for batch in some.batches(subject.batch_size)
                ),
            )
        known = [row for row in layers if row.kind in RELU and len(row.inactive) >= FEWEST]
        bad = [row for row in known if _share(row) > MOST and row.share <= DEAD]
        return self._told(subject, known, max(bad, key=_share)) if bad else None

    def _told(self, subject: Subject, layers: list[Activation], worst: Activation) -> Finding:
        total, linear = len(worst.inactive), int(_linear(worst).sum())
        return self.finding(
            f"The ReLU of layer {worst.place!r} changes nothing: {linear} of its {total} units are "
            "linear for all samples.",
            _severity(subject),
            evidence=(
                Evidence(name="units that are linear", value=linear / total, percent=True),
                Evidence(name="units that never fire", value=worst.share, percent=True),
            ),
            sentences=("The layer and the next one do what one linear layer would do.",),
            advice=(
                Advice(
                    text="Start with biases of zero and scaled inputs, so that units switch.",
                    code="for module in model.modules():\n"
                    "    if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):\n"
                    "        torch.nn.init.kaiming_normal_(module.weight, nonlinearity='relu')\n"
                    "        if module.bias is not None:\n"
                    "            torch.nn.init.zeros_(module.bias)",
                ),
                Advice(text="Or put BatchNorm or LayerNorm before the activation."),
                Advice(text="Or leave the layer out, if a linear one is enough."),
            ),
            charts=(
                Bar.of(
                    {row.place: _share(row) for row in layers},
                    title="Units that are linear for all samples, by layer",
                    percent=True,
                    marks=(Mark(name="beyond healthy nets", y=MOST),),
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Begin with hidden units that are so far up that no input switches them off."""
        inputs = recipe.train[0].flatten(1)
        reach = float(inputs.norm(dim=1).max()) + 1
        made = with_layer(recipe, lambda width: _Lifted(width, reach, strength))
        return fit(made, seed=seed).subject()


class _Lifted(nn.Module):
    """Shifts units so far up that no input takes them below zero."""

    def __init__(self, width: int, reach: float, strength: float) -> None:
        super().__init__()
        shift = torch.full((width,), 3 * reach)
        shift[: round((1 - strength) * width)] = 0
        self.shift: torch.Tensor
        self.register_buffer("shift", shift)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.shift


def _linear(layer: Activation) -> torch.Tensor:
    return (layer.inactive == 0) | (layer.inactive == 1)


def _share(layer: Activation) -> float:
    return float(_linear(layer).double().mean())


def _severity(subject: Subject) -> Severity:
    """Say wrong if others fit the data better; without test data there is nobody to compare."""
    if subject.test is None:
        return "suspect"
    return "wrong" if attainable(subject).under else "note"
