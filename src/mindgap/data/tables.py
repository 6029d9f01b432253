"""Make regression data sets from arrays."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mindgap.core import integer
from mindgap.data.damage import damaged, reading
from mindgap.data.dataset import DataSet
from mindgap.data.splits import stratified_split

Numbers = NDArray[np.float64]


def read_npz(path: Path, *names: str) -> tuple[NDArray[np.generic], ...]:
    """Read arrays of an npz file; pickled objects are refused."""
    expected = f"an npz file with the arrays {', '.join(names)}"
    with (
        reading(path, expected),
        path.open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        return tuple(arrays[name] for name in names)


def check_finite(path: Path, rows: int, *tables: Numbers) -> None:
    """Raise if a table read from ``path`` has another number of rows or is not finite."""
    for table in tables:
        if len(table) != rows:
            raise damaged(path, f"a table of {rows} rows", f"{len(table)}")
        if not np.isfinite(table).all():
            raise damaged(path, "a table of finite numbers", "one with gaps")


def regression(
    name: str,
    inputs: Numbers,
    targets: Numbers,
    test: Tensor,
    source: str,
    feature_names: tuple[str, ...] | None = None,
) -> DataSet:
    """Make a data set whose test part is where the mask ``test`` is true."""
    features = torch.from_numpy(inputs.astype(np.float32))
    column = torch.from_numpy(targets.astype(np.float32)).reshape(-1, 1)
    parts = features[~test], column[~test], features[test], column[test]
    return DataSet(name, *parts, task="regression", feature_names=feature_names, source=source)


def random_mask(count: int, test_size: int, seed: int) -> Tensor:
    """Make a mask with ``test_size`` random places."""
    integer("test_size", test_size, 1, count - 1, "all samples but one")
    mask = torch.zeros(count, dtype=torch.bool)
    mask[stratified_split(torch.zeros(count), (test_size,), seed)[0]] = True
    return mask
