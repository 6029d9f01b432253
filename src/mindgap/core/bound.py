"""Bound: a theorem with all its constants, as an empirical and a complexity term."""

import abc
import dataclasses
import inspect
import math
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from mindgap.core.chart.numbers import shown_below
from mindgap.core.checks import check_type
from mindgap.core.errors import InputError
from mindgap.core.loss import align
from mindgap.core.measure import Estimate, Measure
from mindgap.core.result import Result
from mindgap.core.spec import option
from mindgap.core.subject import Subject


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """The two terms of a bound, and what else to show.

    Args:
        empirical: What was seen on the data.
        complexity: What the theorem adds for unseen data.
        ceiling: The value from which on the bound says nothing.
        others: Further numbers, by name.

    >>> Terms(empirical=0.25, complexity=0.125).total
    0.375
    """

    empirical: float
    complexity: float
    ceiling: float = 1.0
    others: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def total(self) -> float:
        """The bound itself."""
        return self.empirical + self.complexity


class Bound(Measure, abstract=True):
    """With probability at least ``1 - delta`` the risk is below ``empirical + complexity``.

    An author writes ``formula``, plain arithmetic on named numbers, and ``evidence``, which takes
    those numbers from a subject. So ``mindgap bound NAME --samples 10000 …`` evaluates the same
    theorem without any model.

    >>> from mindgap.bounds import BinomialTail
    >>> found = BinomialTail(delta=0.05).evaluate(errors=12, samples=1000)
    >>> isinstance(BinomialTail(), Bound), round(float(found), 4)
    (True, 0.0194)
    """

    family: ClassVar[str] = "bound"
    # Theorems on the same evidence share a basis if one of them is never above the others.
    basis: ClassVar[str] = ""

    delta: float = option(0.05, help="probability with which the bound may fail", above=0, below=1)

    @abc.abstractmethod
    def formula(self, *args: Any, **kwargs: Any) -> Terms:
        """Evaluate the theorem; arguments are keyword-only numbers."""

    @abc.abstractmethod
    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Take the arguments of ``formula`` from a subject."""

    def broken(self, subject: Subject) -> str:  # noqa: ARG002
        """Say which assumption the subject breaks; empty if none is known to be broken."""
        return ""

    def baseline(self, subject: Subject) -> float:
        """Return the risk of the best constant prediction: a bound not below it is vacuous.

        It is estimated on the training data: the majority class's error, or the mean target's
        loss. A bound on another loss overrides it.
        """
        return constant_error(subject)

    def compute(self, subject: Subject) -> Estimate:
        """Evaluate the formula on the subject's evidence."""
        return as_estimate(self.formula(**self.evidence(subject)))

    def evaluate(self, **numbers: Any) -> Result:
        """Evaluate the bound for given numbers, without a subject.

        Args:
            **numbers: The arguments of ``formula``.
        """
        missing, unknown = self._mismatch(numbers)
        if missing or unknown:
            raise InputError(
                f"The bound {self.name} must be given {', '.join(self.arguments())}, got "
                f"{', '.join(numbers) or 'nothing'}. "
                f"{'Add ' + missing[0] if missing else 'Leave out ' + unknown[0]}."
            )
        _check_numbers(numbers, self.arguments())
        estimate = as_estimate(self.formula(**numbers))
        fields = {
            field.name: getattr(estimate, field.name) for field in dataclasses.fields(estimate)
        }
        provenance = {
            "methods": list(self.method),
            "parameters": self.parameters,
            "numbers": numbers,
        }
        return Result(
            name=self.name,
            family=self.family,
            **fields,
            valid=True,
            vacuous=not shown_below(estimate.value, estimate.terms["ceiling"]),
            provenance=provenance,
        )

    @classmethod
    def arguments(cls) -> dict[str, tuple[type, Any]]:
        """Return the numbers that ``formula`` takes, each with its type and default.

        The default is ``inspect.Parameter.empty`` if the number is required.
        """
        hints = typing.get_type_hints(cls.formula)
        named = list(inspect.signature(cls.formula).parameters.values())[1:]
        return {parameter.name: (hints[parameter.name], parameter.default) for parameter in named}

    def _mismatch(self, numbers: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        wanted = self.arguments()
        missing = [
            n
            for n, (_, default) in wanted.items()
            if default is inspect.Parameter.empty and n not in numbers
        ]
        return missing, [name for name in numbers if name not in wanted]

    def provenance(self, subject: Subject) -> dict[str, Any]:
        """Return the provenance of any measure, and the basis of the bound."""
        return {**super().provenance(subject), "basis": self.basis or self.name}

    def flags(self, subject: Subject, outcome: Estimate) -> dict[str, Any]:
        """Say whether the bound is valid (no assumption is broken) and whether it is vacuous."""
        broken = self.broken(subject)
        limit = min(outcome.terms["ceiling"], self.baseline(subject))
        return {
            "valid": not broken,
            "vacuous": not shown_below(outcome.value, limit),
            "reason": broken,
        }


def _check_numbers(numbers: Mapping[str, Any], wanted: Mapping[str, tuple[type, Any]]) -> None:
    for name, value in numbers.items():
        check_type(name, value, wanted[name][0], "Correct it.")
        low = 1 if name == "samples" else 0
        if isinstance(value, int | float) and not low <= value < math.inf:
            raise InputError(
                f"{name} must be a finite number of at least {low}, got {value}. Correct it."
            )


def as_estimate(terms: Terms) -> Estimate:
    """Return the parts of a bound as an estimate."""
    parts = {"empirical": terms.empirical, "complexity": terms.complexity, "ceiling": terms.ceiling}
    return Estimate(value=terms.total, terms={**parts, **terms.others})


def constant_error(subject: Subject) -> float:
    """Return the training error of the best constant prediction: majority class or mean target.

    >>> inputs, labels = torch.eye(4), torch.tensor([0, 0, 0, 1])
    >>> constant_error(Subject(torch.nn.Linear(4, 2), "cross_entropy", (inputs, labels)))
    0.25
    """
    targets = subject.targets("train")
    if subject.task == "classification":
        return 1 - int(torch.bincount(targets.cpu()).max()) / len(targets)
    if subject.task == "multilabel":
        share = targets.double().flatten(1).mean(0) if targets.ndim > 1 else targets.double().mean()
        return float(torch.minimum(share, 1 - share).mean())
    constant = targets.mean(0, keepdim=True).expand_as(targets)
    shape = align(subject.outputs("train"), targets).shape
    return float(subject.loss(constant.reshape(shape), targets).double().mean())
