"""What the held-out bounds share: the error rate, and a check for leaked test samples."""

import abc

from mindgap.core import Bound, Subject, Undefined
from mindgap.ops.samples import overlap

TOLERATED = 0.1  # discrete data have natural duplicates; a larger share is a leak


class HeldOutBound(Bound, abc.ABC, abstract=True):
    """A bound for a model that does not depend on the test data, with a loss in [0, 1]."""

    direction = "lower"
    basis = "held-out errors"
    needs = frozenset({"test"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )

    def rate(self, subject: Subject) -> float:
        """Compute the error rate on the test data."""
        if subject.task == "regression":
            raise Undefined("needs a loss in [0, 1], and a regression loss has no upper limit")
        return subject.mean_error("test")

    def broken(self, subject: Subject) -> str:
        """Say so if too many test samples are in the training data."""
        share = overlap(subject.split("test"), subject.train)
        return f"{share:.0%} of the test samples are in the training data" * (share > TOLERATED)
