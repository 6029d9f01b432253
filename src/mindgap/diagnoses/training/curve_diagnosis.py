"""What diagnoses of training curves share: the curves must end at the weights that are examined."""

import abc

from mindgap.core import Diagnosis, Subject
from mindgap.ops.evidence.curves import describes


class CurveDiagnosis(Diagnosis, abc.ABC, abstract=True):
    """A diagnosis of the training curves. Those of a model that was edited since say nothing of it."""

    needs = frozenset({"history"})

    def missing(self, subject: Subject) -> str:
        """Say why the curves cannot be judged, or an empty string."""
        told = super().missing(subject)
        if told or describes(subject):
            return told
        return "needs training curves that end at these weights, and the training loss is another"
