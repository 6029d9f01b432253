"""The derivative bound of one input, with slopes read from the data."""

import torch
from torch import Tensor

from mindgap.core import Estimate, Measure, Subject, Undefined, option
from mindgap.ops.taylor.derivative_bound import derivative_bound
from mindgap.ops.taylor.metric import taylor_terms


class SlopeInCells(Measure):
    r"""Error that the slopes of target and model allow between training samples, for one input.

    Formula: $\frac{1}{|S|} \sum_i \left( |f'(X_i)| + K \right)^2 \int_{S_i} |x - X_i|^2 \, dx,
    \qquad \int_{S_i} |x - X_i|^2 \, dx = \frac{a_i^3 + b_i^3}{3}$

    Reading: Each training sample answers for the part of the input range that lies nearest to it.
    Room for error is large where samples are sparse and the target is steep: that is where more
    samples help most. In the squared units of the target; compare it with the gap in mean squared
    error.

    Assumes: One input, one output, a model that meets every sample, and inputs spread evenly over
    their range. Slopes of the target come from neighboring samples and the model's slope from a
    grid, so this is an estimate, not a bound; ``mindgap.ops.taylor.derivative_bound`` proves one
    where the function is known.

    >>> SlopeInCells().grid
    2000
    """

    method = ("V1",)
    cites = ("novello2020variance",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    grid: int = option(2000, help="inputs at which the slope of the model is taken", low=2)

    def compute(self, subject: Subject) -> Estimate:
        """Return the sum over cells, and how much of it is due to the target alone."""
        inputs, target = _line(subject)
        values, slopes = target_slopes(inputs, target)
        low, high = float(values[0]), float(values[-1])
        steepest = self._steepest(subject, low, high)
        parts = derivative_bound(values, slopes, steepest, low=low, high=high) / (high - low)
        alone = derivative_bound(values, slopes, 0.0, low=low, high=high) / (high - low)
        terms = {
            "lipschitz": steepest,
            "steepest_target": float(slopes.abs().max()),
            "target_alone": float(alone.sum()),
        }
        worst = values[parts.argmax()]
        return Estimate(
            value=float(parts.sum()),
            status="heuristic",
            terms=terms,
            details={"worst_input": float(worst)},
        )

    def _steepest(self, subject: Subject, low: float, high: float) -> float:
        like = next(iter(subject.model.parameters()), torch.zeros(1))
        points = torch.linspace(low, high, self.grid, dtype=torch.float64).to(like)[:, None]
        subject.model.eval()
        slopes = taylor_terms(lambda rows: subject.forward((rows,)).flatten(1), points, 1)
        return float(slopes.max().sqrt())


def target_slopes(inputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct inputs in order and how steep the mean target is there, from both neighbors."""
    values, place, copies = inputs.unique(return_inverse=True, return_counts=True)
    if len(values) < 3:
        raise Undefined("needs at least three different inputs")
    means = torch.zeros_like(values).scatter_add(0, place, target) / copies
    (slopes,) = torch.gradient(means, spacing=(values,))
    return values, slopes.abs()


def _line(subject: Subject) -> tuple[Tensor, Tensor]:
    if subject.task != "regression":
        raise Undefined(f"needs a regression, this is a {subject.task}")
    target = subject.targets("train").double()
    inputs = subject.train.take(torch.arange(len(subject.train))).inputs
    if (
        isinstance(inputs, dict)
        or len(inputs) != 1
        or inputs[0][0].numel() != 1
        or target[0].numel() != 1
    ):
        raise Undefined("needs one input and one output")
    return inputs[0].double().flatten(), target.flatten()
