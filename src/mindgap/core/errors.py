"""Errors that a user can act on: what was expected, what came, what to do."""

import importlib
from collections.abc import Iterable
from types import ModuleType


class MindgapError(Exception):
    """Base of every error that this package raises on purpose."""


class InputError(MindgapError, ValueError):
    """An argument, a file or a data set is not what was expected."""


class UnknownNameError(MindgapError, KeyError):
    """No measure, data set or other entry has this name."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would print the repr


class MissingExtraError(MindgapError, ImportError):
    """An optional package is not installed."""


class DataUnavailableError(MindgapError, OSError):
    """A data set is not on disk and cannot be downloaded, or its file is damaged."""


class CheckpointError(MindgapError, OSError):
    """A checkpoint cannot be read or does not belong to this run."""


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
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    advice = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names)}."
    return UnknownNameError(f"{kind} must be one of the known names, got {name!r}. {advice}")


def require(package: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra installs it.

    Args:
        package: The module to import, such as "scipy.spatial".
        extra: The extra of this package that installs it.

    >>> require("no_such_package", "report")
    Traceback (most recent call last):
    mindgap.core.errors.MissingExtraError: This needs the package 'no_such_package', which is not \
installed. Run: pip install 'mindgap[report]'
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f"This needs the package {package!r}, which is not installed. Run: pip install "
            f"'mindgap[{extra}]'"
        ) from error
