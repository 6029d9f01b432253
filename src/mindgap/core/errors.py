"""Errors that a user can act on: what was expected, what came, what to do."""

import importlib
import re
from collections.abc import Iterable
from types import ModuleType

ECHOED = 200  # characters of a user's input that a message repeats
LISTED = 24  # known names that a message lists; of more it names the nearest


def shown(value: object) -> str:
    """Return what a message repeats of a value: its repr, shortened; of an array, its shape.

    >>> shown("a" * 1000)[-3:], shown(10**5000)
    ("a…'", 'an integer of 16610 bits')
    """
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    if isinstance(value, int) and value.bit_length() > ECHOED:  # Python refuses to print it
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str):
        return repr(value if len(value) <= ECHOED else f"{value[: ECHOED - 1]}…")
    try:
        text = repr(value)
    except Exception:  # an object of the user's, or a list of huge integers
        return f"a {type(value).__name__}"
    return text if len(text) <= ECHOED else f"{text[: ECHOED - 1]}…"


def shortened(message: str) -> str:
    """Put a message on one line, and cut what it repeats of a user's input at 200 characters.

    A message quotes the input, or the input is a path, which seldom has spaces. So a long quotation
    or a long word is input.

    >>> len(shortened(f"The name must be short, got '{'a b' * 1000}'. Cut it."))
    239
    """
    printable = "".join(one if one.isprintable() else " " for one in message)
    pattern = rf"'[^']{{{ECHOED},}}'|\"[^\"]{{{ECHOED},}}\"|\S{{{ECHOED},}}"
    return re.sub(pattern, lambda found: f"{found[0][:ECHOED]}…{_closing(found[0])}", printable)


def _closing(text: str) -> str:
    return text[0] if text[0] in "'\"" else ""


class MindgapError(Exception):
    """Base of every error that this package raises on purpose; its message is one short line.

    >>> import mindgap
    >>> try:
    ...     mindgap.find("magin")
    ... except MindgapError as error:
    ...     print(str(error).split(". ")[1])
    Did you mean 'margin'?
    """

    def __str__(self) -> str:
        return shortened(super().__str__())


class InputError(MindgapError, ValueError):
    """An argument, a file or a data set is not what was expected."""


class NotFiniteError(InputError):
    """A model's weights or outputs are NaN or infinite.

    >>> issubclass(NotFiniteError, InputError)
    True
    """


class UnknownNameError(MindgapError, KeyError):
    """No measure, data set or other entry has this name.

    >>> str(UnknownNameError("The name is unknown."))  # a KeyError would show quotation marks
    'The name is unknown.'
    """

    def __str__(self) -> str:
        return shortened(str(self.args[0]))  # KeyError would print the repr


class MissingExtraError(MindgapError, ImportError):
    """An optional package is not installed.

    >>> try:
    ...     require("no_such_package", "search")
    ... except MissingExtraError as error:
    ...     print(str(error).split(". ")[1])
    Run: pip install 'mindgap[search]'
    """


class DataUnavailableError(MindgapError, OSError):
    """A data set is not on disk and cannot be downloaded, or its file is damaged.

    >>> issubclass(DataUnavailableError, MindgapError), issubclass(DataUnavailableError, OSError)
    (True, True)
    """


class CheckpointError(MindgapError, OSError):
    """A checkpoint cannot be read or does not belong to this run.

    >>> issubclass(CheckpointError, MindgapError), issubclass(CheckpointError, OSError)
    (True, True)
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Make the error for an unknown name, with the nearest known one as a suggestion.

    Args:
        kind: What the name should be, such as "measure".
        name: What the user wrote.
        known: The names that exist.

    >>> str(unknown_name("measure", "magin", ["margin", "gap"]))
    "measure must be one of the known names, got 'magin'. Did you mean 'margin'?"
    """
    import difflib  # only a misspelled name pays for it

    names = sorted(known)
    near = difflib.get_close_matches(name[:ECHOED], names, n=1, cutoff=0.5)
    if near:
        advice = f"Did you mean {near[0]!r}?"
    elif len(names) <= LISTED:
        advice = f"Known: {', '.join(names)}."
    else:
        nearest = difflib.get_close_matches(name[:ECHOED], names, n=5, cutoff=0.0)
        advice = f"The nearest of {len(names)}: {', '.join(nearest)}."
    return UnknownNameError(f"{kind} must be one of the known names, got {shown(name)}. {advice}")


def require(package: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra installs it.

    Args:
        package: The module to import, such as "scipy.spatial".
        extra: The extra of this package that installs it.

    >>> require("no_such_package", "search")
    Traceback (most recent call last):
    mindgap.core.errors.MissingExtraError: This needs the package 'no_such_package', which is not \
installed. Run: pip install 'mindgap[search]'
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f"This needs the package {package!r}, which is not installed. Run: pip install "
            f"'mindgap[{extra}]'"
        ) from error
