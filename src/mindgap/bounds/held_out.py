"""What the bounds on held-out data share: where the numbers come from, and the check that the data were held out."""

import abc

from mindgap.core import Bound, Subject, Undefined
from mindgap.ops.samples import overlap

TOLERATED = 0.1  # natural duplicates occur in discrete data; a larger share is no accident


class HeldOutBound(Bound, abc.ABC, abstract=True):
    """A bound for a model that does not depend on the test data, with a loss in [0, 1]."""

    direction = "lower"
    basis = "held-out errors"
    needs = frozenset({"test"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )

    def rate(self, subject: Subject) -> float:
        """The error rate on the test data."""
        if subject.task == "regression":
            raise Undefined("needs a loss in [0, 1], and a regression loss has no upper limit")
        return subject.mean_error("test")

    def broken(self, subject: Subject) -> str:
        """Says so when the test data stand in the training data."""
        share = overlap(subject.split("test"), subject.train)
        return (
            f"{share:.0%} of the test samples stand in the training data"
            if share > TOLERATED
            else ""
        )
