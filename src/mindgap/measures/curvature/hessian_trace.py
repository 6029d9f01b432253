"""The trace of the Hessian."""

import torch

from mindgap.core import Bar, Estimate, Interval, Subject, option, standard_error
from mindgap.measures.curvature.curvature_measure import CurvatureMeasure
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.hessian_diagonal import gauss_newton_parts
from mindgap.ops.curvature.products import hessian_products
from mindgap.ops.curvature.spectrum import DENSE, TraceEstimate, trace
from mindgap.ops.curvature.straight import is_straight

NORMAL = 1.959963984540054  # 97.5 % quantile of the normal distribution


class HessianTrace(CurvatureMeasure):
    r"""Trace of the Hessian of the training loss, the sum of all its eigenvalues.

    Formula: $\mathrm{tr}\, \nabla^2 \hat L(w) = \mathrm{tr}(Q^\top H Q) + \mathbb{E}\, g^\top (I -
    Q Q^\top) H (I - Q Q^\top) g, \quad g_i = \pm 1$

    Reading: Twice the loss that unit noise on all weights adds, to second order. Flat minima are
    claimed to generalize better, but rescaling a ReLU network changes the trace without changing
    what it computes. In a network of ReLU layers, which is linear in each tensor by itself, the
    Gauss–Newton diagonal is the Hessian's, and its exact sum is taken. The standard error is then
    that of the drawn samples. In other networks Q spans the space in which the largest eigenvalue
    was searched, where most of the trace is; random signs estimate the rest, and the standard error
    is theirs. ``probed`` is 1 in this case. The figure shows which tensors contribute.

    Assumes: A loss that is twice differentiable almost everywhere. Up to 256 weights, and in ReLU
    networks, the trace on the samples used is exact.

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

    probes: int = option(20, help="random sign vectors, where they are needed", low=2)

    def compute(self, subject: Subject) -> Estimate:
        """Return the trace with its standard error, in total and by tensor."""
        flat = self.flat(subject)
        straight = len(flat.point) > DENSE and is_straight(flat, seed=self.seed)
        flat = flat if straight else self.searched(flat)
        found = _summed(flat) if straight else self._probed(flat)
        pieces = zip(flat.named, found.diagonal.split(flat.sizes), strict=True)
        parts = {name: float(piece.sum()) for name, piece in pieces}
        whole = flat.samples == len(subject.train)
        error = 0.0 if straight and whole else found.standard_error
        return Estimate(
            value=found.value,
            status="exact" if whole and not error else "estimate",
            standard_error=error or None,
            interval=_interval(found.value, error),
            terms={"products": found.products, "probed": float(not straight)},
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

    def _probed(self, flat: FlatLoss) -> TraceEstimate:
        known = self.pairs(flat)
        return trace(hessian_products(flat), self.probes, known=known, seed=self.seed)


def _summed(flat: FlatLoss) -> TraceEstimate:
    """Sum the Gauss–Newton diagonal; batches of samples tell how much the draw matters."""
    total = torch.zeros(len(flat.point), dtype=torch.float64, device=flat.point.device)
    traces = list[float]()
    for part, count in gauss_newton_parts(flat, flat.point):
        total += part
        traces.append(float(part.sum()) / count)
    return TraceEstimate(
        value=float(total.sum()) / flat.samples,
        standard_error=standard_error(traces) if len(traces) > 1 else 0.0,
        diagonal=total / flat.samples,
        products=0,
    )


def _interval(value: float, error: float) -> Interval | None:
    reach = NORMAL * error
    return Interval(low=value - reach, high=value + reach) if reach else None
