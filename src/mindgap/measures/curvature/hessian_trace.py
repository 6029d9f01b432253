"""The trace of the Hessian."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.core import (
    Bar,
    Estimate,
    Interval,
    Subject,
    Undefined,
    generator,
    option,
    standard_error,
)
from mindgap.measures.curvature.curvature_measure import CurvatureMeasure
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.hessian_diagonal import gauss_newton_parts
from mindgap.ops.curvature.layerwise import layers_of
from mindgap.ops.curvature.products import CHUNK, differentiating, hessian_products, pulled
from mindgap.ops.curvature.spectrum import DENSE, TraceEstimate, trace
from mindgap.ops.curvature.straight import FEW, is_straight
from mindgap.ops.evidence.passes import affordable, operations

PRODUCT, PER_WEIGHT = 6, 200  # forward passes of a product; operations of squares, by time
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
    is theirs. ``probed`` is 1 in this case. In a network that is too large for that search, every
    vector of signs sees other samples, and the error is that of both. The figure shows which tensors
    contribute.

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
        large, straight, groups = len(flat.point) > DENSE, False, None
        if large:
            straight = is_straight(flat, seed=self.seed, samples=self._tried(flat))
        if straight:
            most = affordable(subject, flat.samples, passes=self._summing(flat), work=self.work)
            flat = self.flat(subject, most)
            found = _summed(flat)
        else:
            flat, found, groups = self._estimated(flat)
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
            details={"by_tensor": parts, **self.told(flat, subject, groups)},
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

    def _tried(self, flat: FlatLoss) -> int:
        passes = 3 * len(flat.sizes)
        return affordable(flat.subject, FEW, passes=passes, fewest=2, work=self.work)

    def _summing(self, flat: FlatLoss) -> float:
        """Count the gradient of every output, and what is done with it, in forward passes."""
        outputs = flat.subject.outputs("train")[0].numel()
        squares = 0.0 if layers_of(flat) else PER_WEIGHT * len(flat.point)
        return 1 + outputs * (2 + squares / operations(flat.subject))

    def _estimated(self, flat: FlatLoss) -> tuple[FlatLoss, TraceEstimate, list[Tensor] | None]:
        """Estimate the trace with the space of a search, or without where a search is too large."""
        try:
            some = self.searched(flat)
        except Undefined:
            groups = self.groups(flat, self.probes, PRODUCT)
            return flat, self._drawn(flat, groups or [None] * self.probes), groups
        known = self.pairs(some)
        found = trace(hessian_products(some), self.probes, known=known, seed=self.seed)
        return some, found, None

    def _drawn(self, flat: FlatLoss, groups: Sequence[Tensor | None]) -> TraceEstimate:
        """Multiply one vector of random signs after the other: few would fit in memory at once."""
        total, source = torch.zeros(len(flat.point), dtype=torch.float64), generator(self.seed)
        draws = list[float]()
        for group in groups:
            signs = 2.0 * torch.randint(0, 2, (len(total),), generator=source) - 1
            parts = signs * _product(flat, signs.to(flat.point), group)
            draws.append(float(parts.double().sum()))
            total += parts
        return TraceEstimate(
            value=sum(draws) / len(draws),
            standard_error=standard_error(draws),
            diagonal=total / len(draws),
            products=len(draws),
        )


def _product(flat: FlatLoss, vector: Tensor, places: Tensor | None) -> Tensor:
    """Multiply the Hessian of the mean loss of some samples with a vector."""
    found, at = torch.zeros_like(vector), flat.point.requires_grad_()
    for batch in flat.batches(places, CHUNK):
        with differentiating(flat):
            (slope,) = torch.autograd.grad(flat.sum(at, batch), at, create_graph=True)
            found += pulled(slope, at, vector[None])[0]
    return found.cpu() / (flat.samples if places is None else len(places))


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
