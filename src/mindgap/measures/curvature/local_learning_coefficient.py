"""The local learning coefficient of singular learning theory, by Langevin dynamics."""

import math

import torch
from torch import Tensor

from mindgap.core import Estimate, Line, Series, Subject, Undefined, option, standard_error
from mindgap.measures.curvature.curvature_measure import MOST, CurvatureMeasure
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.langevin import Langevin, Shrink, potential_scale_reduction
from mindgap.ops.curvature.products import hessian_products
from mindgap.ops.curvature.spectrum import top_eigenpairs

AGREE = 1.1  # largest R̂ of chains that agree
DRIFT = 0.1  # largest change from the first half of the draws to the second, as a part of the value
SHARPEST = 10  # directions along which steps are shortened: as many as a usual net has outliers
FASTER = 8.0  # largest step over that along the sharpest direction; see SHARE
SHARE = 0.25  # of the inverse of the curvature; from 4 on chains of a quadratic diverge


class LocalLearningCoefficient(CurvatureMeasure):
    r"""Effective number of dimensions in which the loss rises around the weights, halved.

    Formula: $\hat\lambda = n \beta \left( \mathbb{E}_{w \sim p}\, \hat L(w) - \hat L(w^*) \right),
    \quad p(w) \propto \exp\left( -n \beta \hat L(w) - \frac{\gamma}{2} \lVert w - w^* \rVert^2
    \right), \quad \beta = \frac{1}{\ln n}$

    Reading: It is d/2 for d weights whose Hessian is regular, and smaller where weights do not
    matter. Directions flatter than the spring, n β h < γ, hardly count: compare values of one γ and n
    only. ``converged`` in the details says whether the chains agree (``r_hat`` below 1.1) and drift
    by no more than a tenth or their noise; otherwise longer chains are needed. A negative value
    means that the weights are no minimum. ``step`` is the step size. It is set by the largest
    eigenvalue of the Hessian if 0 is given.

    Assumes: A loss that is a negative log-likelihood, at a local minimum.

    >>> x = torch.eye(4, dtype=torch.float64).repeat(50, 1)
    >>> model = torch.nn.Linear(4, 1, bias=False).double()
    >>> _ = model.weight.data.zero_()
    >>> measure = LocalLearningCoefficient(localization=0.01)
    >>> found = measure(Subject(model, "mse", (x, torch.zeros(200, 1))))
    >>> abs(float(found) - 2) < 0.3  # four weights
    True
    """

    method = ("E8",)
    cites = ("lau2023quantifying", "leimkuhler2013rational", "baker2019control")
    direction = "lower"
    cost = "expensive"

    samples: int = option(
        1_000, help="training samples whose curvature chooses the step size", low=2
    )
    localization: float = option(100.0, help="γ, the strength of the spring", above=0)
    step: float = option(0.0, help="ε, the step size; 0 chooses it by the curvature", low=0)
    chains: int = option(4, help="chains that run together", low=2)
    burn_in: int = option(200, help="steps before anything is recorded", low=0)
    draws: int = option(400, help="steps that are recorded", low=4)
    batch_size: int = option(500, help="samples per step", low=1)

    def compute(self, subject: Subject) -> Estimate:
        """Return the coefficient, its standard error over chains, and whether they agree."""
        some, flat = self.flat(subject), FlatLoss(subject)
        # Batches come from all samples: the weights are a minimum of no smaller part of them.
        scale = len(subject.train) / math.log(max(len(subject.train), 3))
        step, shrink = self._steps(some, scale)
        rises = Langevin(
            inverse_temperature=scale,
            localization=self.localization,
            step=step,
            chains=self.chains,
            burn_in=self.burn_in,
            draws=self.draws,
            batch_size=self.batch_size,
            seed=self.seed,
        ).rises(flat, shrink)
        if not bool(torch.isfinite(rises).all()):
            raise Undefined(f"the chains diverged with step size {step:.3g}; pass a smaller step")
        return self._estimate(scale * rises, flat, subject, step)

    def _steps(self, some: FlatLoss, scale: float) -> tuple[float, Shrink | None]:
        """Return the step size, and what makes steps along the sharpest directions shorter.

        The others then move at the speed of the flattest of these, but at most eight times that of
        the sharpest: chains stay stable where the sharpest direction turns on their way.
        """
        if self.step:
            return self.step, None
        pairs = some.subject.cached(
            ("sharpest", self.seed),
            lambda: top_eigenpairs(
                hessian_products(some), min(SHARPEST, len(some.point)), most=MOST, seed=self.seed
            ),
        )
        stiffness = scale * pairs.values.clamp_min(0) + self.localization
        kept = max(float(stiffness[-1]), float(stiffness[0]) / FASTER)
        return SHARE / kept, Shrink(pairs.vectors, (kept / stiffness).clamp_max(1.0))

    def _estimate(self, draws: Tensor, flat: FlatLoss, subject: Subject, step: float) -> Estimate:
        means = draws.mean(1).tolist()
        value = sum(means) / len(means)
        halves = [part.mean(1) for part in draws.chunk(2, 1)]
        drifts, r_hat = (halves[1] - halves[0]).tolist(), potential_scale_reduction(draws)
        drift = sum(drifts) / len(drifts)
        # A drift that the chains do not agree on is noise.
        steady = abs(drift) <= max(DRIFT * abs(value), 2 * standard_error(drifts))
        return Estimate(
            value=value,
            status="estimate",
            standard_error=standard_error(means),
            terms={
                "r_hat": r_hat,
                "drift": drift,
                "inverse_temperature": len(subject.train) / math.log(max(len(subject.train), 3)),
                "localization": self.localization,
                "step": step,
                "half_of_weights": len(flat.point) / 2,
            },
            details={
                "converged": r_hat < AGREE and steady and value > 0,
                "chains": means,
                **self.told(flat, subject),
            },
            charts=(_chart(draws),),
        )


def _chart(draws: Tensor) -> Line:
    running = draws.cumsum(1) / torch.arange(1, draws.shape[1] + 1)
    steps = list(range(1, draws.shape[1] + 1))
    return Line(
        title="Local learning coefficient, running mean of every chain",
        x_label="recorded step",
        y_label="n β times the rise of the loss",
        series=[
            Series(name=f"chain {k + 1}", x=steps, y=row.tolist(), mode="lines")
            for k, row in enumerate(running)
        ],
    )
