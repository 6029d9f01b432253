"""How far the predictions of a regression are off, in units of the target."""

import math

import torch
from torch import Tensor

from mindgap.core import (
    Bar,
    Chart,
    Estimate,
    Mark,
    Measure,
    Points,
    Scatter,
    Series,
    Subject,
    Undefined,
    Which,
    align,
)

MOST_POINTS = 1000  # of a scatter plot; more hide each other
MOST_OUTPUTS = 25  # bars whose names can still be read


class RootMeanSquaredError(Measure):
    r"""Typical distance of a prediction from its target, in units of the target.

    Formula: $\sqrt{\frac{1}{n m} \sum_{i=1}^{n} \sum_{j=1}^{m} (f(x_i)_j - y_{ij})^2}$

    Reading: Lower is better; compare it with the spread of the targets, which predicting their mean
    reaches. Few large errors raise it above the mean absolute error. A healthy residual plot is a
    band around zero without a shape: a curve means that the model misses a pattern, a funnel that
    its errors grow with the prediction.

    Assumes: A regression. With several outputs the mean runs over all of them, so the one with the
    largest unit dominates: look at the errors by output. Test data are used if there are any.

    >>> data = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [4.0]])
    >>> result = RootMeanSquaredError()(Subject(torch.nn.Identity(), "mse", data))
    >>> round(float(result), 6), result.terms["train_mean_absolute_error"]
    (1.414214, 1.0)
    """

    method = ("K1",)
    cites = ("gneiting2011making",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    def compute(self, subject: Subject) -> Estimate:
        """Return the error, those of both data sets and of every output, and a residual plot."""
        missed = {which: residuals(subject, which) for which in data_of(subject)}
        by_output = {which: rows.square().mean(0).sqrt() for which, rows in missed.items()}
        which: Which = "train" if subject.test is None else "test"
        names = output_names(subject)
        terms = {}
        for name, rows in missed.items():
            terms[f"{name}_rmse"] = math.sqrt(float(rows.square().mean()))
            terms[f"{name}_mean_absolute_error"] = float(rows.abs().mean())
        spread = predicted(subject, which)[1].std(0, correction=0)
        return Estimate(
            value=terms[f"{which}_rmse"],
            terms={**terms, "target_spread": math.sqrt(float(spread.square().mean()))},
            details={
                "which": which,
                "names": names,
                "outputs": {name: found.tolist() for name, found in by_output.items()},
            },
            charts=(
                *([_bars(names, by_output)] if len(names) > 1 else []),
                _residual_plot(subject, which, names, missed[which]),
            ),
        )


def data_of(subject: Subject) -> tuple[Which, ...]:
    """Return which data there are."""
    return ("train",) if subject.test is None else ("train", "test")


def predicted(subject: Subject, which: Which) -> tuple[Tensor, Tensor]:
    """Return predictions and targets of a regression, one row per sample, one column per output.

    Args:
        subject: Any other task is undefined.
        which: The data.
    """
    if subject.task != "regression":
        raise Undefined(f"needs a regression, this is a {subject.task}")
    outputs = subject.outputs(which)
    targets = align(outputs, subject.targets(which))
    left, right = (part.double().cpu().reshape(len(part), -1) for part in (outputs, targets))
    return left, right


def residuals(subject: Subject, which: Which) -> Tensor:
    """Return predictions minus targets, one row per sample, one column per output."""
    outputs, targets = predicted(subject, which)
    return outputs - targets


def output_names(subject: Subject) -> list[str]:
    """Return a name for every output of a regression."""
    return [f"output {k}" for k in range(predicted(subject, "train")[0].shape[1])]


def thinned(samples: int) -> Tensor:
    """Return places of at most ``MOST_POINTS`` samples, evenly spaced."""
    return torch.linspace(0, samples - 1, min(samples, MOST_POINTS)).round().long()


def _bars(names: list[str], by_output: dict[Which, Tensor]) -> Bar:
    last = next(reversed(by_output.values()))
    shown = last.argsort(descending=True)[:MOST_OUTPUTS].sort().values.tolist()
    return Bar(
        title="Root mean squared error by output",
        caption="" if len(shown) == len(names) else f"The {MOST_OUTPUTS} largest.",
        x_label="output",
        y_label="root mean squared error",
        terminal=True,
        series=[
            Series(
                name="training data" if which == "train" else "test data",
                x=[names[k] for k in shown],
                y=[float(found[k]) for k in shown],
            )
            for which, found in by_output.items()
        ],
    )


def _residual_plot(subject: Subject, which: Which, names: list[str], missed: Tensor) -> Chart:
    outputs, _ = predicted(subject, which)
    rows = thinned(len(outputs))
    worst = int(missed.square().mean(0).argmax())
    kept = "" if len(rows) == len(outputs) else f"{len(rows):,} of {len(outputs):,} samples. "
    one = f"{names[worst]}, which has the largest error. " if len(names) > 1 else ""
    return Scatter(
        title=f"Residuals ({'test' if which == 'test' else 'training'} data)",
        caption=f"{one}{kept}Prediction minus target: a healthy plot is a band without a shape.",
        x_label="prediction",
        y_label="residual",
        points=[
            Points(
                name=names[worst],
                x=outputs[rows, worst].tolist(),
                y=missed[rows, worst].tolist(),
            )
        ],
        marks=[Mark(y=0.0)],
    )
