"""Base classes from packages that may be missing."""

from typing import Any

from mindgap.core import MissingExtraError, require


def base_class(module: str, name: str, extra: str) -> Any:
    """Return a class of an optional package, to inherit from.

    If the package is missing, it is a class that says so when an object is made.

    Args:
        module: The module that holds the class.
        name: The name of the class.
        extra: The extra of mindgap that installs the package.

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
        """Takes the place of the package's class."""

        def __init__(self, *_: Any, **__: Any) -> None:
            raise MissingExtraError(text)

    return Missing
