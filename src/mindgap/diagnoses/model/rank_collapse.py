"""Features that have collapsed to fewer directions than the classes need."""

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Recipe, Subject
from mindgap.core.chart import Bar, Mark
from mindgap.core.diagnosis import Advice, Diagnosis, Evidence, Finding, Results, Severity
from mindgap.ops.evidence.passes import some_places
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.ops.models.head import find_head, head_features
from mindgap.training.fit import fit
from mindgap.training.rival import attainable

# In healthy nets one direction holds up to 95 % of the variance (44 of them, seeds 0 to 3):
# three classes that are steps of one quantity lie nearly on a line.
SHARE = 0.99
FEWEST = 3  # classes: two need a single direction
SAMPLES, MOST = 4, 1000  # per class, below which the rank is that of the samples; and in all


class RankCollapse(Diagnosis):
    r"""Look for features in front of the last layer that hardly span more than a line.

    Formula: $\frac{\lambda_1}{\sum_k \lambda_k} > 0.99, \qquad \lambda = \text{eigenvalues of }
    \mathrm{cov}\, h(x)$

    Reading: A linear layer needs C−1 directions to tell C classes apart freely. If nearly all
    variance of its inputs lies along one of them, classes can only be ordered along a line. In a
    model that fits its training data this is a note. In one that does not, it is the likely cause.

    Assumes: A classification of three classes or more with a linear layer at the end, which sees
    its features as they are; a normalization of its own would undo the collapse.

    >>> line = torch.arange(60.0)[:, None]
    >>> net = nn.Sequential(nn.Linear(1, 8), nn.Linear(8, 3))
    >>> data = line, torch.arange(60) // 20
    >>> RankCollapse()(Subject(net, "cross_entropy", data)).severity
    'suspect'
    """

    stage = "collapse"
    symptom = "dead units"
    exact = True
    needs = frozenset({"classification"})
    method = ("S1",)
    cites = ("papyan2020prevalence",)
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
        """Compute the rank of the features, and compare it with that of the classes."""
        classes = len(subject.targets("train").unique())
        try:
            features = head_features(subject)[some_places(subject, "train", MOST)]
        except InputError:
            return None
        if classes < FEWEST or features.shape[1] < classes or len(features) < SAMPLES * classes:
            return None
        values = _eigenvalues(features.detach().cpu().double().flatten(1))
        if not float(values[0]) > SHARE * float(values.sum()):
            return None
        return self._told(subject, values, classes)

    def _told(self, subject: Subject, values: Tensor, classes: int) -> Finding:
        share = float(values[0] / values.sum())
        rank = float(values.sum().square() / values.square().sum())
        shown = (values[: min(10, len(values))] / values.sum()).tolist()
        return self.finding(
            f"The features in front of the last layer, {find_head(subject)!r}, have collapsed to a "
            f"line: {100 * share:.1f} % of their variance lies along one direction.",
            _severity(subject),
            evidence=(
                Evidence(name="effective rank of the features", value=rank),
                Evidence(name="directions that the classes need", value=classes - 1),
                Evidence(name="variance along the first direction", value=share, percent=True),
            ),
            sentences=(f"{classes} classes can only be ordered along it.",),
            advice=(
                Advice(
                    text="Widen the narrowest layer, and look for one that averages its units.",
                ),
                Advice(text="Or put BatchNorm or LayerNorm in front of the last layer."),
            ),
            charts=(
                Bar.of(
                    {str(place): value for place, value in enumerate(shown, 1)},
                    title="Variance of the features by direction",
                    x_label="direction, the widest first",
                    y_label="share of the variance",
                    percent=True,
                    marks=(Mark(name="equal shares", y=1 / (classes - 1)),),
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Let all hidden units of a perceptron be multiples of one sum of them."""
        made = with_layer(recipe, lambda width: _Squeezed(width, strength), after=True)
        return fit(made, seed=seed).subject()


class _Squeezed(nn.Module):
    """Projects features on one fixed direction; a weaker one keeps a share of the others."""

    def __init__(self, width: int, strength: float) -> None:
        super().__init__()
        sign = 1 - 2 * (torch.arange(width) % 2).float()
        line = sign[:, None] * sign / width
        self.matrix: torch.Tensor
        self.register_buffer("matrix", strength * line + (1 - strength) * torch.eye(width))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.matrix


def _eigenvalues(features: Tensor) -> Tensor:
    """Return the eigenvalues of the covariance, the largest first, by the smaller Gram matrix."""
    centered = features - features.mean(0)
    wide = features.shape[1] > len(features)
    gram = centered @ centered.T if wide else centered.T @ centered
    values: Tensor = torch.linalg.eigvalsh(gram / len(features))
    return values.flip(0).clamp_min(0)


def _severity(subject: Subject) -> Severity:
    """Say wrong if others fit the data better; without test data there is nobody to compare."""
    if subject.test is None:
        return "suspect"
    return "wrong" if attainable(subject).under else "note"
