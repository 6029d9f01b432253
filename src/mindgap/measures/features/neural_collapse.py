"""How far the last layer and its features have collapsed to one point per class."""

import torch
from torch import Tensor

from mindgap.core import (
    Bar,
    Estimate,
    Measure,
    Subject,
    Undefined,
    jackknife_error,
    jackknife_groups,
)
from mindgap.measures.features.davies_bouldin import (
    class_features,
    class_means,
    from_means,
    means_without_groups,
)
from mindgap.ops.models.head import find_head, layer_of

TINY = 1e-10  # eigenvalues below this share of the largest are rounding


class NeuralCollapse(Measure):
    r"""Variability of features within classes over that between them (NC1), with NC2 to NC4.

    Formula: $\mathrm{NC1} = \frac{1}{C} \mathrm{tr}\left( \Sigma_W \Sigma_B^{+} \right), \quad
    \mathrm{NC3} = \left\lVert \frac{W}{\lVert W \rVert_F} - \frac{M^\top}{\lVert M \rVert_F}
    \right\rVert_F$

    Reading: NC1 tends to zero in long training: all samples of a class get one feature. NC2: the
    centered class means have equal norms (``nc2_norms``, their coefficient of variation) and equal
    angles (``nc2_angles``, the mean distance of cosines from −1/(C−1)); ``nc2_weight_…`` say the
    same of the last layer's rows. NC3: the last layer is the means, up to a factor. NC4: the share
    of samples whose nearest class mean is another class than the network's. Random labels that are
    fitted collapse as well, so it is no sign of generalization.

    Assumes: A classification with a linear layer at the end; classes are of about equal size. Of
    more than six million numbers a part of the samples is drawn, as ``samples`` and ``of`` tell.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]])
    >>> data = x, torch.tensor([0, 0, 1, 1])
    >>> result = NeuralCollapse()(Subject(torch.nn.Linear(2, 2), "cross_entropy", data))
    >>> float(result), result.terms["nc2_norms"]
    (0.0, 0.0)
    """

    method = ("E10",)
    cites = ("papyan2020prevalence",)
    direction = "none"
    needs = frozenset({"classification"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )
    cost = "moderate"

    def compute(self, subject: Subject) -> Estimate:
        """Return NC1 with its standard error, and the other three."""
        features, targets, places = class_features(subject)
        known, labels = targets.unique(return_inverse=True)
        means, _ = class_means(features, labels)
        centered = means - means.mean(0)
        if not float(centered.norm()) > TINY * float(features.norm()):
            raise Undefined("needs classes whose mean features differ")
        head = layer_of(subject.model, find_head(subject)).weight.detach().cpu().double()
        terms = {
            **_simplex(centered, ""),
            **_rows(head, known, centered),
            "nc4": _disagreement(
                features, means, subject.predictions("train").cpu()[places], known
            ),
            "samples": len(features),
            "of": len(subject.train),
        }
        spread = from_means(features, labels)
        error = jackknife_error(_without_groups(features, labels))
        return Estimate(
            value=_nc1(features, labels),
            status="estimate",
            standard_error=error,
            terms=terms,
            details={"layer": find_head(subject), "classes": len(known)},
            charts=(_chart(spread, centered),),
        )


def _nc1(features: Tensor, labels: Tensor) -> float:
    """Compute NC1 in the span of the class means, where alone the pseudo-inverse acts."""
    means, counts = class_means(features, labels)
    basis, between = _span(means[counts > 0])
    within = (from_means(features, labels) @ basis).square().mean(0)
    return float((within / between).sum()) / int((counts > 0).sum())


def _without_groups(features: Tensor, labels: Tensor) -> list[float]:
    """Compute NC1 without each group of samples.

    Without a group, the mean of a class moves by what its other samples are off on average, so the
    squares from the old mean exceed those from the new one by the square of that move.
    """
    own = jackknife_groups(len(labels))
    away, old = from_means(features, labels), class_means(features, labels)[0]
    found = list[float]()
    for group, (means, left) in enumerate(
        zip(*means_without_groups(features, labels, own), strict=True)
    ):
        kept = left > 0
        basis, between = _span(means[kept])
        squares = (own != group).double() @ (away @ basis).square()
        moved = left @ ((means - old) @ basis).square()
        within = (squares - moved).clamp_min(0) / left.sum()
        found.append(float((within / between).sum()) / int(kept.sum()))
    return found


def _span(means: Tensor) -> tuple[Tensor, Tensor]:
    """Return directions in which class means differ, one per column, and their variances."""
    _, sizes, basis = torch.linalg.svd(means - means.mean(0), full_matrices=False)
    real = sizes.square() > TINY * sizes[0].square()
    return basis[real].T, sizes[real].square() / len(means)


def _simplex(rows: Tensor, name: str) -> dict[str, float]:
    """Tell how far rows are from equal norms and equal angles."""
    norms = rows.norm(dim=1)
    unit = rows / norms.clamp_min(1e-300)[:, None]
    apart = ~torch.eye(len(rows), dtype=torch.bool)
    cosines = (unit @ unit.T)[apart]
    return {
        f"nc2_{name}norms": float(norms.std(correction=0) / norms.mean()),
        f"nc2_{name}angles": float((cosines + 1 / (len(rows) - 1)).abs().mean()),
    }


def _rows(head: Tensor, known: Tensor, centered: Tensor) -> dict[str, float]:
    """Compare the last layer, without outputs of absent classes, with the class means."""
    if int(known.max()) >= len(head) or head.shape[1] != centered.shape[1]:
        return {}
    rows = head[known] - head[known].mean(0)
    if not float(rows.norm()) > 0:
        return {}
    return {
        **_simplex(rows, "weight_"),
        "nc3": float((rows / rows.norm() - centered / centered.norm()).norm()),
    }


def _disagreement(features: Tensor, means: Tensor, predicted: Tensor, known: Tensor) -> float:
    nearest = known[torch.cdist(features, means).argmin(1)]
    return float((nearest != predicted).double().mean())


def _chart(within: Tensor, centered: Tensor) -> Bar:
    """Show the spread of both kinds along the directions in which class means differ."""
    _, sizes, basis = torch.linalg.svd(centered, full_matrices=False)
    count = min(len(centered) - 1, len(basis))
    inside = (within @ basis[:count].T).square().mean(0)
    ratio = inside / (sizes[:count].square() / len(centered)).clamp_min(1e-300)
    values = {str(place): value for place, value in enumerate(ratio.tolist(), 1)}
    return Bar.of(
        values,
        title="Variance within classes over that between them",
        x_label="direction between class means, the widest first",
        y_label="ratio",
    )
