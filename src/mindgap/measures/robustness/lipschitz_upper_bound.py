"""A certified upper bound of the Lipschitz constant."""

import math

from mindgap.core import Bar, Chart, Estimate, Histogram, Measure, Subject, Undefined, option
from mindgap.ops.attacks.scene import undefined_without
from mindgap.ops.lipschitz.local import certified_radii
from mindgap.ops.lipschitz.upper import Upper, upper_of


class LipschitzUpperBound(Measure):
    r"""Certified upper bound of how much faster outputs can change than inputs.

    Formula: $\lVert f(x) - f(x') \rVert_2 \le L \lVert x - x' \rVert_2, \quad L^2 = \min_\tau
    \lambda_{\max}(W \Sigma_K(\tau) W^\top)$

    Reading: No two inputs, seen or unseen, change the outputs faster. ``product`` is the product of
    layer norms, which is never smaller than the best bound of this kind. ``closed_form`` is where
    the search for multipliers starts. The details say whether the whole network was bounded at once,
    by parts, or by the product. The value is rounded up to five digits.

    Assumes: One input of real numbers per sample, and a model that takes the same way for all inputs.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> float(LipschitzUpperBound()(Subject(model, "mse", (torch.eye(2), torch.eye(2)))))
    4.0001
    """

    method = ("S5", "E9")
    cites = ("fazlyab2019efficient", "xu2024eclipse")
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})
    cost = "expensive"

    steps: int = option(24, help="steps that improve the multipliers", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Bound the whole network, and the radii that follow for the test data."""
        undefined_without(subject)
        found = upper_of(subject, self.steps)
        if not math.isfinite(found.upper):
            raise Undefined(f"needs layers that have a Lipschitz constant: {found.reason}")
        terms = {"product": found.product}
        if found.steps:
            terms |= {"closed_form": found.steps[0], "last_gain": _last_gain(found)}
        parts = {part.name: part.upper for part in found.parts}
        details = {"method": found.method, "parts": parts, "reason": found.reason}
        charts = (_bars(found), *_histogram(subject, found))
        return Estimate(
            value=_rounded_up(found.upper),
            status="estimate",
            terms=terms,
            details=details,
            charts=charts,
        )


def _last_gain(found: Upper) -> float:
    """The share by which the last quarter of the steps lowered the bound: small if it converged."""
    best = [min(found.steps[: k + 1]) for k in range(len(found.steps))]
    return 1 - best[-1] / best[-1 - len(best) // 4]


def _rounded_up(value: float, digits: int = 5) -> float:
    """Round up, so that the value stays a bound and rounding errors do not show."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return float(f"{math.ceil(value / unit) * unit:.{digits}g}")


def _bars(found: Upper) -> Chart:
    rows = {"product of layer norms": found.product}
    if found.steps:
        rows["closed form"] = found.steps[0]
    rows |= {"this bound": found.upper}
    finite = {name: value for name, value in rows.items() if math.isfinite(value)}
    return Bar.of(finite, title="Certified bounds of the Lipschitz constant", wide=False)


def _histogram(subject: Subject, found: Upper) -> list[Chart]:
    if subject.task != "classification" or subject.test is None:
        return []
    logits, targets = subject.outputs("test"), subject.targets("test")
    radii = certified_radii(logits, targets, pairs=found.pairs(), constant=found.upper)
    return [
        Histogram.of(
            {"test samples": radii},
            title="Certified radii of the test predictions",
            x_label="Euclidean distance that cannot change the prediction (wrong: 0)",
        )
    ]
