"""The loss on the training data."""

from mindgap.core import Estimate, Histogram, Measure, Subject


class TrainingLoss(Measure):
    r"""Mean loss on the training data, in evaluation mode.

    Formula: $\hat R(f) = \frac{1}{n}\sum_{i=1}^{n} \ell(f(x_i), y_i)$

    Reading: The plainest rival of every complexity measure: two models should be compared at the
    same training loss. Large means that the model has not fitted its data.

    Assumes: Nothing.

    >>> import torch
    >>> data = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [4.0]])
    >>> float(TrainingLoss()(Subject(torch.nn.Identity(), "mse", data)))
    2.0
    """

    method = ("K1",)
    cites = ("kawaguchi2017generalization",)
    direction = "none"
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    def compute(self, subject: Subject) -> Estimate:
        """Return the mean, the error rate, and the losses of all samples."""
        losses = {"training data": subject.losses("train")}
        losses |= {} if subject.test is None else {"test data": subject.losses("test")}
        return Estimate(
            value=subject.mean_loss("train"),
            terms={"train_error": subject.mean_error("train")},
            charts=(
                Histogram.of(
                    losses,
                    clip_low=False,
                    title="Losses of all samples",
                    caption="The last bin also counts what lies beyond it.",
                    x_label="loss of a sample",
                    y_label="share of samples (± 1 s.e.)",
                    shares=True,
                ),
            ),
        )
