"""The generalization gap."""

from mindgap.core import (
    Estimate,
    Interval,
    Measure,
    Subject,
    mean_interval,
    option,
    proportion_interval,
    standard_error,
)


class Gap(Measure):
    r"""How much worse the model does on unseen data than on its training data.

    Formula: $\frac{1}{n'}\sum_{i=1}^{n'} \ell(f(x'_i), y'_i) - \frac{1}{n}\sum_{i=1}^{n}
    \ell(f(x_i), y_i)$

    Reading: Large means that what was learned on the training data does not carry over; near zero
    with a high train error means that the model has not learned enough. The error rate is used for
    classes, the loss for a regression.

    Assumes: The test data were not used for training or for any choice. The training error of a
    given model is a known number, so the interval covers the uncertainty of the test data alone.

    >>> Gap().level
    0.95
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
        return Estimate(
            value=test - train,
            status="estimate",
            interval=Interval(low=spread.low - train, high=spread.high - train, level=self.level),
            standard_error=standard_error(subject.errors("test").double().cpu().numpy()),
            terms={
                "train_error": train,
                "test_error": test,
                "train_loss": subject.mean_loss("train"),
                "test_loss": subject.mean_loss("test"),
            },
        )

    def _interval(self, subject: Subject) -> Interval:
        errors = subject.errors("test")
        if subject.task == "classification":
            return proportion_interval(int(errors.sum()), len(errors), self.level)
        return mean_interval(errors.double().cpu().numpy(), self.level)
