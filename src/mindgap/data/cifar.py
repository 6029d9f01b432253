"""CIFAR-10 and CIFAR-100, from their official binary versions."""

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
PIXELS = 3 * 32 * 32  # red, green and blue, each row by row
RECORDS = 10_000  # in every file
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FINE_ARCHIVE = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
)
FINE_FILES = tuple(
    f"cifar-100-binary/{name}" for name in ("train.bin", "test.bin", "fine_label_names.txt")
)
FINE_RECORDS = (50_000, 10_000)
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


@dataset("cifar100")
@validated
def cifar100(size: int | None = None, test_size: int | None = None, seed: int = 0) -> DataSet:
    """50,000 + 10,000 color images of shape (3, 32, 32) in [0, 1], in a hundred classes.

    Args:
        size: Number of training images to keep, every class with its share; all if None.
        test_size: Number of test images to keep; all if None.
        seed: Seed of the choice.
    """
    train, test, names = obtain_from_archive(FINE_FILES, FINE_ARCHIVE)
    with reading(names, "a list of class names"):
        classes = tuple(names.read_text().split())
    parts = [
        images(*read_cifar(path, count, classes=len(classes), labels=2), kept, seed, what)
        for path, count, kept, what in (
            (train, FINE_RECORDS[0], size, "size"),
            (test, FINE_RECORDS[1], test_size, "test_size"),
        )
    ]
    return DataSet("cifar100", *parts[0], *parts[1], classes=classes, source=SOURCE)


def read_cifar(
    path: Path, records: int | None = None, *, classes: int = len(CLASSES), labels: int = 1
) -> tuple[Bytes, Bytes]:
    """Read pixels (n, 3, 32, 32) and labels of one binary file.

    Args:
        path: The file.
        records: Number of images that it must hold; any number if None.
        classes: Number of classes.
        labels: Labels in front of every image, of which the last counts. CIFAR-100 has two: the
            coarse and the fine class.
    """
    what, record = f"a CIFAR-{classes} binary file", labels + PIXELS
    with reading(path, what):
        content = np.fromfile(path, dtype=np.uint8)
    expected = record * (max(1, len(content) // record) if records is None else records)
    if len(content) != expected:
        raise damaged(path, f"{what} of {expected} bytes ({record} per image)", f"{len(content)}")
    table = content.reshape(-1, record)
    largest = table[:, labels - 1].max()
    if largest >= classes:
        raise damaged(path, f"{what} with labels from 0 to {classes - 1}", f"the label {largest}")
    return table[:, labels:].reshape(-1, 3, 32, 32), table[:, labels - 1]
