"""Data sets by name: all that ``@dataset`` registered, here or in an installed plug-in."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from mindgap.core import unknown_name, validated
from mindgap.core.registry import load_plugins, walk
from mindgap.data.dataset import LOADERS, DataSet, Loader


@functools.cache
def _walk() -> None:
    walk("mindgap.data")
    load_plugins()


def loaders() -> Mapping[str, Loader]:
    """List the function behind every data set, by name, in alphabetical order.

    >>> loaders()["digits"].__doc__.splitlines()[0]
    '1,797 handwritten digits of shape (1, 8, 8) in [0, 1]; needs no download.'
    """
    _walk()
    return dict(sorted(LOADERS.items()))


def available() -> tuple[str, ...]:
    """List the names of all data sets.

    >>> [name for name in available() if name.startswith("uci-p")]
    ['uci-power', 'uci-protein']
    """
    return tuple(loaders())


@validated
def load(name: str, **options: Any) -> DataSet:
    """Read, download or generate a data set.

    Args:
        name: One of :func:`available`.
        **options: Arguments of the function that registered it.

    Returns:
        Training and test data, with what is known about them.

    >>> load("two-moons", size=20, seed=1)
    DataSet('two-moons': classification, 20 train, 1000 test, inputs (2,) float32, 2 classes)
    >>> load("mnits")
    Traceback (most recent call last):
    mindgap.core.errors.UnknownNameError: data set must be one of the known names, got 'mnits'. Did you mean 'mnist'?
    """
    known = loaders()
    if name not in known:
        raise unknown_name("data set", name, known)
    allowed = inspect.signature(known[name]).parameters
    for option in options:
        if option not in allowed:
            raise unknown_name(f"option of {name}", option, allowed)
    return known[name](**options)
