"""The predicted change of a sample's loss when it is removed, without retraining."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import (
    Estimate,
    Histogram,
    InputError,
    Measure,
    Subject,
    Undefined,
    generator,
    option,
    spearman,
    standard_error,
)
from mindgap.ops.curvature import influence
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.training.leave_one_out import leave_one_out

FLOOR = 1e-3  # below it 1 − leverage goes to zero, and the scale of the estimate to infinity
GRID = [FLOOR * 10 ** (step / 3) for step in range(13)]  # dampings to calibrate with, up to 10
SHOWN = 10  # samples that are named


class SelfInfluence(Measure):
    r"""Mean rise of a training sample's loss that one Newton step predicts for its removal.

    Formula: $\frac{1}{n} \sum_i \left( \ell(o_i + L_i (I - \Lambda_i L_i)^{-1} r_i) - \ell(o_i)
    \right), \quad L_i = J_i \left( \sum_j J_j^\top \Lambda_j J_j + n \mu I \right)^{-1} J_i^\top$

    Reading: A cheap estimate of the leave-one-out stability, for models that are too large to
    retrain. The order of the samples is reliable (rank correlation about 0.9 with retraining), the
    scale is a function of the damping μ: compare values of one μ only, or calibrate it.
    ``calibrate`` = 20 retrains the model without 20 samples, takes the μ whose mean agrees with
    them, and reports the rank correlation. ``plain`` leaves the correction by leverage out; it is
    too small for samples that the model has memorized. It says what a sample does to its own loss
    (self-influence). The uniform stability β, the largest change of any loss, is predicted badly
    and not claimed. ``weights`` = head lets the last layer move alone. It ranks the samples of a
    large model, but its scale is far too small where the other layers memorize.

    Assumes: Weights near a minimum of the training loss, and a loss that is close to its quadratic
    model around them.

    >>> x = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)
    >>> model = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    >>> _ = model.weight.data.fill_(11 / 21)  # least squares
    >>> subject = Subject(model, "mse", (x, torch.tensor([[1.0], [1.0], [2.0]])))
    >>> round(float(SelfInfluence(damping=0.001)(subject)), 3)  # least squares again: 0.0585
    0.058
    """

    method = ("K3",)
    cites = ("koh2017understanding", "cook1977detection")
    direction = "lower"
    needs = frozenset({"gradients"})
    invariant_to = frozenset({"sample-order", "unit-permutation"})
    cost = "expensive"

    damping: float = option(0.03, help="μ, added to the mean curvature of every weight", low=FLOOR)
    weights: Literal["all", "head"] = option(
        "all",
        help="weights that may move: all, or those of the last layer",
        choices=("all", "head"),
    )
    calibrate: int = option(
        0, help="samples to retrain without, to choose μ; 0 keeps the given one", low=0
    )
    seed: int = option(0, help="seed of the choice of these samples", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Return the mean, the plain form, the leverage, and the most influential samples."""
        if self.calibrate and subject.recipe is None:
            raise Undefined("needs the recipe that trained it to calibrate, or calibrate = 0")
        gradient, curvature = influence.output_derivatives(FlatLoss(subject))
        try:
            rows, count = (
                influence.jacobian_rows if self.weights == "all" else influence.head_rows
            )(subject)
            damping, checked = self._damping(subject, rows, count, gradient, curvature)
            (leverage,) = influence.leverages(rows, count, curvature, [damping])
        except InputError as error:
            raise Undefined(str(error)) from error
        rises = influence.removal_rises(
            subject, influence.removal_shifts(leverage, curvature, gradient)
        )
        plain = influence.removal_shifts(leverage, curvature, gradient, corrected=False)
        return Estimate(
            value=float(rises.mean()),
            status="heuristic",
            standard_error=standard_error(rises.tolist()),
            terms={
                "damping": damping,
                "plain": float(influence.removal_rises(subject, plain).mean()),
                "largest": float(rises.max()),
                "leverage": float((curvature * leverage.transpose(1, 2)).sum((1, 2)).mean()),
                **checked,
                **_gap(subject),
            },
            details={"samples": _named(rises)},
            charts=(_chart(rises),),
        )

    def _damping(
        self,
        subject: Subject,
        rows: influence.Rows,
        count: int,
        gradient: Tensor,
        curvature: Tensor,
    ) -> tuple[float, dict[str, float]]:
        """Return the damping, and how it compares with retraining if it is calibrated."""
        if not self.calibrate:
            return self.damping, {}
        order = torch.randperm(len(subject.train), generator=generator(self.seed))
        places = order[: self.calibrate]
        retrained = leave_one_out(subject, places).own.cpu()
        if float(retrained.mean()) <= 0:
            raise Undefined("needs removals that raise the loss to calibrate, got a fall")

        def nearest(tried: Sequence[float]) -> tuple[int, Tensor]:
            found = influence.leverages(rows, count, curvature, tried)
            moved = [influence.removal_shifts(leverage, curvature, gradient) for leverage in found]
            rises = torch.stack(
                [influence.removal_rises(subject, shifts)[places] for shifts in moved]
            )
            ratios = rises.mean(1).clamp(min=1e-300).log() - retrained.mean().log()
            best = int(ratios.abs().argmin())
            return best, rises[best]

        best, _ = nearest(GRID)
        ends = GRID[max(best - 1, 0)], GRID[min(best + 1, len(GRID) - 1)]
        fine = [ends[0] * (ends[1] / ends[0]) ** (step / 16) for step in range(17)]
        best, rises = nearest(fine)
        told = {"retrained": float(retrained.mean()), "predicted": float(rises.mean())}
        if len(places) > 2:
            told["rank_correlation"] = spearman(retrained.tolist(), rises.tolist())
        return fine[best], told


def _gap(subject: Subject) -> dict[str, float]:
    if subject.test is None:
        return {}
    return {"gap": subject.mean_loss("test") - subject.mean_loss("train")}


def _named(rises: Tensor) -> list[dict[str, float]]:
    first = rises.argsort(descending=True)[:SHOWN].tolist()
    return [{"index": place, "rise": float(rises[place])} for place in first]


def _chart(rises: Tensor) -> Histogram:
    return Histogram.of(
        {"training samples": rises},
        title="Predicted rise of a sample's loss when it is removed",
        x_label="rise of the loss",
        y_label="share of samples (± 1 s.e.)",
        shares=True,
    )
