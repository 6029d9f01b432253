"""Find every spec, in the folder of its family or in an installed plug-in."""

import functools
import importlib
import pkgutil
import warnings
from importlib import metadata

from mindgap.core.checks import validated
from mindgap.core.errors import unknown_name
from mindgap.core.spec import FUNCTIONS, REGISTRY, Function, Spec

ENTRY_POINTS = "mindgap.specs"
FAMILIES = {
    "measure": "mindgap.measures",
    "bound": "mindgap.bounds",
    "diagnosis": "mindgap.diagnoses",
    "remedy": "mindgap.remedies",
    "study": "mindgap.studies",
}
HOMES_OF_FUNCTIONS = ("mindgap.ops", "mindgap.sampling", "mindgap.training", "mindgap.jobs")


def walk(name: str) -> None:
    """Import a module and, if it is a package, everything in its folder and the folders below."""
    package = importlib.import_module(name)
    for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
        walk(f"{name}.{module.name}")


@functools.cache
def load_family(family: str) -> None:
    """Import one family of the package, and nothing of the others."""
    walk(FAMILIES[family])


@functools.cache
def load_plugins() -> tuple[str, ...]:
    """Import what installed third parties add under the entry-point group ``mindgap.specs``.

    Returns:
        One sentence per plug-in that could not be loaded; each is also a warning.
    """
    problems = []
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            walk(entry.value)
        except Exception as error:  # a broken plug-in must not break the package
            problems.append(
                f"The plug-in {entry.name!r} ({entry.value}) could not be loaded: {error}"
            )
            warnings.warn(problems[-1], stacklevel=2)
    return tuple(problems)


@validated
def catalog(family: str | None = None) -> dict[str, type[Spec]]:
    """List every spec by name, in alphabetical order.

    Args:
        family: ``"measure"``, ``"bound"``, ``"diagnosis"``, ``"remedy"`` or ``"study"``; all of
            them if None. Only the modules of that family are imported.

    >>> "gap" in catalog("measure"), "gap" in catalog("bound")
    (True, False)
    """
    if family is not None and family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES)
    wanted = [family] if family else list(FAMILIES)
    for name in wanted:
        load_family(name)
    load_plugins()
    return {name: cls for shelf in wanted for name, cls in sorted(REGISTRY.get(shelf, {}).items())}


@functools.cache
def _load_functions() -> None:
    for home in HOMES_OF_FUNCTIONS:
        walk(home)


def functions() -> dict[str, Function]:
    """List what ``@implements`` marked, by name: functions and classes that are no spec.

    >>> sorted(functions()) == list(functions())
    True
    """
    _load_functions()
    load_plugins()
    return dict(sorted(FUNCTIONS.items()))


@validated
def find(name: str, family: str | None = None) -> type[Spec]:
    """Look a spec up by name; a misspelled name raises with the nearest known one.

    Args:
        name: The name, with hyphens or underscores.
        family: The family to look in; all if None.

    >>> find("parameter_norm").__name__
    'ParameterNorm'
    """
    known = catalog(family)
    hyphenated = name.replace("_", "-").lower()
    if hyphenated not in known:
        raise unknown_name(family or "name", name, known)
    return known[hyphenated]


def own_specs(family: str) -> dict[str, type[Spec]]:
    """List this package's own specs of a family by class name, for ``mindgap.measures`` etc."""
    load_family(family)
    own = [
        cls
        for cls in REGISTRY[family].values()
        if cls.__module__.startswith(FAMILIES[family] + ".")
    ]
    return {cls.__name__: cls for cls in sorted(own, key=lambda cls: cls.__name__)}
