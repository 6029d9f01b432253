"""Base classes out of packages that may be missing."""

from __future__ import annotations

from typing import Any

from mindgap.core.errors import MissingExtraError, require


def base_class(module: str, name: str, extra: str) -> Any:
    """A class of an optional package; where it is missing, one that says so when an object is made.

    >>> base_class("collections", "OrderedDict", "none").__name__
    'OrderedDict'
    >>> base_class("no_such_package", "Thing", "tools")()
    Traceback (most recent call last):
    mindgap.core.errors.MissingExtraError: This needs the package 'no_such_package', which is not installed. Run: ...
    """
    try:
        return getattr(require(module, extra), name)
    except MissingExtraError as error:
        text = str(error)

    class Missing:
        """Stands where the package's class would."""

        def __init__(self, *_: Any, **__: Any) -> None:
            raise MissingExtraError(text)

    return Missing
