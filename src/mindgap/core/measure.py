"""Measure: a number that says something about generalization, computed without a trace."""

import abc
import dataclasses
import platform
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch

from mindgap._version import __version__
from mindgap.core.calls import check_weights
from mindgap.core.chart import Chart
from mindgap.core.purity import preserved
from mindgap.core.result import Interval, Result, Status
from mindgap.core.spec import Spec
from mindgap.core.subject import Subject

Need = Literal["test", "initial", "classification", "gradients", "history", "recipe"]
Direction = Literal["lower", "higher", "none"]
Cost = Literal["cheap", "moderate", "expensive"]
Growth = Literal["", "logarithmic"]
INVARIANCES = (
    "sample-order",
    "unit-permutation",
    "relu-rescaling",
    "output-scaling",
    "duplication",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """What ``compute`` returns when a bare number does not say enough.

    Args:
        value: The number.
        status: Whether it is exact, a statistical estimate or a heuristic.
        interval: A confidence interval.
        standard_error: The standard error of a stochastic value.
        terms: Numbers that the value is made of, or that explain it.
        details: Other plain data.
        charts: Figures, which the report, a notebook or a terminal draws.

    >>> from mindgap.core import Bar
    >>> norms = {"first.weight": 2.0, "second.weight": 1.0}
    >>> estimate = Estimate(value=3.0, charts=(Bar.of(norms, title="Norm by tensor"),))
    >>> print(estimate.charts[0])
    Norm by tensor
      first.weight   ████████████████████  2
      second.weight  ██████████            1
    """

    value: float
    status: Status = "exact"
    interval: Interval | None = None
    standard_error: float | None = None
    terms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    charts: tuple[Chart, ...] = ()


class Undefined(Exception):  # noqa: N818  (a verdict, not a fault)
    """Raised by ``compute`` where the quantity does not exist; its text is the reason.

    >>> from mindgap.measures import Gap
    >>> result = Gap()(
    ...     Subject(torch.nn.Linear(1, 1), "mse", (torch.zeros(2, 1), torch.zeros(2, 1)))
    ... )
    >>> result.status, result.reason
    ('undefined', 'needs test data')
    """


class Measure(Spec, abc.ABC, abstract=True):
    """A quantity of a subject.

    ``direction`` says which values are claimed to generalize better; ``needs`` what the subject
    must have; ``invariant_to`` which changes of the subject leave the value alone. ``rescaling =
    "logarithmic"`` promises that, when a ReLU layer is made α times larger and the next one α times
    smaller, the value moves no faster than ln α.
    """

    family: ClassVar[str] = "measure"
    direction: ClassVar[Direction] = "none"
    needs: ClassVar[frozenset[Need]] = frozenset()
    invariant_to: ClassVar[frozenset[str]] = frozenset({"sample-order"})
    rescaling: ClassVar[Growth] = ""
    cost: ClassVar[Cost] = "cheap"

    @abc.abstractmethod
    def compute(self, subject: Subject) -> float | Estimate:
        """Return the value; the caller guards the subject."""

    def __call__(self, subject: Subject) -> Result:
        """Compute on a subject, leave the subject as it was, and say how the number came about."""
        wall, cpu = time.perf_counter(), time.process_time()
        missing = self.missing(subject)
        with preserved(subject.model):
            outcome = missing or self._outcome(subject)
        cost = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        return self._result(subject, outcome, cost)

    @classmethod
    def promises_rescaling(cls) -> bool:
        """Tell whether it claims to move by a logarithm at most when ReLU layers are rescaled."""
        return bool(cls.rescaling) or "relu-rescaling" in cls.invariant_to

    def missing(self, subject: Subject) -> str:
        """Say why the subject cannot be measured, or an empty string."""
        return missing_part(self.needs, subject)

    def _outcome(self, subject: Subject) -> Estimate | str:
        try:
            found = self.compute(subject)
        except Undefined as reason:
            return str(reason)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            check_weights(subject.model)  # a decomposition fails on what is no number
            subject.outputs("train")
            raise
        estimate = found if isinstance(found, Estimate) else Estimate(value=float(found))
        return "the computation gave NaN" if estimate.value != estimate.value else estimate

    def _result(
        self, subject: Subject, outcome: Estimate | str, cost: Mapping[str, float]
    ) -> Result:
        common: dict[str, Any] = {
            "name": self.name,
            "family": self.family,
            "cost": cost,
            "provenance": self.provenance(subject),
        }
        if isinstance(outcome, str):
            return Result(value=None, status="undefined", reason=outcome, **common)
        fields = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)}
        return Result(**fields, **common, **self.flags(subject, outcome))

    def flags(self, subject: Subject, outcome: Estimate) -> dict[str, Any]:  # noqa: ARG002
        """Return what else the result should say; bounds add their verdicts here."""
        return {}

    def provenance(self, subject: Subject) -> dict[str, Any]:
        """Who measured what, with which settings and versions."""
        return {
            "methods": list(self.method),
            "parameters": self.parameters,
            "subject": subject.name,
            "train_samples": len(subject.train),
            "test_samples": 0 if subject.test is None else len(subject.test),
            "mindgap": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        }


def missing_part(needs: frozenset[Need], subject: Subject) -> str:
    """Say what a subject lacks of what a spec needs, or an empty string."""
    if "test" in needs and subject.test is None:
        return "needs test data"
    if "initial" in needs and subject.initial is None:
        return "needs the weights from before training (initial=state_dict)"
    if "classification" in needs and subject.task != "classification":
        return f"needs a classification, this is a {subject.task}"
    if "history" in needs and not subject.history:
        return "needs the training curves (history=fitted.history)"
    if "recipe" in needs and subject.recipe is None:
        return "needs the recipe of a training without remedies (recipe=… or fitted.subject())"
    return ""
