"""Initial weights through which signals vanish or explode."""

import dataclasses
import math
from itertools import pairwise

from torch import nn

from mindgap.core import Advice, Diagnosis, Evidence, Finding, Line, Mark, Recipe, Results, Subject
from mindgap.core.bound import constant_error
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.passes import constant_loss
from mindgap.ops.initialization.propagation import LayerVariance, curve
from mindgap.ops.initialization.subject import initial_model, propagation_of
from mindgap.training.fit import fit
from mindgap.training.rival import attainable

# Decades by which the part of a layer's output that depends on the sample shrinks or grows from the
# first layer to any other. In 281 networks before training (ten seeds of all healthy sources, and
# the package's networks with torch's defaults, up to 6 plain and 20 normalized or residual layers)
# it shrank by at most 6.5 and grew by at most 0.9, sigmoid networks aside, which lose up to 10.8.
# Perceptrons of 2 to 24 hidden layers with weights of other scales were trained on the digits for 8
# epochs: where it shrank by more than 8 or grew by more than 5, the training error stayed at 29 % or
# more with Adam, and at 87 % or more, which is guessing, with SGD.
LOST, GAINED = 8.0, 5.0
BEGINS = 1.0  # decades at which it is said to begin
LAYERS, WIDTH = 16, 32  # of the plant

CODE = """model = mindgap.reinitialized(model, inputs, scheme="kaiming-normal")  # a copy
print(mindgap.propagation(model, inputs))  # predicted and measured, layer by layer"""


class BadInitialization(Diagnosis):
    r"""Look for initial weights through which signals vanish or explode, and name the layer.

    Formula: $\min_l \log_{10} \frac{s_l}{s_1} < -8 \;\text{or}\; \max_l \log_{10}
    \frac{s_l}{s_1} > 5, \quad s_l = \frac{1}{U_l} \sum_u \mathrm{Var}_i\, z_{lu}(x_i)$

    Reading: The part of a layer's output that depends on the sample must not shrink or grow by
    orders of magnitude, or the network cannot see its inputs, and its first layers get no gradient.
    If training worked all the same, the finding is a note.

    Assumes: The weights from before training are given, or the recipe, which makes them again.

    >>> import torch
    >>> net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(12)], nn.Linear(8, 1))
    >>> for layer in net:
    ...     _ = nn.init.normal_(layer.weight, 0, 0.01, generator=torch.Generator().manual_seed(0))
    >>> x = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    >>> subject = Subject(net, "mse", (x, x[:, :1]), initial=net.state_dict())
    >>> BadInitialization()(subject).sentence.split(":")[0]
    "Signals vanish in the initial network, from layer '1' on"
    """

    stage = "values"
    symptom = "divergence"
    exact = True
    method = ("S2",)
    cites = ("he2015delving", "glorot2010understanding")
    explains = frozenset(
        {
            "constant-predictor",
            "dead-units",
            "diverged",
            "exploding-gradients",
            "exploding-weights",
            "ignored-class",
            "learning-rate-too-high",
            "learning-rate-too-low",
            "noise-sensitivity",
            "not-finite",
            "oscillating-loss",
            "over-confidence",
            "over-fitting",
            "permuted-test-classes",
            "rank-collapse",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
            "vanishing-gradients",
        }
    )

    def missing(self, subject: Subject) -> str:
        """Say why the subject cannot be tested, or an empty string."""
        known = subject.initial is not None or subject.recipe is not None
        return super().missing(subject) or (
            "" if known else "needs the weights from before training (initial=…) or the recipe"
        )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Follow a batch through the network as it was before training."""
        if initial_model(subject) is None or len(subject.train) < 2:
            return None
        layers = _seeing(_joined(propagation_of(subject, "initial").layers))
        if len(layers) < 2 or not 0 < layers[0].signal < math.inf:
            return None
        decades = [_decades(layer.signal / layers[0].signal) for layer in layers]
        worst = min(decades) if min(decades) < -LOST else max(decades)
        if -LOST <= worst <= GAINED:
            return None
        return self._told(subject, layers, decades, worst)

    def _told(
        self, subject: Subject, layers: list[LayerVariance], decades: list[float], worst: float
    ) -> Finding:
        sign = math.copysign(1.0, worst)
        first = next(k for k, each in enumerate(decades) if sign * each > BEGINS)
        verb, short = ("vanish", "smaller") if worst < 0 else ("explode", "larger")
        factor = 10 ** (worst / max(1, decades.index(worst)))
        return self.finding(
            f"Signals {verb} in the initial network, from layer {layers[first].name!r} on: at layer "
            f"{layers[decades.index(worst)].name!r} they are 10^{abs(worst):.0f} times {short}.",
            _severity(subject),
            evidence=(
                Evidence(name="orders of magnitude lost or gained", value=abs(worst)),
                Evidence(name="factor of the variance per layer", value=factor),
                Evidence(name="layers with weights", value=len(layers)),
                Evidence(name="training error", value=subject.mean_error("train")),
            ),
            sentences=(
                f"Healthy networks lose less than a factor of 10^{LOST:.0f} and gain less than "
                f"10^{GAINED:.0f}.",
            ),
            advice=(
                Advice(text="Initialize so that variance stays constant, then retrain.", code=CODE),
                Advice(text="Or put normalization layers or skip connections between the layers."),
            ),
            charts=(_chart(layers),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train a deep perceptron whose initial weights are three times too small."""
        inputs, targets = recipe.train
        task = Subject(nn.Identity(), recipe.loss, recipe.train, task=recipe.task).task
        outputs = int(targets.max()) + 1 if task == "classification" else targets[0].numel()

        def model() -> nn.Module:
            widths = [inputs[0].numel(), *[WIDTH] * (LAYERS - 1), outputs]
            layers = [nn.Linear(before, after) for before, after in pairwise(widths)]
            for layer in layers:
                size = math.sqrt(2 / layer.in_features) / (1 + 2 * strength)
                nn.init.normal_(layer.weight, 0, size)
                nn.init.zeros_(layer.bias)
            active = [part for layer in layers for part in (layer, nn.ReLU())]
            return nn.Sequential(nn.Flatten(), *active[:-1])

        return fit(recipe.replace(model=model, epochs=min(recipe.epochs, 5)), seed=seed).subject()


