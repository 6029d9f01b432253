"""The norm of the weights."""

from mindgap.core import Estimate, Measure, Subject
from mindgap.ops.models.parameters import norms, total


class ParameterNorm(Measure):
    r"""Euclidean norm of all weights.

    Formula: $\lVert w \rVert_2 = \sqrt{\sum_i w_i^2}$

    Reading: Large weights are claimed to mean high capacity. Only models of one architecture can be
    compared, and a ReLU network can be rescaled to any larger norm without changing what it
    computes.

    Assumes: Nothing.

    >>> ParameterNorm().direction
    'lower'
    """

    method = ("P6",)
    cites = ("jiang2020fantastic",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication"})

    def compute(self, subject: Subject) -> Estimate:
        """The norm, in total and by tensor."""
        parts = norms(dict(subject.model.named_parameters()))
        return Estimate(value=total(parts), details={"by_tensor": parts})
