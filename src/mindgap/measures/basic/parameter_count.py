"""The number of weights."""

from mindgap.core import Bar, Estimate, Measure, Subject
from mindgap.core.measure import INVARIANCES
from mindgap.ops.models.parameters import count


class ParameterCount(Measure):
    r"""Number of weights of the model.

    Formula: $m = \sum_l \dim(w_l)$

    Reading: The classical capacity. In deep learning it hardly tells models apart: networks with
    far more weights than samples generalize.

    Assumes: Nothing. A tensor that is used twice counts once.

    >>> import torch
    >>> data = torch.zeros(2, 3), torch.tensor([0, 1])
    >>> float(ParameterCount()(Subject(torch.nn.Linear(3, 2), "cross_entropy", data)))
    8.0
    """

    method = ("K1",)
    cites = ("kawaguchi2017generalization",)
    direction = "lower"
    invariant_to = frozenset(INVARIANCES)

    def compute(self, subject: Subject) -> Estimate:
        """Return the count, in total and by tensor."""
        counts = count(subject.model)
        trained = sum(p.numel() for p in subject.model.parameters() if p.requires_grad)
        return Estimate(
            value=float(sum(counts.values())),
            terms={"trainable": float(trained)},
            details={"by_tensor": counts},
            charts=(
                Bar.of(
                    counts,
                    title="Weights by tensor",
                    y_label="weights",
                    horizontal=True,
                    wide=False,
                ),
            ),
        )
