"""What diagnoses of the gradient along depth share: the trace, the words, and deep plants."""

import abc
import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import ClassVar

from torch import nn

from mindgap.core import (
    Advice,
    Chart,
    Diagnosis,
    Evidence,
    Finding,
    Line,
    Recipe,
    Results,
    Series,
    Subject,
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.initialization.subject import untrained
from mindgap.ops.signal.depth import BLOWN, LOST, Profile, State
from mindgap.ops.signal.trace import Trace, gradient_trace
from mindgap.training.fit import fit
from mindgap.training.rival import attainable

WIDTH = 32  # of the plants
RELU = "torch.nn.init.kaiming_normal_(module.weight, nonlinearity='relu')"
CODE = f"""for module in model.modules():
    if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):
        {RELU}  # xavier_normal_ for tanh
        if module.bias is not None:
            torch.nn.init.zeros_(module.bias)"""
WATCH = """with mindgap.Monitor(model, log="run.jsonl") as monitor:
    ...  # in the loop, after optimizer.step(): monitor.step(loss)"""


@dataclasses.dataclass(frozen=True)
class Blamed:
    """Where the gradient begins to vanish or explode.

    Args:
        name: The layer.
        profile: The norms that show it.
        per: Along what they are: ``"layer"`` or ``"step of the sequence"``.
        alone: Whether this layer makes most of the change, or others after it have a part in it.
    """

    name: str
    profile: Profile
    per: str
    alone: bool


class GradientDiagnosis(Diagnosis, abc.ABC, abstract=True):
    """A diagnosis of how the gradient changes on its way from the output to the input."""

    stage = "collapse"
    exact = True
    method = ("S1",)
    cites = ("pascanu2013difficulty", "goodfellow2016deep")
    state: ClassVar[State]
    extent: ClassVar[str]  # what ``size`` is
    form: ClassVar[str]  # the sentence, with places for the layer, the size, and what is passed
    advice: ClassVar[tuple[Advice, ...]]
    explains = frozenset(
        {
            "constant-predictor",
            "ignored-class",
            "learning-rate-too-high",
            "learning-rate-too-low",
            "over-confidence",
            "over-fitting",
            "rank-collapse",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )

    @staticmethod
    @abc.abstractmethod
    def size(profile: Profile) -> float:
        """Return how far the gradient has changed.

        Args:
            profile: The norms along layers or steps.
        """

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Pass the gradient back and compare layers; severe only where others fit the data better."""
        found = self.judged(subject)
        if found is None:
            return None
        trace, blamed = found
        arose = was_healthy(subject, self.state)
        evidence = [Evidence(name=self.extent, value=self.size(blamed.profile))]
        if blamed.profile.rate is not None:
            evidence.append(Evidence(name=f"factor per {blamed.per}", value=blamed.profile.rate))
        return self.finding(
            self.told(blamed),
            _severity(subject),
            evidence=tuple(evidence),
            explained_by="learning-rate-too-high" if arose else "",
            sentences=("It was healthy in the initial network: training brought it about.",)
            if arose
            else (),
            advice=(
                Advice(
                    text="Retrain with weights that keep the variance constant from layer to layer.",
                    code=CODE,
                ),
                *self.advice,
                Advice(text="Watch the next training layer by layer.", code=WATCH),
            ),
            charts=(_chart(trace),),
        )

    def judged(self, subject: Subject) -> tuple[Trace, Blamed] | None:
        """Return the trace, and which layer is to blame.

        Args:
            subject: What is examined.
        """
        trace = gradient_trace(subject)
        # A gradient of exactly zero is that of dead units, which have a diagnosis of their own.
        if trace is None or 0.0 in trace.layers.values():
            return None
        blamed = self.blamed(trace)
        return None if blamed is None else (trace, blamed)

    @classmethod
    def blamed(cls, trace: Trace) -> Blamed | None:
        """Return the layer to blame, and the profile that shows it.

        Args:
            trace: The gradient of a model.
        """
        # What happens over the steps of a layer shows in all its steps together too, as if the layer
        # after it had done it.
        for name, norms in reversed(list(trace.times.items())):
            through = Profile(norms)
            if through.start(cls.state) is not None:
                return Blamed(name, through, "step of the sequence", True)
        names, profile = list(trace.layers), trace.profile
        origin = profile.origin(cls.state)
        if origin is not None:
            one = profile.culprit(cls.state)
            return Blamed(names[origin if one is None else one], profile, "layer", one is not None)
        return None

    @classmethod
    def told(cls, found: Blamed) -> str:
        """Say in a sentence what :meth:`blamed` found.

        Args:
            found: The layer, and how the gradient changes.
        """
        size = cls.size(found.profile)
        amount = f"{size:.1e}" if size else "nothing"
        where = f"at layer {found.name!r}" if found.alone else f"from layer {found.name!r} on"
        return cls.form.format(where=where, size=amount, per=found.per)


def was_healthy(subject: Subject, state: State) -> bool:
    """Tell whether the initial weights are known and their gradient is far from this state.

    Far is the square root of the limit: on a logarithmic scale, half of the way at most.

    Args:
        subject: After training.
        state: ``"vanishing"`` or ``"exploding"``.
    """
    before = untrained(subject)
    trace = None if before is None else gradient_trace(before)
    if trace is None or 0.0 in trace.layers.values():
        return False
    profiles = [trace.profile, *map(Profile, trace.times.values())]
    if state == "vanishing":
        return all(min(profile.reach) > math.sqrt(LOST) for profile in profiles)
    return all(max(profile.growth) < math.sqrt(BLOWN) for profile in profiles)


def _severity(subject: Subject) -> Severity:
    if subject.test is None:
        return "suspect"
    return "wrong" if attainable(subject).under else "note"


def _chart(trace: Trace) -> Chart:
    names = list(trace.layers)
    return Line(
        title="The gradient on its way back, from the output (right) to the input (left)",
        x_label="layer",
        y_label="norm of the gradient by the layer's outputs",
        x_scale="category",
        y_scale="log",
        series=[Series(name="gradient", x=names, y=[trace.layers[name] or None for name in names])],
    )


def deep_subject(
    recipe: Recipe, depth: int, activation: Callable[[], nn.Module], gain: float, seed: int
) -> Subject:
    """Train a deep perceptron whose weights are too small or too large, and keep no initial ones.

    With them, a bad initialization would be the finding, since it is the cause.

    Args:
        recipe: With tuples of tensors as data.
        depth: The number of hidden layers.
        activation: Makes an activation.
        gain: The factor by which a layer's weights enlarge inputs of unit variance.
        seed: Seed of the training.

    >>> import torch
    >>> data = (torch.zeros(9, 2, 3), torch.tensor([0, 1, 2] * 3))
    >>> recipe = Recipe(model=nn.Identity, train=data, epochs=1)
    >>> len(deep_subject(recipe, 5, nn.ReLU, 1.0, seed=0).model)
    12
    """
    inputs, targets = recipe.train
    task = Subject(nn.Identity(), recipe.loss, recipe.train, task=recipe.task).task
    outputs = int(targets.max()) + 1 if task == "classification" else targets[0].numel()

    def model() -> nn.Module:
        sizes = (inputs[0].numel(), *[WIDTH] * depth, outputs)
        parts: list[nn.Module] = [nn.Flatten()]
        for before, after in itertools.pairwise(sizes):
            layer = nn.Linear(before, after)
            nn.init.normal_(layer.weight, 0, gain / before**0.5)
            parts += [layer, activation()]
        return nn.Sequential(*parts[:-1])

    trained = fit(recipe.replace(model=model), seed=seed).subject()
    return Subject(
        trained.model,
        trained.loss,
        trained.train,
        trained.test,
        task=trained.task,
        history=trained.history,
    )
