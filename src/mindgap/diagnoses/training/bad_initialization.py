"""Initial weights through which signals vanish or explode."""

import dataclasses
import math
from itertools import pairwise

from torch import nn

from mindgap.core import Advice, Diagnosis, Evidence, Finding, Line, Mark, Recipe, Results, Subject
from mindgap.core.bound import constant_error
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.passes import constant_loss
from mindgap.ops.initialization.propagation import Propagation, curve
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
ENDLESS = 300.0  # decades that no number has
WITHIN = (
    f"Healthy networks lose less than a factor of 10^{LOST:.0f} and gain less than 10^{GAINED:.0f}."
)
INSTEAD = Advice(text="Or put normalization layers or skip connections between the layers.")
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
            "gradient-masking",
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
        course = signal_course(propagation_of(subject, "initial"))
        if course is None or not course.verb:
            return None
        factor = 10 ** (course.worst / max(1, course.decades.index(course.worst)))
        return self.finding(
            course.told("in the initial network"),
            _severity(subject),
            evidence=(
                Evidence(name="orders of magnitude lost or gained", value=abs(course.worst)),
                Evidence(name="factor of the variance per layer", value=factor),
                Evidence(name="layers with weights", value=len(course.names)),
                Evidence(name="training error", value=subject.mean_error("train")),
            ),
            sentences=(WITHIN,),
            advice=(
                Advice(text="Initialize so that variance stays constant, then retrain.", code=CODE),
                INSTEAD,
            ),
            charts=(_chart(course),),
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


@dataclasses.dataclass(frozen=True)
class Course:
    """The part of layers' outputs that depends on the sample, from the first layer on.

    Args:
        names: The layers.
        signals: Its variance at each.
    """

    names: tuple[str, ...]
    signals: tuple[float, ...]

    @property
    def decades(self) -> tuple[float, ...]:
        """Orders of magnitude by which it is larger than at the first layer."""
        return tuple(_decades(signal / self.signals[0]) for signal in self.signals)

    @property
    def worst(self) -> float:
        """The order of magnitude to judge by: the nearest to its limit, or furthest beyond."""
        low, high = min(self.decades), max(self.decades)
        return low if low < -LOST or -low / LOST > high / GAINED else high

    @property
    def verb(self) -> str:
        """What signals do, ``"vanish"`` or ``"explode"``; empty if they are healthy."""
        if -LOST <= self.worst <= GAINED:
            return ""
        return "vanish" if self.worst < 0 else "explode"

    @property
    def begins(self) -> str:
        """The first layer at which they clearly do."""
        sign = math.copysign(1.0, self.worst)
        pairs = zip(self.names, self.decades, strict=True)
        return next((name for name, decade in pairs if sign * decade > BEGINS), "")

    def told(self, where: str) -> str:
        """Say in a sentence what signals do.

        Args:
            where: In which network.
        """
        last = self.names[self.decades.index(self.worst)]
        short = "smaller" if self.worst < 0 else "larger"
        size = f"10^{abs(self.worst):.0f} times {short}"
        if abs(self.worst) >= ENDLESS:
            size = "no finite numbers" if self.worst > 0 else "all but gone"
        return (
            f"Signals {self.verb} {where}, from layer {self.begins!r} on: at layer {last!r} they are "
            f"{size}."
        )


def signal_course(found: Propagation) -> Course | None:
    """Follow the signal from layer to layer; None without two layers or a signal at the first.

    Of the calls of a recurrent layer, the step of the largest signal counts.

    Args:
        found: The second moments of a network.

    >>> import torch
    >>> from mindgap.ops.initialization.propagation import propagation
    >>> net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    >>> _ = net[1].weight.data.fill_(1e-5)
    >>> course = signal_course(propagation(net, torch.tensor([[0.0], [1.0]])))
    >>> round(course.worst), course.verb, course.begins
    (-10, 'vanish', '1')
    """
    best: dict[str, float] = {}
    for row in found.layers:
        best[row.layer] = max(row.signal, best.get(row.layer, row.signal))
    # What gives the same for all samples next to the way of the signal, as embeddings of positions
    # do, is left out: later layers have a signal all the same.
    last = max((k for k, signal in enumerate(best.values()) if signal > 0), default=-1)
    best = {name: best[name] for k, name in enumerate(best) if best[name] > 0 or k > last}
    course = Course(tuple(best), tuple(best.values()))
    return course if len(best) > 1 and 0 < course.signals[0] < math.inf else None


def _decades(ratio: float) -> float:
    """Return the order of magnitude of a ratio; what is no number has grown beyond all numbers."""
    return math.log10(min(max(ratio, 10**-ENDLESS), 10**ENDLESS)) if ratio == ratio else ENDLESS


def _severity(subject: Subject) -> Severity:
    """Say wrong if the model is of no use, or fits worse than others do; note if training worked."""
    useless = subject.mean_error("train") > 0.8 * constant_error(subject)
    if useless or subject.mean_loss("train") > constant_loss(subject):
        return "wrong"
    return "wrong" if subject.test is not None and attainable(subject).under else "note"


def _chart(course: Course) -> Line:
    return Line(
        title="Signal in the initial network, by layer",
        x_label="layer",
        y_label="variance over samples",
        y_scale="log",
        series=(curve("variance over samples", course.signals),),
        marks=(Mark(name="beyond healthy networks", y=course.signals[0] / 10**LOST),),
    )
