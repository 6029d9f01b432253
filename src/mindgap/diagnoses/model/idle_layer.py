"""A layer that does nothing."""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

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
    Undefined,
    evaluating,
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.passes import affordable, some_places
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.ops.features.layers import layers_of
from mindgap.training.fit import fit
from mindgap.training.rival import attainable

SAMPLES = 64
FEWEST = 8  # samples: below, a spread means nothing
# Of all layers of 124 healthy nets, 26 residual ones among them, the idlest moved the outputs by 14 %
# of their spread; in 119 further nets by 16 % (docs/results/benchmarks/layer-diagnoses.json). In a
# chain it is always 100 %.
LEAST = 1e-3


class IdleLayer(Diagnosis):
    r"""Look for layers whose outputs can be replaced by a constant without a consequence.

    Formula: $\frac{\sum_i \lVert f(x_i; h_l = \bar h_l) - f(x_i) \rVert^2}{\sum_i \lVert f(x_i) -
    \bar f \rVert^2} < 10^{-6}$

    Reading: What the layer computes from its input does not reach the outputs: a branch that is
    multiplied by zero, a residual block that nobody needed, or weights that training never reached.
    In a model that fits its training data this is a note. In one that does not, look here first.

    Assumes: Linear and convolutional layers that are called once per pass. Each one's outputs are
    replaced by their mean over 64 training samples, of a large model fewer.

    >>> import torch
    >>> class Skipping(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.inner, self.head = nn.Linear(2, 2), nn.Linear(2, 1)
    ...
    ...     def forward(self, x):
    ...         return self.head(x + 0 * self.inner(x))
    >>> x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    >>> print(IdleLayer()(Subject(Skipping(), "mse", (x, x[:, :1]))).sentence)
    Layer 'inner' does nothing: the outputs stay the same if it gives a constant.
    """

    stage = "collapse"
    symptom = "dead units"
    exact = True
    method = ("E11",)
    cites = ("veit2016residual",)
    explains = frozenset({"too-small", "under-trained"})

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Replace the outputs of every layer by their mean, one layer at a time."""
        changes = layer_changes(subject)
        idle = [name for name, change in changes.items() if change < LEAST]
        if not idle:
            return None
        first = min(idle, key=lambda name: changes[name])
        others = f" and {len(idle) - 1} others do" if len(idle) > 1 else " does"
        word = "they give constants" if len(idle) > 1 else "it gives a constant"
        return self.finding(
            f"Layer {first!r}{others} nothing: the outputs stay the same if {word}.",
            _severity(subject),
            evidence=(
                Evidence(name="idle layers", value=len(idle)),
                Evidence(
                    name="change of the outputs without the layer",
                    value=changes[first],
                    percent=True,
                ),
            ),
            sentences=(f"Idle layers: {', '.join(idle)}.",),
            advice=(
                Advice(
                    text="Check that the layer's output is used and that its weights get gradients.",
                    code="loss_function(model(inputs), targets).backward()\n"
                    "for name, weight in model.named_parameters():\n"
                    "    print(name, None if weight.grad is None else weight.grad.norm())",
                ),
                Advice(
                    text="If the model is as good as wanted, leave the layer out: it only costs."
                ),
            ),
            charts=(
                Bar.of(
                    changes,
                    title="Change of the outputs if a layer gives a constant",
                    percent=True,
                    horizontal=True,
                    marks=(Mark(name="idle", y=LEAST),),
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Add a residual layer whose branch is multiplied by zero."""
        made = with_layer(recipe, lambda width: _Branch(width, 1 - strength), after=True)
        return fit(made, seed=seed).subject()


class _Branch(nn.Module):
    """Adds a share of what a linear layer makes of its input."""

    def __init__(self, width: int, share: float) -> None:
        super().__init__()
        self.inner, self.share = nn.Linear(width, width), share

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = inputs + self.share * self.inner(inputs)
        return found


def layer_changes(subject: Subject) -> dict[str, float]:
    """Return how far the outputs move, over their spread, if a layer gives its mean output.

    Args:
        subject: A model with layers; nothing is returned for outputs that do not vary.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    >>> subject = Subject(net, "mse", (torch.randn(20, 2), torch.randn(20, 1)))
    >>> [round(change, 3) for change in layer_changes(subject).values()]
    [1.0, 1.0]
    """
    try:
        names = layers_of(subject).names
    except Undefined:
        return {}
    most = affordable(subject, SAMPLES, passes=len(names) + 1, fewest=FEWEST)
    places = some_places(subject, "train", most)
    if len(places) < FEWEST:
        return {}
    inputs = subject.train.take(places).inputs
    with evaluating(subject.model):
        clean = subject.forward(inputs).double()
        spread = float((clean - clean.mean(0)).norm())
        if not spread > 0:
            return {}
        return {name: _change(subject, inputs, name, clean) / spread for name in names}


def _change(subject: Subject, inputs: Any, name: str, clean: Tensor) -> float:
    with _averaged(subject.model, name):
        return float((subject.forward(inputs).double() - clean).norm())


@contextlib.contextmanager
def _averaged(model: nn.Module, name: str) -> Iterator[None]:
    """Let a layer give the mean of its outputs over the samples, for every sample."""

    def mean(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        return output.mean(0, keepdim=True).expand_as(output).clone()

    handle = dict(model.named_modules())[name].register_forward_hook(mean)
    try:
        yield
    finally:
        handle.remove()


def _severity(subject: Subject) -> Severity:
    """Suspect the layer if others fit the data better; otherwise it is only not needed."""
    return "suspect" if subject.test is not None and attainable(subject).under else "note"
