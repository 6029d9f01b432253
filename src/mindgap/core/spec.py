"""Spec: a frozen dataclass that names itself, registers itself and carries its own words."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from typing import Any, ClassVar, Self, dataclass_transform

from mindgap.core import options
from mindgap.core.words import Words, words_of

REGISTRY: dict[str, dict[str, type[Spec]]] = {}


def kebab(name: str) -> str:
    """Turn a class name into a command-line name.

    >>> kebab("DistanceFromInitialisation")
    'distance-from-initialisation'
    >>> kebab("VbswTable1"), kebab("DARC1")
    ('vbsw-table-1', 'darc1')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z])(?=[0-9])", "-", name).lower()


@dataclass_transform(frozen_default=True, kw_only_default=True)  # whatever stands after "=" is a default
class Spec:
    """Base of all families. A subclass is abstract (``abstract=True``) or final, never both.

    Its docstring holds the one-line summary and the paragraphs ``Formula:``, ``Reading:``, ``Assumes:``;
    ``method`` holds its ids in the list of methods, ``cites`` keys of references.bib.
    """

    family: ClassVar[str] = ""
    name: ClassVar[str] = ""
    abstract: ClassVar[bool] = True
    method: ClassVar[tuple[str, ...]] = ()
    cites: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__bases__:
            if issubclass(base, Spec) and not base.abstract:
                raise TypeError(f"{cls.__name__} may not extend {base.__name__}: a spec is abstract or final.")
        cls.abstract = abstract
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        if not abstract:
            cls.name = kebab(cls.__name__)
            _register(cls)

    def __post_init__(self) -> None:
        options.check(self)

    @classmethod
    def words(cls) -> Words:
        """What the docstring says."""
        return words_of(cls)

    @property
    def parameters(self) -> dict[str, Any]:
        """The fields and their values."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    @property
    def digest(self) -> str:
        """Hash of family, name and parameters: the same in every process."""
        text = json.dumps([self.family, self.name, self.parameters], sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


def _register(cls: type[Spec]) -> None:
    shelf = REGISTRY.setdefault(cls.family, {})
    known = shelf.get(cls.name)
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"Two {cls.family}s are called {cls.name!r}: {known.__module__} and {cls.__module__}.")
    shelf[cls.name] = cls
