"""Find every spec: by walking a family's folder, and through one entry-point group for third parties."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
import warnings
from importlib import metadata

from mindgap.core.errors import unknown_name
from mindgap.core.spec import REGISTRY, Spec

ENTRY_POINTS = "mindgap.specs"
ROOMS = {
    "measure": "mindgap.measures",
    "bound": "mindgap.bounds",
    "remedy": "mindgap.remedies",
    "study": "mindgap.studies",
}


def walk(package_name: str) -> None:
    """Import a module and, if it is a package, all that lies in its folder."""
    package = importlib.import_module(package_name)
    for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
        importlib.import_module(f"{package_name}.{module.name}")


def publish(package_name: str) -> list[str]:
    """Import a family's folder and put the specs found there into its namespace; returns ``__all__``."""
    walk(package_name)
    found = {
        cls.__name__: cls
        for shelf in REGISTRY.values()
        for cls in shelf.values()
        if cls.__module__.startswith(package_name + ".")
    }
    vars(sys.modules[package_name]).update(found)
    return sorted(found)


@functools.cache
def load() -> None:
    """Import the house's own families and what installed third parties add under ``mindgap.specs``."""
    for room in ROOMS.values():
        importlib.import_module(room)
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            walk(entry.value)
        except Exception as error:  # a broken plug-in must not take the house down
            warnings.warn(f"The plug-in {entry.name!r} ({entry.value}) could not be loaded: {error}", stacklevel=2)


def catalogue(family: str | None = None) -> dict[str, type[Spec]]:
    """Every spec of a family (or of all) by name, in alphabetical order."""
    load()
    if family is not None and family not in ROOMS:
        raise unknown_name("family", family, ROOMS)
    shelves = [REGISTRY.get(family, {})] if family else [REGISTRY.get(name, {}) for name in ROOMS]
    return {name: cls for shelf in shelves for name, cls in sorted(shelf.items())}


def find(name: str, family: str | None = None) -> type[Spec]:
    """The spec of that name; a misspelt one raises with the near name."""
    known = catalogue(family)
    plain = name.replace("_", "-").lower()
    if plain not in known:
        raise unknown_name(family or "name", name, known)
    return known[plain]
