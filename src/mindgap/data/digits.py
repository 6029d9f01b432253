"""The small handwritten digits that come with the package; images from bytes."""

import importlib.resources
import io

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mindgap.core import integer, validated
from mindgap.data.dataset import DataSet, dataset
from mindgap.data.splits import stratified_split

FILE = "digits.npz"
SOURCE = (
    "Alpaydin and Kaynak, Optical recognition of handwritten digits (1998), UCI Machine Learning "
    "Repository, doi:10.24432/C50P49, test part. CC BY 4.0."
)


@dataset("digits")
@validated
def digits(test_size: int = 500, seed: int = 0) -> DataSet:
    """1,797 handwritten digits of shape (1, 8, 8) in [0, 1]; needs no download.

    Args:
        test_size: Number of samples for testing, every class with its share; the others are for
            training.
        seed: Seed of the split.

    >>> digits()
    DataSet('digits': classification, 1297 train, 500 test, inputs (1, 8, 8) float32, 10 classes)
    """
    pixels, labels = _arrays()
    integer("test_size", test_size, 1, len(labels) - 1, "all samples but one")
    test, train = stratified_split(labels, (test_size, len(labels) - test_size), seed)
    parts = pixels[train], labels[train], pixels[test], labels[test]
    return DataSet("digits", *parts, classes=tuple("0123456789"), source=SOURCE)


def _arrays() -> tuple[torch.Tensor, torch.Tensor]:
    content = importlib.resources.files("mindgap.data").joinpath("files", FILE).read_bytes()
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        pixels = torch.from_numpy(arrays["pixels"].astype(np.float32)).div_(16).reshape(-1, 1, 8, 8)
        return pixels, torch.from_numpy(arrays["labels"].astype(np.int64))


Bytes = NDArray[np.uint8]


def images(
    pixels: Bytes, labels: Bytes, size: int | None, seed: int, what: str
) -> tuple[Tensor, Tensor]:
    """Convert bytes to images with values in [0, 1], and labels to int64.

    Args:
        pixels: One image per row.
        labels: One class per image.
        size: Number of images to keep, every class with its share; all if None.
        seed: Seed of the choice.
        what: Name of ``size`` in an error.
    """
    numbers = torch.from_numpy(labels.astype(np.int64))
    if size is not None:
        integer(what, size, 1, len(labels), "the number of images")
        chosen = stratified_split(numbers, (size,), seed)[0]
        # Chosen before the conversion to float32, which takes four times the memory.
        pixels, numbers = pixels[chosen.numpy()], numbers[chosen]
    return torch.from_numpy(pixels.astype(np.float32)).div_(255), numbers
