"""Read features and labels from arrays, memory maps, loaders or chunks."""

import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from mindgap.core import InputError, as_tensor, check_finite, part
from mindgap.ops.neighbors.points import BLOCK, disk_table

Chunks = Iterable[Any] | Callable[[], Iterable[Any]]


class _NotNumbersError(InputError, TypeError):
    """Features cannot be converted to numbers."""


def _is_chunked(data: Any) -> bool:
    """Check for (X, y) chunks: a loader, a list or generator of pairs, or a function."""
    if isinstance(data, DataLoader) or callable(data) or isinstance(data, Iterator):
        return True
    return isinstance(data, list | tuple) and bool(data) and isinstance(data[0], tuple | dict)


def read(
    features: Any, labels: Any, needs_labels: bool = True
) -> tuple[Tensor, Tensor | None, bool]:
    """Read a 2-D table of features and its labels, and say whether the table is on disk.

    Args:
        features: Array, tensor, memory map or sequence of rows; or (X, y) chunks.
        labels: One entry per row; None if the chunks carry them.
        needs_labels: Raise if there are no labels.
    """
    if labels is None and _is_chunked(features):
        return _spool(features() if callable(features) else features)
    if labels is None and needs_labels:
        raise InputError(
            "y must be given unless X is a DataLoader or an iterable of (X, y) chunks, got None: "
            "this requires y to be passed, but the target y is None. Pass the labels."
        )
    table = _table(features)
    target = None if labels is None else _labels(labels, len(table))
    _check_table(table)
    return table, target, isinstance(features, np.memmap)


def _spool(chunks: Iterable[Any]) -> tuple[Tensor, Tensor, bool]:
    """Write the features to a nameless temporary file, so that they need not fit in memory."""
    labels: list[Tensor] = []
    width, kind = 0, np.dtype("float32")
    with tempfile.TemporaryDirectory(prefix="mindgap-") as folder:
        path = Path(folder) / "rows"
        with path.open("wb") as file:
            for chunk in chunks:
                rows, target = _chunk(chunk)
                kind, width = _append(file, rows, kind, width, first=not labels)
                labels.append(target)
        if not labels:
            raise InputError(
                "The data must hold at least one chunk of samples, got none. Pass more data."
            )
        mapped = np.memmap(path, dtype=kind, mode="r+", shape=(sum(map(len, labels)), width))
    table = torch.from_numpy(mapped)
    _check_table(table)
    return table, torch.cat(labels), True


def _chunk(chunk: Any) -> tuple[Tensor, Tensor]:
    inputs, target = part(chunk)
    values = list(inputs.values()) if isinstance(inputs, dict) else list(inputs)
    rows = torch.cat([value.reshape(len(target), -1) for value in values], dim=1).detach().cpu()
    return (rows if rows.dtype == torch.float64 else rows.float()), target.detach().cpu()


def _append(
    file: BinaryIO, rows: Tensor, kind: np.dtype[Any], width: int, first: bool
) -> tuple[np.dtype[Any], int]:
    array = rows.numpy()
    if first:
        kind, width = array.dtype, array.shape[1]
    if array.shape[1] != width:
        raise InputError(
            f"Every chunk must have {width} features as the first had, got {array.shape[1]}. Check "
            "X."
        )
    file.write(np.ascontiguousarray(array, dtype=kind).tobytes())
    return kind, width


def _table(features: Any) -> Tensor:
    if hasattr(features, "toarray"):
        raise InputError(
            f"X must be a dense table of numbers, got a sparse {type(features).__name__}. Pass "
            "X.toarray() instead."
        )
    if isinstance(features, np.memmap):
        return _mapped(features)
    array = features if isinstance(features, Tensor | np.ndarray) else np.asarray(features)
    if isinstance(array, np.ndarray):
        array = _numbers(array)
    table = array if isinstance(array, Tensor) else as_tensor(array)
    table = table.detach().cpu()
    return table if table.dtype in (torch.float32, torch.float64) else table.double()


def _mapped(array: np.memmap[Any, Any]) -> Tensor:
    """Use a memory map of floats as it is; convert any other block by block to a new map."""
    if array.dtype in (np.float32, np.float64):
        with warnings.catch_warnings():
            # Nothing here writes to it.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return torch.from_numpy(array)
    if array.ndim != 2:
        return as_tensor(_numbers(np.asarray(array)))
    kind = torch.float32 if array.dtype.itemsize <= 2 else torch.float64
    table = disk_table(array.shape[0], array.shape[1], kind)
    for start in range(0, len(array), BLOCK):
        table[start : start + BLOCK] = as_tensor(_numbers(np.array(array[start : start + BLOCK])))
    return table


def _numbers(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.kind == "c":
        raise InputError(
            f"X must hold real numbers, got {array.dtype}. Complex data not supported: pass real "
            "features."
        )
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise _NotNumbersError(
                f"X must hold numbers, got objects ({error}). Encode them as numbers."
            ) from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"X must hold numbers, got {array.dtype}. Encode it as numbers first.")
    return (
        array
        if array.dtype.newbyteorder("=") == array.dtype
        else array.astype(array.dtype.newbyteorder("="))
    )


def _labels(labels: Any, count: int) -> Tensor:
    if not isinstance(labels, Tensor):
        labels = np.asarray(labels)
        if labels.dtype.kind in "OUS":  # names of classes
            labels = _named(labels)
    target = as_tensor(labels).detach().cpu()
    if target.ndim == 0 or len(target) != count:
        raise InputError(
            f"X and y must have as many samples each, got {count} in X and "
            f"{len(target) if target.ndim else 1} in y. Check that they belong together."
        )
    check_finite(target, "labels y")
    return target


def _named(labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if labels.dtype.kind == "O":
        try:
            return labels.astype(np.float64)
        except (TypeError, ValueError):
            labels = labels.astype(str)
    return np.unique(labels, return_inverse=True)[1].reshape(labels.shape)


def _check_table(table: Tensor) -> None:
    if table.ndim != 2:
        raise InputError(
            f"X must have 2 dimensions, samples by features, got {table.ndim}. Expected 2D array, "
            "got another: Reshape your data, e.g. X.reshape(len(X), -1)."
        )
    if table.shape[0] == 0 or table.shape[1] == 0:
        raise InputError(
            f"X must hold samples and features, got shape {tuple(table.shape)}: 0 feature(s) "
            f"(shape={tuple(table.shape)}) while a minimum of 1 is required. Pass more data."
        )
    for block in table.split(BLOCK):
        check_finite(block, "features X")
