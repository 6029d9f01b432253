"""CIFAR-10, from its official binary version."""

from pathlib import Path

import numpy as np

from mindgap.core import validated
from mindgap.data.damage import damaged, reading
from mindgap.data.dataset import DataSet, dataset
from mindgap.data.digits import Bytes, images
from mindgap.data.download import Remote
from mindgap.data.store import obtain_from_archive

ARCHIVE = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
FILES = tuple(
    f"cifar-10-batches-bin/{name}.bin"
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
)
RECORD = 1 + 3 * 32 * 32  # the label, then the red, green and blue pixels row by row
RECORDS = 10_000  # in every file
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SOURCE = "Krizhevsky, Learning multiple layers of features from tiny images (2009)."


@dataset("cifar10")
@validated
def cifar10(size: int | None = None, test_size: int | None = None, seed: int = 0) -> DataSet:
    """50,000 + 10,000 color images of shape (3, 32, 32) in [0, 1], in ten classes.

    Args:
        size: Number of training images to keep, every class with its share; all if None.
        test_size: Number of test images to keep; all if None.
        seed: Seed of the choice.
    """
    batches = [read_cifar(path, RECORDS) for path in obtain_from_archive(FILES, ARCHIVE)]
    pixels, labels = (np.concatenate(parts) for parts in zip(*batches[:-1], strict=True))
    train = images(pixels, labels, size, seed, "size")
    test = images(*batches[-1], test_size, seed, "test_size")
    return DataSet("cifar10", *train, *test, classes=CLASSES, source=SOURCE)


def read_cifar(path: Path, records: int | None = None) -> tuple[Bytes, Bytes]:
    """Read pixels (n, 3, 32, 32) and labels of one binary file.

    Args:
        path: The file.
        records: Number of images that it must hold; any number if None.
    """
    with reading(path, "a CIFAR-10 binary file"):
        content = np.fromfile(path, dtype=np.uint8)
    expected = RECORD * (max(1, len(content) // RECORD) if records is None else records)
    if len(content) != expected:
        raise damaged(
            path,
            f"a CIFAR-10 binary file of {expected} bytes ({RECORD} per image)",
            f"{len(content)}",
        )
    table = content.reshape(-1, RECORD)
    if table[:, 0].max() >= len(CLASSES):
        raise damaged(
            path, "a CIFAR-10 binary file with labels from 0 to 9", f"the label {table[:, 0].max()}"
        )
    return table[:, 1:].reshape(-1, 3, 32, 32), table[:, 0]
