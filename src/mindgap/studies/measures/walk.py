"""All measures of the catalog on one subject, as plain data."""

from typing import Any

from mindgap.core import Measure, MindgapError, Subject, catalog


def quick_measures() -> dict[str, type[Measure]]:
    """Return the measures that are not expensive, by name, those of plug-ins included."""
    found = catalog("measure")
    return {
        name: cls
        for name, cls in found.items()
        if issubclass(cls, Measure) and cls.cost != "expensive"
    }


def measured(subject: Subject) -> dict[str, dict[str, Any]]:
    """Take every quick measure with its default settings; what it refuses is told, not raised.

    Args:
        subject: The network.
    """
    return {name: _one(cls(), subject) for name, cls in quick_measures().items()}


def _one(measure: Measure, subject: Subject) -> dict[str, Any]:
    try:
        result = measure(subject)
    except MindgapError as error:
        return {"value": None, "reason": str(error)}
    return {"value": result.value, "reason": result.reason}
