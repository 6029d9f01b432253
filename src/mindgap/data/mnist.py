"""MNIST, from its four official gzipped idx files."""

import functools
import gzip
import math
import struct
from pathlib import Path

import numpy as np

from mindgap.core import validated
from mindgap.data.damage import damaged, reading
from mindgap.data.dataset import DataSet, dataset
from mindgap.data.digits import Bytes, images
from mindgap.data.download import Remote
from mindgap.data.store import obtain

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
UNSIGNED_BYTE = 8  # the idx format's code for the type of the numbers
SHA256 = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
SOURCE = "LeCun, Cortes and Burges, The MNIST database of handwritten digits (1998). CC BY-SA 3.0."


@dataset("mnist")
@validated
def mnist(size: int | None = None, test_size: int | None = None, seed: int = 0) -> DataSet:
    """60,000 + 10,000 handwritten digits of shape (1, 28, 28) in [0, 1].

    Args:
        size: Number of training images to keep, every class with its share; all if None.
        test_size: Number of test images to keep; all if None.
        seed: Seed of the choice.
    """
    train = images(*_part("train"), size, seed, "size")
    test = images(*_part("t10k"), test_size, seed, "test_size")
    return DataSet("mnist", *train, *test, classes=tuple("0123456789"), source=SOURCE)


def read_idx(path: Path) -> Bytes:
    """Read the numbers of a gzipped idx file.

    It holds two zero bytes, the type, the number of dimensions, the dimensions and the numbers. The
    numbers are read-only.
    """
    with reading(path, "a whole gzipped idx file of bytes"):
        status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=4)  # a sweep loads the four files once per process, not per trial
def _read(path: Path, *stamp: int) -> Bytes:  # noqa: ARG001
    """Read a file; the stamp makes an edited file a new entry of the cache."""
    with reading(path, "a whole gzipped idx file of bytes"):
        content = gzip.decompress(path.read_bytes())
        zeros, kind, dimensions = struct.unpack_from(">HBB", content)
        shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if zeros or kind != UNSIGNED_BYTE:
        raise damaged(
            path, "a gzipped idx file of bytes", f"one that starts with {content[:4].hex()}"
        )
    return _shaped(path, content[4 + 4 * dimensions :], shape)


def _shaped(path: Path, content: bytes, shape: tuple[int, ...]) -> Bytes:
    expected = math.prod(shape)
    if len(content) != expected:
        raise damaged(
            path, f"an idx file of {expected} numbers, as its header says", f"{len(content)}"
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _part(part: str) -> tuple[Bytes, Bytes]:
    images, labels = (_file(f"{part}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
    pixels, numbers = read_idx(images), read_idx(labels)
    if pixels.shape[1:] != (28, 28):
        raise damaged(images, "a file of 28×28 images", f"the shape {pixels.shape}")
    if numbers.shape != pixels.shape[:1] or numbers.max(initial=0) > 9:
        raise damaged(
            labels, f"a file of {len(pixels)} labels from 0 to 9", f"the shape {numbers.shape}"
        )
    return pixels[:, None], numbers


def _file(name: str) -> Path:
    return obtain(f"mnist/{name}", Remote(MIRROR + name, sha256=SHA256[name]))
