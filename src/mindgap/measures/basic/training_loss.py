"""The loss on the training data."""

from mindgap.core import Estimate, Measure, Subject


class TrainingLoss(Measure):
    r"""Mean loss on the training data, in evaluation mode.

    Formula: $\hat R(f) = \frac{1}{n}\sum_{i=1}^{n} \ell(f(x_i), y_i)$

    Reading: The plainest rival of every complexity measure: two models should be compared at the
    same training loss. Large means that the model has not fitted its data.

    Assumes: Nothing.

    >>> TrainingLoss().name
    'training-loss'
    """

    method = ("K1",)
    cites = ("kawaguchi2017generalization",)
    direction = "none"
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    def compute(self, subject: Subject) -> Estimate:
        """The mean and the error rate beside it."""
        return Estimate(
            value=subject.mean_loss("train"), terms={"train_error": subject.mean_error("train")}
        )
