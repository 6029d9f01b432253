"""Tiny ImageNet, from the folder that its official archive unpacks to."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mindgap.core import integer, require, validated
from mindgap.data.damage import damaged, reading
from mindgap.data.dataset import DataSet, dataset
from mindgap.data.digits import images
from mindgap.data.splits import stratified_split
from mindgap.data.store import obtain

FOLDER = "tiny-imagenet-200"
ADVICE = f"Unpack {FOLDER}.zip of Stanford's course CS231n there."
SOURCE = "Le and Yang, Tiny ImageNet visual recognition challenge (2015), validation part as test."
SIDE = 64  # pixels
Files = list[tuple[Path, int]]  # with the number of the class


@dataset("tiny-imagenet")
@validated
def tiny_imagenet(size: int | None = None, test_size: int | None = None, seed: int = 0) -> DataSet:
    """100,000 + 10,000 color images of shape (3, 64, 64) in [0, 1], in 200 classes.

    They must be in the data folder, because no checksum of an official archive is known to us. The
    labels of the official test part are not public, so the validation part takes its place.
    Decoding needs the extra ``images``.

    Args:
        size: Number of training images to keep, every class with its share; all if None.
        test_size: Number of test images to keep; all if None.
        seed: Seed of the choice.
    """
    listed = obtain(f"{FOLDER}/wnids.txt", None, ADVICE)
    with reading(listed, "a list of classes"):
        classes = listed.read_text().split()
    numbers = {name: number for number, name in enumerate(classes)}
    train = _decoded(_chosen(_train_files(listed.parent, numbers), size, seed, "size"))
    test = _decoded(_chosen(_test_files(listed.parent, numbers), test_size, seed, "test_size"))
    names = _names(listed.parent / "words.txt", classes)
    return DataSet("tiny-imagenet", *train, *test, classes=names, source=SOURCE)


def _train_files(folder: Path, numbers: dict[str, int]) -> Files:
    found = [
        (path, number)
        for name, number in numbers.items()
        for path in sorted((folder / "train" / name / "images").glob("*.JPEG"))
    ]
    missing = set(numbers.values()) - {number for _, number in found}
    if missing:
        raise damaged(
            folder / "train",
            f"a folder with images of all {len(numbers)} classes",
            f"none of {len(missing)}",
        )
    return found


def _test_files(folder: Path, numbers: dict[str, int]) -> Files:
    listed = folder / "val" / "val_annotations.txt"
    with reading(listed, "a table of file names and classes"):
        rows = [line.split("\t") for line in listed.read_text().splitlines()]
        return [(folder / "val" / "images" / row[0], numbers[row[1]]) for row in rows]


def _chosen(files: Files, size: int | None, seed: int, what: str) -> Files:
    """Choose before decoding, which takes most of the time."""
    if size is None:
        return files
    integer(what, size, 1, len(files), "the number of images")
    (places,) = stratified_split(torch.tensor([number for _, number in files]), (size,), seed)
    return [files[place] for place in places.tolist()]


def _decoded(files: Files) -> tuple[Tensor, Tensor]:
    pillow = require("PIL.Image", "images")
    pixels = np.stack([_pixels(pillow, path) for path, _ in files])
    labels = np.array([number for _, number in files], dtype=np.uint8)
    return images(pixels, labels, None, 0, "size")


def _pixels(pillow: Any, path: Path) -> Any:
    with reading(path, "a JPEG image"), pillow.open(path) as image:
        # Some images are gray.
        values = np.asarray(image.convert("RGB"))
    if values.shape != (SIDE, SIDE, 3):
        found = f"{values.shape[1]}×{values.shape[0]}"
        raise damaged(path, f"an image of {SIDE}×{SIDE} pixels", found)
    return values.transpose(2, 0, 1)


def _names(path: Path, classes: Sequence[str]) -> tuple[str, ...]:
    """Replace WordNet numbers by the first word for each, where the list of words is there."""
    if not path.is_file():
        return tuple(classes)
    with reading(path, "a table of classes and words"):
        rows = dict(line.split("\t", 1) for line in path.read_text().splitlines() if line)
    return tuple(rows.get(name, name).split(",")[0] for name in classes)
