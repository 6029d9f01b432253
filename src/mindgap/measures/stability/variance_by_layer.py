"""How second moments of activations and gradients grow from layer to layer."""

import dataclasses
import math

from mindgap.core import Chart, Estimate, Measure, Subject, Undefined
from mindgap.ops.initialization.propagation import Propagation, curve
from mindgap.ops.initialization.subject import initial_model, propagation_of


class VarianceByLayer(Measure):
    r"""Factor per layer by which the mean square of what leaves a layer grows with depth.

    Formula: $\left( \frac{v_L}{v_1} \right)^{1/(L-1)}, \quad v_l = \frac{1}{n U_l} \sum_{i,u}
    z_{lu}(x_i)^2$

    Reading: Near one, signals keep their size. Far from one they vanish or explode with depth, and
    so do gradients, whose factor from the last layer to the first is the term "backward". The
    figures show both by layer, next to what fans, activations and sums predict for random weights,
    and next to the weights from before training if these are known.

    Assumes: At least two layers with weights, and one batch of up to 256 training samples, fewer of
    a large network. Batch normalization uses the batch's statistics; dropout is off.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(1, 1, False), torch.nn.Linear(1, 1, False))
    >>> _ = torch.nn.init.constant_(net[1].weight, 3.0)
    >>> data = torch.ones(4, 1), torch.zeros(4, 1)
    >>> round(float(VarianceByLayer()(Subject(net, "mse", data))), 4)
    9.0
    """

    method = ("S2",)
    cites = ("he2015delving", "glorot2010understanding", "poole2016exponential")
    direction = "none"
    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication"})

    def compute(self, subject: Subject) -> Estimate:
        """Return the growth forward, with the backward one and both figures."""
        found = propagation_of(subject)
        if len(found.layers) < 2:
            raise Undefined("needs at least two layers with weights")
        if not math.isfinite(found.forward_growth):
            raise Undefined("needs a signal, and nothing leaves the first layer")
        before = propagation_of(subject, "initial") if initial_model(subject) is not None else None
        terms = {"layers": float(len(found.layers)), "backward": found.backward_growth}
        if before is not None:
            terms |= {
                "initial_forward": before.forward_growth,
                "initial_backward": before.backward_growth,
            }
        return Estimate(
            value=found.forward_growth,
            terms={name: value for name, value in terms.items() if math.isfinite(value)},
            details={
                "layers": [dataclasses.asdict(row) for row in found.layers],
                "refused": dict(found.refused),
                "approximated": dict(found.approximated),
            },
            charts=tuple(_chart(found, before, what) for what in ("forward", "backward")),
        )


def _chart(found: Propagation, before: Propagation | None, what: str) -> Chart:
    chart = found.chart(what)
    if before is None:
        return chart
    extra = curve("before training", [getattr(row, what) for row in before.layers])
    return dataclasses.replace(chart, series=(*chart.series, extra)) if extra.x else chart
