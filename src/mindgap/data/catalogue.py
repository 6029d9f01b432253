"""Data sets by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from mindgap.core.errors import unknown_name
from mindgap.data.boston_housing import boston
from mindgap.data.california_housing import california
from mindgap.data.cifar import cifar10
from mindgap.data.dataset import DataSet
from mindgap.data.generators import heteroscedastic, teacher, two_moons
from mindgap.data.glue import mrpc, rte, stsb
from mindgap.data.mixture import gaussian_mixture
from mindgap.data.mnist_idx import mnist
from mindgap.data.modular import modular_arithmetic
from mindgap.data.optical_digits import digits
from mindgap.data.uci_tables import TABLES, uci

_LOADERS: dict[str, Callable[..., DataSet]] = {
    "digits": digits,
    "mnist": mnist,
    "cifar10": cifar10,
    "boston": boston,
    "california": california,
    "rte": rte,
    "mrpc": mrpc,
    "stsb": stsb,
    "two-moons": two_moons,
    "gaussian-mixture": gaussian_mixture,
    "heteroscedastic": heteroscedastic,
    "teacher": teacher,
    "modular": modular_arithmetic,
    **{f"uci-{table}": functools.partial(uci, table) for table in TABLES},
}


def available() -> tuple[str, ...]:
    """Names that ``load`` knows.

    >>> [name for name in available() if name.startswith("uci-p")]
    ['uci-power', 'uci-protein']
    """
    return tuple(sorted(_LOADERS))


def load(name: str, **options: Any) -> DataSet:
    """Read, download or generate the data set called ``name``; ``options`` go to its function.

    >>> load("two-moons", size=20, seed=1)
    DataSet('two-moons': classification, 20 train, 1000 test, inputs (2,) float32, 2 classes)
    >>> load("mnits")
    Traceback (most recent call last):
    mindgap.core.errors.UnknownNameError: data set must be one of the known names, got 'mnits'. Did you mean 'mnist'?
    """
    if name not in _LOADERS:
        raise unknown_name("data set", name, _LOADERS)
    known = inspect.signature(_LOADERS[name]).parameters
    for option in options:
        if option not in known:
            raise unknown_name(f"option of {name}", option, known)
    return _LOADERS[name](**options)
