"""What the held-out bounds share: only test samples that are not in the training data count."""

import abc
import dataclasses

import torch

from mindgap.core import Bound, Estimate, Subject, Undefined
from mindgap.ops.overlap import TOLERATED, shared_samples


class HeldOutBound(Bound, abc.ABC, abstract=True):
    """A bound for a model that does not depend on the test data, with a loss in [0, 1].

    It is about samples that are not in the training data. Test samples that are do not count.
    """

    direction = "lower"
    basis = "held-out errors"
    needs = frozenset({"test"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )

    def rate(self, subject: Subject) -> float:
        """Compute the error rate on the test samples that are not in the training data."""
        return float(self.unshared_errors(subject).double().mean())

    def unshared_errors(self, subject: Subject) -> torch.Tensor:
        """Return the error of every test sample that is not in the training data."""
        if subject.task == "regression":
            raise Undefined("needs a loss in [0, 1], and a regression loss has no upper limit")
        errors = subject.errors("test")
        unshared = errors[~shared_samples(subject).equal.to(errors.device)]
        if not len(unshared):
            raise Undefined("needs test samples that are not in the training data")
        return unshared

    def compute(self, subject: Subject) -> Estimate:
        """Evaluate the formula, and tell how many test samples are shared and how many count."""
        estimate, found = super().compute(subject), shared_samples(subject)
        counted = {
            "samples": float((~found.equal).sum()),
            "shared": found.share,
            "near_copies": found.near_share,
        }
        return dataclasses.replace(estimate, terms={**estimate.terms, **counted})

    def broken(self, subject: Subject) -> str:
        """Say so if too many test samples are in the training data, or near copies of them."""
        found = shared_samples(subject)
        if found.share > TOLERATED:
            return f"{100 * found.share:.0f} % of the test samples are in the training data"
        if found.leaks_near:
            return f"{100 * found.near_share:.0f} % of the test samples are near copies of training samples"
        return ""
