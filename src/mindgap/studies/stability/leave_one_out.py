"""Leave-one-out stability against the gap, the uniform bound, and the influence estimate."""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from mindgap.core import (
    Points,
    Recipe,
    Record,
    Scatter,
    Study,
    Subject,
    Table,
    Trial,
    generator,
    option,
    paired,
    spearman,
)
from mindgap.measures.stability.leave_one_out_stability import LeaveOneOutStability
from mindgap.measures.stability.self_influence import SelfInfluence
from mindgap.nets import MLP
from mindgap.ops.curvature import influence
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.training.fit import fit
from mindgap.training.leave_one_out import leave_one_out

RECIPES: dict[str, dict[str, Any]] = {
    "Adam, 5 epochs": {"epochs": 5, "learning_rate": 0.01, "batch_size": 64},
    "Adam, 30 epochs": {"epochs": 30, "learning_rate": 0.01, "batch_size": 64},
    "full-batch SGD, 100 epochs, weight decay 0.01": {
        "epochs": 100,
        "optimizer": "sgd",
        "learning_rate": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "batch_size": 10**6,
    },
}
DAMPING, CALIBRATED = 0.03, 20
NOISE = 0.1


class LeaveOneOut(Study):
    r"""Mean leave-one-out stability against the gap, the uniform bound and self-influence.

    Formula: $\frac{1}{n} \sum_i \left( \ell(A_{S \setminus i}, z_i) - \ell(A_S, z_i) \right)
    \approx R(A_S) - \hat R(A_S) \le 2\beta + (4n\beta + M) \sqrt{\frac{\ln(1/\delta)}{2n}}$

    Reading: The mean rise of a removed sample's loss estimates the gap without test data. The
    uniform stability, the largest change of any loss by any removal, gives a bound that is vacuous
    by orders of magnitude. Self-influence predicts the rises without retraining. Its order is
    right; its scale depends on the damping, and agrees after calibration on twenty removals.

    Assumes: A classification of Gaussian inputs with a tenth of the labels flipped, an MLP
    20-32-2, and independent training and test sets for every seed.

    >>> len(LeaveOneOut(seeds=2).trials())
    6
    """

    method = ("K3",)
    cites = ("bousquet2002stability", "koh2017understanding", "kawaguchi2017generalization")

    seeds: int = option(10, help="data sets per recipe", low=2)
    samples: int = option(500, help="training samples, each of which is left out once", low=10)
    test_samples: int = option(5000, help="test samples, which tell the gap", low=10)

    def trials(self) -> Sequence[Trial]:
        """One trial per recipe and data set."""
        return [
            Trial(parameters={"recipe": name}, seed=seed)
            for name in RECIPES
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train once without each sample, and predict the same by influence."""
        train, test = problem(self.samples, self.test_samples, trial.seed)
        recipe = Recipe(
            model=lambda: MLP((20, 32, 2)), train=train, test=test, **RECIPES[trial["recipe"]]
        )
        subject = fit(recipe, seed=trial.seed, evaluate_every=0).subject()
        stability = LeaveOneOutStability(removals=self.samples)(subject)
        calibrated = SelfInfluence(calibrate=min(CALIBRATED, self.samples))(subject)
        return {
            "rise": stability.value,
            **stability.terms,
            "vacuous": stability.details["vacuous"],
            "calibrated": calibrated.value,
            "damping": calibrated.terms.get("damping"),
            **_compared(subject),
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per recipe."""
        groups = {
            name: [record for trial, record in records if trial["recipe"] == name]
            for name in RECIPES
        }
        return Table(
            title="Training on one sample less: stability, gap, bound and influence",
            columns=(
                *("recipe", "training loss", "gap", "mean leave-one-out", "difference"),
                *("95 % interval", "β̂", "uniform bound", "vacuous", "self-influence, μ = 0.03"),
                *("calibrated", "its μ", "Pearson r", "r without correction", "rank correlation"),
            ),
            rows=tuple(_row(name, found) for name, found in groups.items()),
            notes=(
                "Means over data sets; the interval is that of leave-one-out minus gap, paired. "
                f"The gap is that of the loss, on {self.test_samples:,} test samples.",
                "β̂ is the largest change of the loss of any training or test sample by any "
                "removal, a lower estimate of β; the bound with it is no certificate. Vacuous: not "
                "below the largest loss that was seen.",
                "Calibrated: self-influence with the damping μ (geometric mean) whose mean agrees "
                f"with {CALIBRATED} retrained removals. Correlations are those of predicted and "
                f"retrained rises over all samples, with μ = {DAMPING:g}.",
            ),
            charts=(_chart(groups),),
        )

    def tiny(self) -> Self:
        """Use two small data sets."""
        return self.replace(seeds=2, samples=30, test_samples=100)


def problem(samples: int, test_samples: int, seed: int) -> tuple[tuple[Tensor, Tensor], ...]:
    """Draw training and test data: a noisy classification of Gaussian inputs.

    Args:
        samples: Number of training samples.
        test_samples: Number of test samples.
        seed: Seed of all of it.
    """
    random, size = generator(seed), samples + test_samples
    x = torch.randn(size, 20, generator=random)
    y = (x @ torch.randn(20, generator=random) + 0.5 * x[:, 0] * x[:, 1] > 0).long()
    y = torch.where(torch.rand(size, generator=random) < NOISE, 1 - y, y)
    return (x[:samples], y[:samples]), (x[samples:], y[samples:])


def _compared(subject: Subject) -> dict[str, float]:
    """Correlate predicted and retrained rises of all samples, with and without correction."""
    own = leave_one_out(subject, torch.arange(len(subject.train))).own.tolist()
    gradient, curvature = influence.output_derivatives(FlatLoss(subject))
    (leverage,) = influence.leverages(*influence.jacobian_rows(subject), curvature, [DAMPING])
    found = {}
    for name, corrected in (("", True), ("plain_", False)):
        shifts = influence.removal_shifts(leverage, curvature, gradient, corrected=corrected)
        rises = influence.removal_rises(subject, shifts).tolist()
        found[f"{name}mean"] = math.fsum(rises) / len(rises)
        found[f"{name}correlation"] = float(np.corrcoef(own, rises)[0, 1])
        found[f"{name}rank"] = spearman(own, rises)
    return found


def _row(name: str, records: Sequence[Record]) -> tuple[Any, ...]:
    def mean(key: str) -> float:
        return math.fsum(record[key] for record in records) / len(records)

    both = [[record[key] for record in records] for key in ("rise", "gap")]
    test = paired(*both)
    known = [record for record in records if record["calibrated"] is not None]
    usual = [math.log(record["damping"]) for record in known]
    return (
        *(name, mean("train_loss"), mean("gap"), mean("rise")),
        *(test.difference, str(test.interval), mean("uniform"), mean("bound")),
        f"{sum(record['vacuous'] for record in records)} of {len(records)}",
        mean("mean"),
        math.fsum(record["calibrated"] for record in known) / len(known) if known else None,
        math.exp(math.fsum(usual) / len(usual)) if known else None,
        *(mean("correlation"), mean("plain_correlation"), mean("rank")),
    )


def _chart(groups: dict[str, list[Record]]) -> Scatter:
    return Scatter(
        title="Mean leave-one-out stability against the gap, one point per data set",
        x_label="gap of the loss",
        y_label="mean leave-one-out stability",
        diagonal=True,
        points=[
            Points(
                name=name,
                x=[record["gap"] for record in records],
                y=[record["rise"] for record in records],
            )
            for name, records in groups.items()
        ],
    )
