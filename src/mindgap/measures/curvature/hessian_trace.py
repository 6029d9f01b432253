"""The trace of the Hessian."""

from mindgap.core import Bar, Estimate, Interval, Subject, option
from mindgap.measures.curvature.curvature_measure import CurvatureMeasure
from mindgap.ops.curvature.products import hessian_products
from mindgap.ops.curvature.spectrum import TraceEstimate, trace

NORMAL = 1.959963984540054  # 97.5 % quantile of the normal distribution


class HessianTrace(CurvatureMeasure):
    r"""Trace of the Hessian of the training loss, the sum of all its eigenvalues.

    Formula: $\mathrm{tr}\, \nabla^2 \hat L(w) = \mathrm{tr}(Q^\top H Q) + \mathbb{E}\, g^\top (I -
    Q Q^\top) H (I - Q Q^\top) g, \quad g_i = \pm 1$

    Reading: Twice the loss that unit noise on all weights adds, to second order. Flat minima are
    claimed to generalize better, but rescaling a ReLU network changes the trace without changing
    what it computes. Q spans the space in which the largest eigenvalue was searched, where most of
    the trace is; random signs estimate the rest. The figure shows which tensors contribute.

    Assumes: A loss that is twice differentiable almost everywhere. Up to 256 weights it is exact.

    >>> import torch
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> subject = Subject(torch.nn.Linear(2, 1, bias=False), "mse", data)
    >>> round(float(HessianTrace()(subject)), 4)
    10.0
    """

    method = ("E4", "E7")
    cites = ("hutchinson1989stochastic", "meyer2021hutch")
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication"})
    cost = "moderate"

    probes: int = option(20, help="random sign vectors", low=2)

    def compute(self, subject: Subject) -> Estimate:
        """Return the trace with its standard error, in total and by tensor."""
        flat = self.flat(subject)
        pairs = self.pairs(flat)
        found = trace(hessian_products(flat), self.probes, known=pairs, seed=self.seed)
        pieces = zip(flat.named, found.diagonal.split(flat.sizes), strict=True)
        parts = {name: float(piece.sum()) for name, piece in pieces}
        whole = flat.samples == len(subject.train)
        return Estimate(
            value=found.value,
            status="exact" if whole and not found.standard_error else "estimate",
            standard_error=found.standard_error or None,
            interval=_interval(found),
            terms={"in_space": float(pairs.diagonal.sum()), "products": found.products},
            details={"by_tensor": parts, **self.told(flat, subject)},
            charts=(
                Bar.of(
                    parts,
                    title="Hessian trace by tensor",
                    y_label="trace",
                    horizontal=True,
                    wide=False,
                ),
            ),
        )


def _interval(found: TraceEstimate) -> Interval | None:
    reach = NORMAL * found.standard_error
    return Interval(low=found.value - reach, high=found.value + reach) if reach else None
