"""Stability under the removal of one training sample, by retraining."""

import torch
from torch import Tensor

from mindgap.core import (
    Bar,
    Chart,
    Estimate,
    Histogram,
    Measure,
    Subject,
    Undefined,
    generator,
    mean_interval,
    option,
    standard_error,
)
from mindgap.core.chart.numbers import shown_below
from mindgap.ops.concentration import uniform_stability_bound
from mindgap.training.leave_one_out import LeftOut, leave_one_out, operations

MOST_WORK = 3e13  # operations of all trainings, about half an hour of one CPU
SHOWN = 10  # samples that are named


class LeaveOneOutStability(Measure):
    r"""Mean rise of a training sample's loss when the model is retrained without it.

    Formula: $\frac{1}{n} \sum_{i=1}^{n} \left( \ell(A_{S \setminus i}, z_i) - \ell(A_S, z_i)
    \right), \quad \hat\beta = \max_{i, z} |\ell(A_{S \setminus i}, z) - \ell(A_S, z)|$

    Reading: The mean is about the gap between test and training loss (``gap``), because a removed
    sample is a test sample for the model that did not see it; it needs no test data. ``uniform`` is
    the largest change of any loss by any removal. It is often a hundred times larger and mostly the
    change of the removed sample's own loss. ``bound`` is Bousquet and Elisseeff's inequality with
    this β̂, and ``vacuous`` says whether it exceeds the largest loss that was seen, which it does
    for networks. It is no certificate anyway: β̂ and the largest loss are maxima over the samples at
    hand, while the theorem needs maxima over all data sets and all samples.

    Assumes: The recipe that trained the model, without remedies. Retraining keeps the seed and the
    batches and gives the removed sample the weight zero. Copies of a sample hide its influence.

    >>> from mindgap.core import Recipe
    >>> from mindgap.nets import MLP
    >>> from mindgap.training.fit import fit
    >>> x = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(
    ...     model=lambda: MLP((1, 8, 1)), train=(x, x**2), loss="mse", learning_rate=0.1
    ... )
    >>> result = LeaveOneOutStability()(fit(recipe).subject())
    >>> float(result) > 0, result.details["vacuous"], result.terms["removed"]
    (True, True, 8.0)
    """

    method = ("K3",)
    cites = ("bousquet2002stability", "kawaguchi2017generalization")
    direction = "lower"
    needs = frozenset({"recipe"})
    # The value is that of the recipe: what is done to the trained weights does not matter.
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )
    cost = "expensive"

    removals: int = option(500, help="samples to remove, one training each; random if fewer", low=2)
    delta: float = option(0.05, help="probability with which the bound may fail", above=0, below=1)
    seed: int = option(0, help="seed of the choice of samples", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Return the mean rise, the largest changes and the bound that they would give."""
        samples = len(subject.train)
        places = torch.randperm(samples, generator=generator(self.seed))[: self.removals]
        work = operations(subject, len(places) + 1)
        if work > MOST_WORK:
            raise Undefined(
                f"needs at most {MOST_WORK:.0e} operations, {len(places)} trainings take "
                f"{work:.0e}; lower removals, or measure self-influence"
            )
        found = leave_one_out(subject, places.sort().values)
        rises, bound, largest = found.own.tolist(), self._bound(found), float(found.after.max())
        return Estimate(
            value=float(found.own.mean()),
            status="estimate",
            standard_error=standard_error(rises),
            interval=mean_interval(rises),
            terms={
                **_gap(found),
                "uniform": float(found.largest.max()),
                "mean_largest": float(found.largest.mean()),
                "bound": bound,
                "largest_loss": largest,
                "removed": float(len(places)),
                "reproduction": _reproduction(subject, found),
            },
            details={
                "vacuous": not shown_below(bound, largest),
                "certificate": False,
                "samples": _named(found),
            },
            charts=_charts(found),
        )

    def _bound(self, found: LeftOut) -> float:
        return uniform_stability_bound(
            empirical=float(found.before[: found.samples].mean()),
            stability=float(found.largest.max()),
            samples=found.samples,
            delta=self.delta,
            largest_loss=float(found.after.max()),
        )


def _gap(found: LeftOut) -> dict[str, float]:
    """Compute the gap of the retrained model, if there are test data."""
    train, test = found.before[: found.samples], found.before[found.samples :]
    if not len(test):
        return {"train_loss": float(train.mean())}
    changes = (found.after - found.before)[:, found.samples :].abs()
    return {
        "gap": float(test.mean() - train.mean()),
        "train_loss": float(train.mean()),
        "uniform_test": float(changes.max()),
    }


def _reproduction(subject: Subject, found: LeftOut) -> float:
    """Compute how far the losses of the recipe's model are from those of the subject's."""
    losses = subject.losses("train").double().to(found.before.device)
    return float((losses - found.before[: found.samples]).abs().mean())


def _named(found: LeftOut) -> list[dict[str, float]]:
    rises: Tensor = found.own
    first = rises.argsort(descending=True)[:SHOWN].tolist()
    return [{"index": int(found.places[k]), "rise": float(rises[k])} for k in first]


def _charts(found: LeftOut) -> tuple[Chart, ...]:
    spread = Histogram.of(
        {"removed samples": found.own},
        title="Rise of a sample's loss when the model is retrained without it",
        x_label="rise of the loss",
        y_label="share of samples (± 1 s.e.)",
        shares=True,
    )
    if "gap" not in _gap(found):
        return (spread,)
    both = {"leave-one-out": float(found.own.mean()), "gap": _gap(found)["gap"]}
    return Bar.of(both, title="Mean leave-one-out stability and gap", y_label="loss"), spread
