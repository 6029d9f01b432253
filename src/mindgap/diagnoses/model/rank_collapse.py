"""Features that vary along too few directions for the classes."""

import torch
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
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.passes import affordable, some_places
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.ops.features.layers import entering, layers_of
from mindgap.training.fit import fit
from mindgap.training.rival import attainable

SAMPLES, FEWEST = 512, 64
NUMBERS = 2**28  # samples times what enters all layers, which is kept
CLASSES = 8  # below, the threshold comes too close to the single direction of a line
WIDE = 2  # numbers per direction that a layer must have: narrow layers are meant to be narrow
# The lowest share of the layers of 88 healthy nets with ten classes was 0.34; the threshold is half
# of that. In 77 further nets it is 0.37 (docs/results/benchmarks/layer-diagnoses.json).
LEAST = 0.17


class RankCollapse(Diagnosis):
    r"""Look for layers whose inputs vary along far fewer directions than there are classes.

    Formula: $\frac{1}{K - 1} \cdot \frac{(\sum_j \lambda_j)^2}{\sum_j \lambda_j^2} < 0.17, \qquad
    \lambda = \text{eigenvalues of the covariance of } h_l(x)$

    Reading: K classes that are kept apart equally well need K − 1 directions. Where features vary
    along a single one, the layers before have mapped all samples to a line, as very deep networks
    without normalization or skips do. In a model that fits its training data this is a note.

    Assumes: A classification with at least eight classes. Layers with fewer than 2(K − 1) inputs are
    narrow by design and left out. 512 training samples show how features vary.

    >>> net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 8))
    >>> _ = net[0].weight.data.copy_(torch.ones(16, 16))
    >>> x = torch.randn(80, 16, generator=torch.Generator().manual_seed(0))
    >>> print(RankCollapse()(Subject(net, "cross_entropy", (x, torch.arange(80) % 8))).sentence)
    What enters layer '1' varies along 1.0 directions; 8 classes need 7.
    """

    stage = "collapse"
    symptom = "under-fitting"
    exact = True
    method = ("E11",)
    cites = ("daneshmand2020batch",)
    kinds = ("image",)
    needs = frozenset({"classification"})
    explains = frozenset(
        {
            "gradient-masking",
            "ignored-class",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Count the directions in front of every layer but the first."""
        needed = subject.outputs("train").shape[1] - 1
        if needed + 1 < CLASSES:
            return None
        counts = layer_directions(subject)
        low = {name: count for name, count in counts.items() if count < LEAST * needed}
        if not low:
            return None
        worst = min(low, key=lambda name: low[name])
        return self.finding(
            f"What enters layer {worst!r} varies along {low[worst]:.1f} directions; "
            f"{needed + 1} classes need {needed}.",
            _severity(subject),
            evidence=(
                Evidence(name="directions in front of the layer", value=low[worst]),
                Evidence(name="layers with too few", value=len(low)),
            ),
            advice=(
                Advice(
                    text="Retrain with normalization or skip connections, and a depth that the "
                    "data need: they keep samples apart on their way through the layers.",
                    code="torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), "
                    "torch.nn.ReLU())",
                ),
                Advice(text="Or begin with orthogonal weights, which keep all directions."),
            ),
            charts=(
                Bar.of(
                    counts,
                    title="Directions along which the inputs of a layer vary",
                    y_label="directions",
                    horizontal=True,
                    marks=(Mark(name="classes − 1", y=float(needed)),),
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Project the hidden units onto a line."""
        made = with_layer(recipe, lambda width: _Line(width, strength), after=True)
        return fit(made, seed=seed).subject()


class _Line(nn.Module):
    """Keeps what lies along one fixed direction, and a part of the rest."""

    def __init__(self, width: int, strength: float) -> None:
        super().__init__()
        along = torch.ones(width, width) / width
        self.along: Tensor
        self.register_buffer("along", strength * along + (1 - strength) * torch.eye(width))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.along


def layer_directions(subject: Subject) -> dict[str, float]:
    """Return the participation ratio of what enters every layer but the first, if it is wide.

    Args:
        subject: A classification.

    >>> net = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2))
    >>> _ = net[0].weight.data.copy_(torch.eye(4)[:, :2])
    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> found = layer_directions(Subject(net, "cross_entropy", (x, torch.tensor([0, 1, 0, 1]))))
    >>> {name: round(ratio, 6) for name, ratio in found.items()}
    {'1': 2.0}
    """
    try:
        layers = layers_of(subject)
    except Undefined:
        return {}
    needed = subject.outputs("train").shape[1] - 1
    wide = [
        name
        for name, size in zip(layers.names[1:], layers.sizes[1:], strict=True)
        if size >= WIDE * needed
    ]
    fitting = min(SAMPLES, max(FEWEST, NUMBERS // max(1, sum(layers.sizes))))
    some = subject.train.subset(
        some_places(subject, "train", affordable(subject, fitting, fewest=FEWEST))
    )
    rows = list(entering(subject, some, wide))[:-1] if wide else []
    return {name: directions(row) for name, row in zip(wide, rows, strict=True)}


def directions(rows: Tensor) -> float:
    """Return (Σλ)² / Σλ² of the covariance of some rows; zero if they are all equal.

    >>> directions(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    2.0
    """
    rows = rows.double() - rows.double().mean(0)
    # The smaller of both products of the rows has the same eigenvalues above zero.
    gram = rows @ rows.T if len(rows) < rows.shape[1] else rows.T @ rows
    total = float(gram.diagonal().sum())
    return total**2 / float(gram.square().sum()) if total > 0 else 0.0


def _severity(subject: Subject) -> Severity:
    """Say wrong if others fit the data better; without test data there is nobody to compare."""
    if subject.test is None:
        return "suspect"
    return "wrong" if attainable(subject).under else "note"
