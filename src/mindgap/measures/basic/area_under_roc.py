"""How well the scores separate two classes."""

import torch
from torch import Tensor

from mindgap.core import Estimate, Line, Measure, Series, Subject, Undefined, Which

MOST_POINTS = 200  # of a curve; more cannot be seen
MOST_CURVES = 6


class AreaUnderRoc(Measure):
    r"""Area under the ROC curve: how often a positive sample scores above a negative one.

    Formula: $P(s(x^+) > s(x^-)) + \frac{1}{2} P(s(x^+) = s(x^-))$

    Reading: 1 ranks all positive samples above all negative ones, and 0.5 is a coin. It does not
    depend on the threshold or on how frequent the classes are. If it is high and the error is high
    as well, move the threshold. The curve shows every threshold: which share of the positive
    samples it finds, and which share of the negative ones it takes for positive.

    Assumes: Two classes, where class 1 is positive and the score is the difference of the logits;
    or yes/no labels, where the area is the mean over labels that have samples of both kinds. Test
    data are used if there are any.

    >>> logits = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    >>> data = logits, torch.tensor([0, 1, 1])
    >>> float(AreaUnderRoc()(Subject(torch.nn.Identity(), "cross_entropy", data)))
    1.0
    """

    method = ("K1",)
    cites = ("fawcett2006introduction",)
    direction = "higher"
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )

    def compute(self, subject: Subject) -> Estimate:
        """Return the mean area over labels, the area of each, and their curves."""
        which: Which = "train" if subject.test is None else "test"
        scores, labels = _scored(subject, which)
        both = [k for k in range(labels.shape[1]) if 0 < labels[:, k].sum() < len(labels)]
        if not both:
            raise Undefined("needs samples of both classes")
        areas = {_name(subject, k): area_under_roc(scores[:, k], labels[:, k]) for k in both}
        return Estimate(
            value=sum(areas.values()) / len(areas),
            details={"which": which, "areas": areas},
            charts=(_chart(subject, which, scores, labels, both[:MOST_CURVES]),),
        )


def area_under_roc(scores: Tensor, positive: Tensor) -> float:
    """Compute the area by ranks; ties count half.

    Args:
        scores: One number per sample.
        positive: Whether the sample is positive.

    >>> area_under_roc(torch.tensor([1.0, 2.0, 2.0]), torch.tensor([False, True, False]))
    0.75
    """
    _, places, counts = scores.unique(return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    ranks = (ends - (counts - 1) / 2)[places]
    some = int(positive.sum())
    others = len(positive) - some
    return float((ranks[positive].sum() - some * (some + 1) / 2) / (some * others))


def _scored(subject: Subject, which: Which) -> tuple[Tensor, Tensor]:
    """One column per label: the scores, and whether the sample is positive."""
    outputs, targets = subject.outputs(which).double().cpu(), subject.targets(which).cpu()
    if subject.task == "multilabel":
        return outputs.flatten(1) if outputs.ndim > 1 else outputs[:, None], (
            targets.reshape(len(targets), -1) > 0.5
        )
    if subject.task != "classification" or outputs.shape[1] != 2:
        raise Undefined("needs two classes or yes/no labels")
    return (outputs[:, 1] - outputs[:, 0])[:, None], (targets == 1)[:, None]


def _name(subject: Subject, k: int) -> str:
    place = 1 if subject.task == "classification" else k
    if place < len(subject.classes):
        return subject.classes[place]
    return f"class {place}" if subject.task == "classification" else f"label {place}"


def _chart(
    subject: Subject, which: Which, scores: Tensor, labels: Tensor, shown: list[int]
) -> Line:
    data = "test" if which == "test" else "training"
    curves = [_curve(_name(subject, k), scores[:, k], labels[:, k]) for k in shown]
    return Line(
        title=f"ROC curve ({data} data)",
        caption="A coin is on the diagonal."
        if labels.shape[1] <= MOST_CURVES
        else f"The first {MOST_CURVES} labels. A coin is on the diagonal.",
        x_label="share of negative samples taken for positive",
        y_label="share of positive samples found",
        series=[*curves, Series(name="a coin", x=[0.0, 1.0], y=[0.0, 1.0], mode="lines")],
    )


def _curve(name: str, scores: Tensor, positive: Tensor) -> Series:
    _, places = scores.unique(return_inverse=True)
    found = [
        torch.bincount(places[kind], minlength=int(places.max()) + 1).flip(0).cumsum(0).double()
        for kind in (~positive, positive)
    ]
    false, true = (torch.cat([torch.zeros(1), part / part[-1]]) for part in found)
    kept = torch.linspace(0, len(false) - 1, min(MOST_POINTS, len(false))).round().long()
    return Series(name=name, x=false[kept].tolist(), y=true[kept].tolist(), mode="lines")
