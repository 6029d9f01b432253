"""The largest eigenvalue of the Hessian, with the distribution of the others."""

import torch
from torch import Tensor

from mindgap.core import Estimate, Line, Mark, Series, Subject, standard_error
from mindgap.measures.curvature.curvature_measure import CurvatureMeasure
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import differentiating, pulled
from mindgap.ops.curvature.spectrum import Eigenpairs

GROUPS = 10  # of samples, whose curvatures along the first eigenvector tell the standard error
FAINT = 1e-8  # of the highest density; what is lower would stretch a logarithmic axis


class LargestHessianEigenvalue(CurvatureMeasure):
    r"""Largest eigenvalue of the Hessian of the training loss.

    Formula: $\lambda_1 = \max_{\lVert v \rVert = 1} v^\top \nabla^2 \hat L(w)\, v$

    Reading: The curvature in the sharpest direction. Gradient descent with a learning rate above
    2/λ₁ leaves the minimum along it. Sharp minima are claimed to generalize worse, but rescaling a
    ReLU network makes λ₁ as large as one likes without changing what it computes: compare models of
    one architecture, trained alike. ``second`` and ``smallest`` are other eigenvalues. A clearly
    negative ``smallest`` means that the weights are no minimum. ``residual`` bounds the distance
    of each to an eigenvalue. The figure shows how all eigenvalues are distributed, as the two random
    directions in which the search starts tell by stochastic Lanczos quadrature.

    Assumes: Weights near a minimum. On fewer samples than there are, λ₁ is biased upward; the
    standard error is the spread of groups of them along the eigenvector, and leaves the bias out.
    Of a network whose passes take long, fewer samples are used, at least 100.

    >>> import torch
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> subject = Subject(torch.nn.Linear(2, 1, bias=False), "mse", data)
    >>> round(float(LargestHessianEigenvalue()(subject)), 4)  # 2 · (1 + 4)
    10.0
    """

    method = ("E4", "E7")
    cites = ("ghorbani2019investigation", "lanczos1950iteration")
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication"})
    cost = "moderate"

    def compute(self, subject: Subject) -> Estimate:
        """Return the largest eigenvalue, its neighbors, the residual, and the density."""
        flat = self.searched(self.flat(subject))
        pairs = self.pairs(flat)
        whole = flat.samples == len(subject.train)
        exact = len(pairs.space) == len(flat.point) and whole
        return Estimate(
            value=float(pairs.values[0]),
            status="exact" if exact else "estimate",
            standard_error=None if whole else _error(flat, pairs.vectors[0]),
            terms={
                "second": float(pairs.values[min(1, len(pairs.values) - 1)]),
                "smallest": float(pairs.values[-1]),
                "residual": float(pairs.residuals.max()),
                "mean_eigenvalue": pairs.density.moment(1),
                "products": pairs.products,
            },
            details={
                "converged": pairs.converged,
                "residuals": pairs.residuals.tolist(),
                **self.told(flat, subject),
            },
            charts=(_chart(pairs),),
        )


def _error(flat: FlatLoss, vector: Tensor) -> float:
    """The standard error of the mean curvature along a direction, from groups of samples."""
    curvatures, along = list[float](), vector.to(flat.point)
    for batch in flat.batches(size=-(-flat.samples // GROUPS)):
        at = flat.point.requires_grad_()
        with differentiating(flat):
            (slope,) = torch.autograd.grad(flat.sum(at, batch), at, create_graph=True)
            bent = pulled(slope, at, along[None])[0]
        curvatures.append(float(bent.double() @ along.double()) / len(batch.target))
    return standard_error(curvatures)


def _chart(pairs: Eigenpairs) -> Line:
    places, heights = pairs.density.curve()
    shown = heights.clamp(min=FAINT * float(heights.max()))
    return Line(
        title="Density of the Hessian's eigenvalues",
        x_label="eigenvalue",
        y_label="density",
        y_scale="log",
        series=[Series(name="density", x=places.tolist(), y=shown.tolist(), mode="lines")],
        marks=[Mark(name="λ₁", x=float(pairs.values[0]))],
    )
