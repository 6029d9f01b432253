"""The variance of the gradients of single samples."""

import torch

from mindgap.core import Bar, Estimate, Subject, standard_error
from mindgap.measures.curvature.curvature_measure import CurvatureMeasure
from mindgap.ops.curvature.hessian_diagonal import sample_gradients
from mindgap.ops.evidence.passes import affordable, operations

PER_WEIGHT = 500  # operations that the squares of a sample's gradient take per weight, by time


class GradientNoise(CurvatureMeasure):
    r"""Variance of the gradients of single training samples, at the end of training.

    Formula: $\mathrm{tr}\, \Sigma = \frac{1}{n} \sum_i \lVert \nabla \ell_i(w) - \nabla \hat L(w)
    \rVert^2$

    Reading: The noise of SGD with batch size one. It is claimed to be small where a network
    generalizes well, and it vanishes as the training loss does. ``noise_scale`` is the noise
    divided by the squared gradient, which is roughly the batch size beyond which larger batches
    save no steps. The variant of Jiang and others after the first epoch needs weights that are not
    recorded: measure a checkpoint of that epoch.

    Assumes: Nothing. Rescaling a ReLU network changes it.

    >>> model = torch.nn.Linear(1, 1, bias=False).double()
    >>> _ = model.weight.data.fill_(0.0)
    >>> data = (torch.ones(2, 1).double(), torch.tensor([[1.0], [3.0]]))
    >>> float(GradientNoise()(Subject(model, "mse", data)))  # slopes −2 and −6
    4.0
    """

    method = ("E7",)
    cites = ("jiang2020fantastic", "mccandlish2018empirical")
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication"})
    cost = "moderate"

    def compute(self, subject: Subject) -> Estimate:
        """Return the variance, in total and by tensor, and the noise scale."""
        most = affordable(subject, self.samples, passes=_passes(subject), work=self.work)
        flat = self.flat(subject, most)
        mean = flat.gradient(flat.point)
        total, distances = torch.zeros_like(mean), list[float]()
        for rows in sample_gradients(flat, flat.point):
            squares = (rows - mean).square()
            total += squares.sum(0)
            distances += squares.sum(1).tolist()
        pieces = zip(flat.named, (total / flat.samples).split(flat.sizes), strict=True)
        parts = {name: float(piece.sum()) for name, piece in pieces}
        value, signal = sum(distances) / flat.samples, float(mean.square().sum())
        whole = flat.samples == len(subject.train)
        scale = {"noise_scale": value / signal} if signal else {}
        return Estimate(
            value=value,
            status="exact" if whole else "estimate",
            standard_error=None if whole else standard_error(distances),
            terms={"squared_gradient": signal, **scale},
            details={
                "by_tensor": parts,
                "after_first_epoch": "not available: weights of that epoch are not recorded",
                **self.told(flat, subject),
            },
            charts=(
                Bar.of(
                    parts,
                    title="Gradient noise by tensor",
                    y_label="variance",
                    horizontal=True,
                    wide=False,
                ),
            ),
        )


def _passes(subject: Subject) -> float:
    """Count two gradients, and what is done with one of them, in forward passes."""
    weights = sum(weight.numel() for weight in subject.model.parameters())
    return 6 + PER_WEIGHT * weights / operations(subject)
