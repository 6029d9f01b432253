"""The share of the targets' variance that the model explains."""

from mindgap.core import Bar, Chart, Estimate, Measure, Points, Scatter, Subject, Undefined, Which
from mindgap.measures.basic.root_mean_squared_error import data_of, output_names, predicted, thinned


class RSquared(Measure):
    r"""Share of the variance of the targets that the model explains, R².

    Formula: $1 - \frac{\sum_i (f(x_i) - y_i)^2}{\sum_i (y_i - \bar y)^2}$

    Reading: 1 is perfect, and 0 is as good as always predicting the mean of these targets. It is
    negative where the model is worse than that. A test value far below the training value is a gap.
    With several outputs it is the mean over outputs: one of them may be bad, as the chart shows.

    Assumes: A regression whose targets vary; outputs with constant targets are left out. Test data
    are used if there are any.

    >>> import torch
    >>> data = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[1.0], [2.0], [4.0]])
    >>> result = RSquared()(Subject(torch.nn.Identity(), "mse", data))
    >>> round(float(result), 6)
    0.785714
    """

    method = ("K1",)
    cites = ("wright1921correlation",)
    direction = "higher"
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    def compute(self, subject: Subject) -> Estimate:
        """Return the mean over outputs, the values of both data sets, and a plot."""
        which: Which = "train" if subject.test is None else "test"
        found = {name: _by_output(subject, name) for name in data_of(subject)}
        means = {name: sum(own.values()) / len(own) for name, own in found.items() if own}
        if which not in means:
            raise Undefined("needs targets that vary")
        return Estimate(
            value=means[which],
            terms={f"{name}_r_squared": value for name, value in means.items()},
            details={"which": which, "outputs": found[which]},
            charts=_charts(subject, which, found[which]),
        )


def _by_output(subject: Subject, which: Which) -> dict[str, float]:
    """The value of every output whose targets vary."""
    outputs, targets = predicted(subject, which)
    left = (outputs - targets).square().sum(0)
    whole = (targets - targets.mean(0)).square().sum(0)
    names = output_names(subject)
    return {
        name: float(1 - left[k] / whole[k]) for k, name in enumerate(names) if float(whole[k]) > 0
    }


def _charts(subject: Subject, which: Which, by_output: dict[str, float]) -> tuple[Chart, ...]:
    outputs, targets = predicted(subject, which)
    data, rows = "test" if which == "test" else "training", thinned(len(outputs))
    if len(by_output) > 1:
        return (Bar.of(by_output, title=f"R² by output ({data} data)", y_label="R²"),)
    place = output_names(subject).index(next(iter(by_output)))
    return (
        Scatter(
            title=f"Prediction against target ({data} data)",
            caption="A perfect model is on the diagonal."
            if len(rows) == len(outputs)
            else f"{len(rows):,} of {len(outputs):,} samples. A perfect model is on the diagonal.",
            x_label="target",
            y_label="prediction",
            diagonal=True,
            points=[Points(x=targets[rows, place].tolist(), y=outputs[rows, place].tolist())],
        ),
    )
