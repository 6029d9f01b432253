"""Spec: a frozen dataclass that registers itself, checks its fields and carries its own words.

A field has a default, a sentence of help and a range of allowed values. The paragraphs of the
docstring are taken apart for the command line, the report and the docs.
"""

import dataclasses
import functools
import hashlib
import inspect
import json
import math
import re
import typing
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from mindgap.core.checks import check_type, matches
from mindgap.core.errors import InputError, shown


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,  # noqa: A002  (the word every command line uses)
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[Any, ...] = (),
) -> Any:
    """Declare a spec's field.

    Args:
        default: The default; the field is required without one.
        help: What the field means, as part of a sentence.
        low: Smallest allowed value.
        high: Largest allowed value.
        above: Number that the value must exceed.
        below: Number that the value must stay below.
        choices: The allowed values, where there are few.
    """
    metadata = {
        "help": help,
        "low": low,
        "high": high,
        "above": above,
        "below": below,
        "choices": choices,
    }
    return dataclasses.field(default=default, metadata=metadata)


def allowed(metadata: Any) -> str:
    """Say in words which values a field takes.

    >>> allowed({"above": 0, "high": 1})
    'a number above 0 and at most 1'
    """
    if metadata.get("choices"):
        return "one of " + ", ".join(map(repr, metadata["choices"]))
    words = {"low": "at least", "above": "above", "high": "at most", "below": "below"}
    ends = [
        f"{word} {metadata[key]:g}" for key, word in words.items() if metadata.get(key) is not None
    ]
    return "a number " + " and ".join(ends)


def inside(value: Any, metadata: Any) -> bool:
    """Whether ``value`` obeys what :func:`option` declared; None is for the type to allow."""
    if value is None:
        return True
    if metadata.get("choices"):
        return value in metadata["choices"]
    if not isinstance(value, int | float):
        return not any(metadata.get(key) is not None for key in ("low", "high", "above", "below"))
    low, high, above, below = (metadata.get(key) for key in ("low", "high", "above", "below"))
    return (
        not math.isnan(value)
        and (low is None or value >= low)
        and (high is None or value <= high)
        and (above is None or value > above)
        and (below is None or value < below)
    )


def check(instance: Any) -> None:
    """Raise one sentence for the first field of a dataclass whose type or range is wrong."""
    cls = instance.__class__
    for field, hint, limited in _checked(cls):
        value = getattr(instance, field.name)
        if not matches(value, hint):
            check_type(field.name, value, hint, _meaning(cls, field))
        if isinstance(field.default, tuple) and field.default and len(value) == 0:
            raise InputError(
                f"{field.name} must hold at least one value, got none. {_meaning(cls, field)}"
            )
        several = value if isinstance(value, tuple | list) else (value,)
        # No setting means "infinite" unless its author says so by the default.
        for one in several:
            if isinstance(one, float) and math.isinf(one) and value != field.default:
                raise InputError(
                    f"{field.name} must be a finite number, got {one}. {_meaning(cls, field)}"
                )
        if limited and not all(inside(one, field.metadata) for one in several):
            raise InputError(
                f"{field.name} must be {allowed(field.metadata)}, got {shown(value)}. "
                f"{_meaning(cls, field)}"
            )


@functools.cache  # an ensemble makes thousands of recipes, so nothing is looked up twice
def _checked(cls: type) -> tuple[tuple[dataclasses.Field[Any], Any, bool], ...]:
    """Return the fields of a dataclass with their types, and whether their values are limited."""
    hints = typing.get_type_hints(cls)
    return tuple(
        (field, hints[field.name], _limited(field.metadata)) for field in dataclasses.fields(cls)
    )


def _limited(metadata: Any) -> bool:
    ends = (metadata.get(key) for key in ("low", "high", "above", "below"))
    return bool(metadata.get("choices")) or any(end is not None for end in ends)


def _meaning(cls: type, field: dataclasses.Field[Any]) -> str:
    words = field.metadata.get("help", "")
    return f"It is: {words}." if words else f"See help({cls.__name__})."


