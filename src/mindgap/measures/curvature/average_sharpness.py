"""Adaptive average-case sharpness."""

import itertools

import torch
from torch import Tensor

from mindgap.core import Estimate, Histogram, Subject, evaluating, generator, option, standard_error
from mindgap.measures.curvature.curvature_measure import CurvatureMeasure
from mindgap.ops.curvature.flat_loss import FlatLoss


class AverageSharpness(CurvatureMeasure):
    r"""Mean rise of the training loss under Gaussian noise relative to each weight.

    Formula: $S_{avg}^\rho = \mathbb{E}_{u \sim N(0, \rho^2 \mathrm{diag}(w^2))} \hat L(w + u) -
    \hat L(w)$

    Reading: To second order it is ρ²/2 times the trace of the Hessian, every weight scaled by its
    size. Rescaling ReLU layers changes nothing. The mean over batches of any size m is the same, so
    all samples are used, or other ones for each draw if the network is large. Each draw is taken with
    both signs, which removes the slope.

    Assumes: Nothing.

    >>> model = torch.nn.Linear(1, 1, bias=False).double()
    >>> _ = model.weight.data.fill_(2.0)
    >>> data = (torch.ones(2, 1).double(), torch.ones(2, 1))
    >>> found = AverageSharpness(radius=0.1, draws=2000)(Subject(model, "mse", data))
    >>> abs(float(found) - 0.04) < 4 * found.standard_error  # ρ² w²
    True
    """

    method = ("E7",)
    cites = ("andriushchenko2023modern",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "duplication", "relu-rescaling"})
    cost = "moderate"

    radius: float = option(0.05, help="ρ, the noise's standard deviation relative to |w|", above=0)
    draws: int = option(10, help="draws of noise, each with both signs", low=2)

    def compute(self, subject: Subject) -> Estimate:
        """Return the mean rise over draws, with its standard error."""
        flat = self.flat(subject)
        here, source = flat.point, generator(self.seed)
        groups = self.groups(flat, self.draws, 3)
        every = _loss(flat, here) if groups is None else 0.0
        losses, rises = list[float](), list[float]()
        for group in groups or itertools.repeat(None, self.draws):
            noise = torch.randn(len(here), generator=source, dtype=torch.float64).to(here.device)
            step = self.radius * here.double().abs() * noise
            both = [_loss(flat, (here.double() + sign * step).to(here), group) for sign in (1, -1)]
            losses.append(every if group is None else _loss(flat, here, group))
            rises.append(sum(both) / 2 - losses[-1])
        mean = every if groups is None else sum(losses) / self.draws
        return Estimate(
            value=sum(rises) / self.draws,
            status="estimate",
            standard_error=standard_error(rises),
            terms={"loss": mean, "largest": max(rises), "radius": self.radius},
            details=self.told(flat, subject, groups),
            charts=(
                Histogram.of(
                    {"draws": torch.tensor(rises)},
                    bins=10,
                    title="Rise of the loss by draw of noise",
                    x_label="rise of the loss",
                ),
            ),
        )


def _loss(flat: FlatLoss, point: Tensor, places: Tensor | None = None) -> float:
    count = flat.samples if places is None else len(places)
    with evaluating(flat.model):
        return (
            sum(float(flat.losses(point, b).double().sum()) for b in flat.batches(places)) / count
        )
