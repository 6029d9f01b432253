"""The number of weights."""

from mindgap.core import Estimate, Measure, Subject
from mindgap.core.measure import INVARIANCES
from mindgap.ops.models.parameters import count


class ParameterCount(Measure):
    r"""Number of weights of the model.

    Formula: $m = \sum_l \dim(w_l)$

    Reading: The classical capacity. In deep learning it hardly tells models apart: networks with
    far more weights than samples generalize. Beside it stands the number of training samples a
    weight.

    Assumes: Nothing. A tensor that is used twice counts once.

    >>> ParameterCount().name
    'parameter-count'
    """

    method = ("K1",)
    cites = ("kawaguchi2017generalization",)
    direction = "lower"
    invariant_to = frozenset(INVARIANCES)

    def compute(self, subject: Subject) -> Estimate:
        """The count, in total and by tensor."""
        counts = count(subject.model)
        trained = sum(p.numel() for p in subject.model.parameters() if p.requires_grad)
        return Estimate(
            value=float(sum(counts.values())),
            terms={"trainable": float(trained)},
            details={"by_tensor": counts},
        )