SECTIONS = ("Formula", "Reading", "Assumes")


@dataclasses.dataclass(frozen=True)
class Words:
    """One line, the formula as LaTeX, how to read a value, and what must hold."""

    summary: str
    formula: str
    reading: str
    assumes: str


def words_of(cls: Any) -> Words:
    """Parse ``Formula:``, ``Reading:`` and ``Assumes:`` paragraphs out of a docstring."""
    text = inspect.cleandoc(cls.__doc__ or "").split("\n>>>")[0]
    paragraphs = [" ".join(block.split()) for block in re.split(r"\n\s*\n", text)]
    parts = dict.fromkeys(SECTIONS, "")
    for paragraph in paragraphs[1:]:
        head, _, body = paragraph.partition(":")
        if head in parts:
            parts[head] = body.strip()
    return Words(
        summary=paragraphs[0],
        formula=_one_formula(parts["Formula"]),
        reading=parts["Reading"],
        assumes=parts["Assumes"],
    )


def _one_formula(paragraph: str) -> str:
    r"""Return the LaTeX of a paragraph: what stands between its formulas becomes text.

    >>> _one_formula("$a > b$ at every $x$")
    'a > b\\text{ at every }x'
    """
    pieces = paragraph.split("$")
    return "".join(
        piece if place % 2 or len(pieces) == 1 else rf"\text{{{piece}}}" if piece else ""
        for place, piece in enumerate(pieces)
    ).strip()


REGISTRY: dict[str, dict[str, type["Spec"]]] = {}


def kebab(name: str) -> str:
    """Turn a class name into a command-line name.

    >>> kebab("DistanceFromInitialization")
    'distance-from-initialization'
    >>> kebab("VbswTable1"), kebab("DARC1")
    ('vbsw-table-1', 'darc1')
    """
    return re.sub(
        r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z])(?=[0-9])", "-", name
    ).lower()


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Spec:
    """Base of all families. A subclass is abstract (``abstract=True``) or final, never both.

    Its docstring holds the one-line summary and the paragraphs ``Formula:``, ``Reading:``,
    ``Assumes:``; ``method`` holds its ids in the list of methods, ``cites`` keys of references.bib.

    >>> from mindgap.measures import Margin
    >>> isinstance(Margin(), Spec), Margin.name, Margin().parameters
    (True, 'margin', {'quantile': 0.1})
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
                raise TypeError(
                    f"{cls.__name__} may not extend {base.__name__}: a spec is abstract or final."
                )
        cls.abstract = abstract
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        if not abstract:
            cls.name = kebab(cls.__name__)
            _register(cls)

    def __post_init__(self) -> None:
        check(self)

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
    if known is not None and (known.__module__, known.__qualname__) != (
        cls.__module__,
        cls.__qualname__,
    ):
        raise TypeError(
            f"Two {cls.family}s are called {cls.name!r}: {known.__module__} and {cls.__module__}."
        )
    shelf[cls.name] = cls


@dataclasses.dataclass(frozen=True, kw_only=True)
class Function:
    """A public function or class that implements methods and is no spec: found by name like one."""

    name: str
    call: Any
    method: tuple[str, ...]
    cites: tuple[str, ...]
    family: ClassVar[str] = "function"

    def words(self) -> Words:
        """What the docstring says."""
        return words_of(self.call)


FUNCTIONS: dict[str, Function] = {}
T = TypeVar("T", bound=Callable[..., Any])


def implements(*method: str, cites: tuple[str, ...]) -> Callable[[T], T]:
    """Let ``mindgap list`` and ``mindgap explain`` find a function or class under its name.

    Args:
        *method: Its ids in the list of methods.
        cites: Keys of references.bib.

    >>> @implements("V4", cites=("novello2020variance",))
    ... def some_variance() -> float:
    ...     return 0.0
    >>> FUNCTIONS.pop("some-variance").method
    ('V4',)
    """

    def register(call: T) -> T:
        name = kebab(call.__name__).replace("_", "-")
        FUNCTIONS[name] = Function(name=name, call=call, method=method, cites=cites)
        return call

    return register