def _joined(layers: tuple[LayerVariance, ...]) -> list[LayerVariance]:
    """Join the calls of a layer: a recurrent one counts with the step of the largest signal."""
    best: dict[str, LayerVariance] = {}
    for layer in layers:
        name = layer.name.partition(" (call")[0]
        kept = best.get(name)
        if kept is None or layer.signal > kept.signal:
            best[name] = dataclasses.replace(layer, name=name)
    return list(best.values())


def _seeing(layers: list[LayerVariance]) -> list[LayerVariance]:
    """Leave out what gives the same for all samples next to the way of the signal.

    The embeddings of positions do, and later layers have a signal all the same.
    """
    last = max((k for k, layer in enumerate(layers) if layer.signal > 0), default=-1)
    return [layer for k, layer in enumerate(layers) if layer.signal > 0 or k > last]


def _decades(ratio: float) -> float:
    return math.log10(min(max(ratio, 1e-300), 1e300))


def _severity(subject: Subject) -> Severity:
    """Say wrong if the model is of no use, or fits worse than others do; note if training worked."""
    useless = subject.mean_error("train") > 0.8 * constant_error(subject)
    if useless or subject.mean_loss("train") > constant_loss(subject):
        return "wrong"
    return "wrong" if subject.test is not None and attainable(subject).under else "note"


def _chart(layers: list[LayerVariance]) -> Line:
    return Line(
        title="Signal in the initial network, by layer",
        x_label="layer",
        y_label="variance over samples",
        y_scale="log",
        series=(curve("variance over samples", [layer.signal for layer in layers]),),
        marks=(Mark(name="beyond healthy networks", y=layers[0].signal / 10**LOST),),
    )
