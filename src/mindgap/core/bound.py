"""Bound: a theorem with all its constants, split into what was seen and the price of generalizing."""

import abc
import dataclasses
import inspect
import math
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

from mindgap.core.errors import InputError
from mindgap.core.measure import Estimate, Measure
from mindgap.core.result import Result
from mindgap.core.spec import option
from mindgap.core.subject import Subject


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """The two parts of a bound, the value beyond which it says nothing, and what else to show."""

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
    those numbers from a subject; so the same theorem serves ``mindgap bound NAME --samples 10000
    …`` without any model.
    """

    family: ClassVar[str] = "bound"
    basis: ClassVar[str] = (
        ""  # theorems on the same evidence, one of which is never above the others, share a basis
    )

    delta: float = option(0.05, help="probability with which the bound may fail", above=0, below=1)

    @abc.abstractmethod
    def formula(self, *args: Any, **kwargs: Any) -> Terms:
        """The theorem; arguments are keyword-only numbers."""

    @abc.abstractmethod
    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """The arguments of ``formula`` for a subject."""

    def broken(self, subject: Subject) -> str:  # noqa: ARG002
        """Which assumption the subject breaks, or an empty string."""
        return ""

    def compute(self, subject: Subject) -> Estimate:
        """The formula on the subject's evidence."""
        return as_estimate(self.formula(**self.evidence(subject)))

    def evaluate(self, **numbers: Any) -> Result:
        """The bound for given numbers, without a subject."""
        missing, unknown = self._mismatch(numbers)
        if missing or unknown:
            raise InputError(
                f"The bound {self.name} must be given {', '.join(self.arguments())}, got "
                f"{', '.join(numbers) or 'nothing'}. "
                f"{'Add ' + missing[0] if missing else 'Leave out ' + unknown[0]}."
            )
        _check_numbers(numbers)
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
            vacuous=_vacuous(estimate),
            provenance=provenance,
        )

    @classmethod
    def arguments(cls) -> dict[str, tuple[type, Any]]:
        """The numbers that ``formula`` takes: type and default (``inspect.Parameter.empty`` if required)."""
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
        """As of any measure, with the basis beside it."""
        return {**super().provenance(subject), "basis": self.basis or self.name}

    def flags(self, subject: Subject, outcome: Estimate) -> dict[str, Any]:
        """A bound is valid if no assumption is broken, vacuous if it is no better than the worst loss."""
        broken = self.broken(subject)
        return {"valid": not broken, "vacuous": _vacuous(outcome), "reason": broken}


def _check_numbers(numbers: Mapping[str, Any]) -> None:
    for name, value in numbers.items():
        low = 1 if name == "samples" else 0
        if isinstance(value, int | float) and not low <= value < math.inf:
            raise InputError(
                f"{name} must be a finite number of at least {low}, got {value}. Correct it."
            )


def as_estimate(terms: Terms) -> Estimate:
    """The parts of a bound as an estimate."""
    parts = {"empirical": terms.empirical, "complexity": terms.complexity, "ceiling": terms.ceiling}
    return Estimate(value=terms.total, terms={**parts, **terms.others})


def _vacuous(estimate: Estimate) -> bool:
    return estimate.value >= estimate.terms["ceiling"]
