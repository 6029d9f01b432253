"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # type checkers know this name; importing it would cost the command line time
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any
else:
    ModuleType = type(sys)


def lazy(package: str, homes: Mapping[str, str] | Callable[[], Mapping[str, Any]]) -> None:
    """Import a package's public names when they are first used; call it in ``__init__``.

    Args:
        package: The package's ``__name__``.
        homes: For every submodule its public names, separated by spaces; a submodule without names
            is itself what the package offers. Or a function that loads all public names at once,
            for packages that are walked.
    """
    module = sys.modules[package]
    module.__class__ = _walked(homes) if callable(homes) else _listed(homes)


def _listed(homes: Mapping[str, str]) -> type:
    names = {name: home for home, words in homes.items() for name in words.split()}
    modules = {home for home, words in homes.items() if not words}
    found = sorted([*names, *modules])

    class Listed(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name == "__all__":
                return found
            if name not in found:
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
            home = importlib.import_module(f"{self.__name__}.{names.get(name, name)}")
            value = home if name in modules else getattr(home, name)
            self.__dict__[name] = value
            return value

        def __setattr__(self, name: str, value: Any) -> None:
            # Importing a submodule binds it in its package. Where a public name is spelled like
            # the submodule (``runs.sweep``), it must keep its meaning, whoever imports first.
            if not (isinstance(value, ModuleType) and name in names):
                super().__setattr__(name, value)

        def __dir__(self) -> list[str]:
            return found

    return Listed


def _walked(load: Callable[[], Mapping[str, Any]]) -> type:
    class Walked(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") and name != "__all__":
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
            found = load()
            if name == "__all__":
                return sorted(found)
            if name not in found:
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
            return found[name]

        def __dir__(self) -> list[str]:
            return sorted(load())

    return Walked
