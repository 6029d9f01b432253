"""Units that never fire, or are always saturated."""

import functools

import torch
from torch import nn

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    Mark,
    Recipe,
    Results,
    Subject,
    evaluating,
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.activations import Activation, activations
from mindgap.ops.evidence.passes import SAMPLES, affordable, some_places
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.ops.initialization.subject import untrained
from mindgap.training.fit import fit
from mindgap.training.rival import attainable

# Convolutional nets that train well have up to 56 % dead units in a layer (69 healthy nets), so
# half of a layer accuses only a layer that is left with next to nothing.
MOST, HALF, FEW = 0.85, 0.5, 8
FEWEST = 4  # units of a layer, and samples: below, shares mean nothing


class DeadUnits(Diagnosis):
    r"""Look for layers whose units never fire, or are saturated for all samples.

    Activations are observed wherever they are called, as layers or as functions.

    Formula: $\frac{1}{U_l} \sum_u [\phi'(a_{lu}(x_i)) \approx 0 \;\text{for all}\; i] > 0.85$

    Reading: A unit without slope learns nothing more and, if it is a ReLU, says nothing. In a model
    that fits its training data this is a note. In one that does not, it is the likely cause.

    Assumes: The samples looked at (2,000 of the training data, fewer of a large model) show what a
    unit can do.

    >>> net = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1))
    >>> _ = nn.init.constant_(net[0].bias, -9.0)
    >>> x = torch.linspace(-1, 1, 100)[:, None]
    >>> finding = DeadUnits()(Subject(net, "mse", (x[::2], x[::2]), (x[1::2], x[1::2])))
    >>> finding.sentence
    "Of the 16 units of layer '1', 16 never fire."
    """

    stage = "collapse"
    symptom = "dead units"
    exact = True
    method = ("S1",)
    cites = ("lu2020dying",)
    explains = frozenset(
        {
            "constant-predictor",
            "gradient-masking",
            "ignored-class",
            "rank-collapse",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Pass training samples through the model and count inactive units."""
        layers = _layers(subject)
        bad = [layer for layer in layers if _is_bad(layer, subject)]
        if not bad:
            return None
        return self._told(subject, layers, max(bad, key=lambda layer: layer.share))

    def _told(self, subject: Subject, layers: list[Activation], worst: Activation) -> Finding:
        saturated = worst.least < 1
        verb = "are saturated for all samples" if saturated else "never fire"
        total, dead = len(worst.inactive), int(worst.dead.sum())
        advice = (
            "Scale the inputs and use a smaller learning rate: the units are driven to their ends."
            if saturated
            else "Retrain with a smaller learning rate, scaled inputs and Kaiming initialization."
        )
        return self.finding(
            f"Of the {total} units of layer {worst.place!r}, {dead} {verb}.",
            _severity(subject),
            explained_by="learning-rate-too-high" if _was_alive(subject, worst) else "",
            evidence=(
                Evidence(name="units of the layer without slope", value=dead / total, percent=True),
                Evidence(name="units that are left", value=worst.alive),
            ),
            sentences=(
                f"{worst.alive} active units are left for all {_outputs(subject)} outputs.",
            ),
            advice=(
                Advice(
                    text=advice,
                    code="for module in model.modules():\n"
                    "    if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):\n"
                    "        torch.nn.init.kaiming_normal_(module.weight, nonlinearity='relu')\n"
                    "        if module.bias is not None:\n"
                    "            torch.nn.init.zeros_(module.bias)",
                ),
                Advice(text="Or use LeakyReLU or GELU, or put LayerNorm before the activation."),
            ),
            charts=(
                Bar.of(
                    {layer.place: layer.share for layer in layers},
                    title="Units without slope by layer",
                    percent=True,
                    marks=(Mark(name="beyond healthy nets", y=MOST),),
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Begin with hidden units that are out of reach of any input, all but two of 64."""
        inputs = recipe.train[0].flatten(1)
        reach = float(inputs.norm(dim=1).max()) + 1
        made = with_layer(recipe, lambda width: _Sunk(width, reach, strength))
        return fit(made, seed=seed).subject()


class _Sunk(nn.Module):
    """Shifts most units so far down that no input lifts them."""

    def __init__(self, width: int, depth: float, strength: float) -> None:
        super().__init__()
        shift = torch.full((width,), -10 * depth)
        shift[: max(2, round((1 - strength) * width))] = 0
        self.shift: torch.Tensor
        self.register_buffer("shift", shift)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.shift


def _layers(subject: Subject) -> list[Activation]:
    places = some_places(subject, "train", affordable(subject, SAMPLES))
    some = subject.train.subset(places)
    if len(places) < FEWEST:
        return []
    with evaluating(subject.model):
        layers = activations(
            subject.model,
            (
                functools.partial(subject.checked_forward, batch.inputs)
                for batch in some.batches(subject.batch_size)
            ),
        )
    return [layer for layer in layers if len(layer.inactive) >= FEWEST]


def _was_alive(subject: Subject, worst: Activation) -> bool:
    """Tell whether the initial weights are known and at most half of the layer was dead then."""
    before = untrained(subject)
    layers = [] if before is None else _layers(before)
    return any(layer.place == worst.place and layer.share <= HALF for layer in layers)


def _outputs(subject: Subject) -> int:
    return subject.outputs("train")[0].numel()


def _is_bad(layer: Activation, subject: Subject) -> bool:
    few = layer.alive < max(FEW, _outputs(subject))
    return layer.share > MOST or (layer.share > HALF and few)


def _severity(subject: Subject) -> Severity:
    """Say wrong if others fit the data better; without test data there is nobody to compare."""
    if subject.test is None:
        return "suspect"
    return "wrong" if attainable(subject).under else "note"
