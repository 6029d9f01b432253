"""Errors that a user can act on: what was expected, what came, what to do."""

import importlib
from collections.abc import Iterable
from types import ModuleType


class MindgapError(Exception):
    """Base of every error this package raises on purpose; its text is one sentence or two, for people."""


class InputError(MindgapError, ValueError):
    """An argument, a file or a data set is not what was asked for."""


class UnknownNameError(MindgapError, KeyError):
    """A name that nothing answers to."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would print the repr


class MissingExtraError(MindgapError, ImportError):
    """An optional package is not installed."""


class DataUnavailableError(MindgapError, OSError):
    """A data set is neither on disk nor can be downloaded, or its file is damaged."""


class CheckpointError(MindgapError, OSError):
    """A checkpoint cannot be read or does not belong to this run."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Say that ``name`` is unknown and which near name was probably meant.

    >>> str(unknown_name("measure", "magin", ["margin", "gap"]))
    "measure must be one of the known names, got 'magin'. Did you mean 'margin'?"
    """
    import difflib  # only a misspelled name pays for it

    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    advice = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names)}."
    return UnknownNameError(f"{kind} must be one of the known names, got {name!r}. {advice}")


def require(package: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra installs it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f"This needs the package {package!r}, which is not installed. Run: pip install "
            f"'mindgap[{extra}]'"
        ) from error
