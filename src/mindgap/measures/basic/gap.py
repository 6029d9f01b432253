"""The generalization gap."""

from mindgap.core import (
    Bar,
    Estimate,
    Interval,
    Measure,
    Series,
    Subject,
    mean_interval,
    option,
    proportion_interval,
    standard_error,
)
from mindgap.core.chart.numbers import percent


class Gap(Measure):
    r"""How much worse the model does on unseen data than on its training data.

    Formula: $\frac{1}{n'}\sum_{i=1}^{n'} \ell(f(x'_i), y'_i) - \frac{1}{n}\sum_{i=1}^{n}
    \ell(f(x_i), y_i)$

    Reading: Large means that what was learned on the training data does not carry over; near zero
    with a high training error means that the model has not learned enough. The error rate is used for
    classes, the loss for a regression.

    Assumes: The test data were not used for training or for any choice. The training error of a
    given model is a known number, so the interval covers the uncertainty of the test data alone.

    >>> import torch
    >>> inputs = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 0.0]])
    >>> train, test = (inputs[:2], torch.tensor([0, 1])), (inputs, torch.tensor([0, 1, 0, 1]))
    >>> float(Gap()(Subject(torch.nn.Identity(), "cross_entropy", train, test)))
    0.25
    """

    method = ("K1",)
    cites = ("kawaguchi2017generalization",)
    direction = "lower"
    needs = frozenset({"test"})
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    level: float = option(0.95, help="level of the interval", above=0, below=1)

    def compute(self, subject: Subject) -> Estimate:
        """Test minus training error, with the interval of the test error."""
        train, test = subject.mean_error("train"), subject.mean_error("test")
        spread = self._interval(subject)
        interval = Interval(low=spread.low - train, high=spread.high - train, level=self.level)
        return Estimate(
            value=test - train,
            status="estimate",
            interval=interval,
            standard_error=standard_error(subject.errors("test").double().cpu().numpy()),
            terms={
                "train_error": train,
                "test_error": test,
                "train_loss": subject.mean_loss("train"),
                "test_loss": subject.mean_loss("test"),
            },
            charts=(self._chart(subject, train, test, interval, spread),),
        )

    def _chart(
        self, subject: Subject, train: float, test: float, gap: Interval, spread: Interval
    ) -> Bar:
        return Bar(
            title="Training error, test error and the gap between them",
            caption=(
                f"The {percent(self.level)} interval covers the uncertainty of the test data; the "
                "training error of a given model is known."
            ),
            y_label="loss" if subject.task == "regression" else "error rate",
            percent=subject.task != "regression",
            series=[
                Series(
                    x=["train", "test", "gap"],
                    y=[train, test, test - train],
                    low=[None, spread.low, gap.low],
                    high=[None, spread.high, gap.high],
                )
            ],
            horizontal=True,
        )

    def _interval(self, subject: Subject) -> Interval:
        errors = subject.errors("test")
        if subject.task == "classification":
            return proportion_interval(int(errors.sum()), len(errors), self.level)
        return mean_interval(errors.double().cpu().numpy(), self.level)
