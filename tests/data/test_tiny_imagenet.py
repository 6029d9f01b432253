"""Tiny ImageNet from a small folder in the official layout, and from damaged ones."""

import io

import numpy as np
import pytest
import torch
from data_files import write

from mindgap.core.errors import DataUnavailableError
from mindgap.data import stratified_split, tiny_imagenet

CLASSES = ("n02", "n01", "n03")  # in the order of the list, not of the alphabet


def encoded(level, size=64, mode="RGB"):
    """Encode a JPEG of one color."""
    image = pytest.importorskip("PIL.Image").new(mode, (size, size), level)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


@pytest.fixture
def files(folder):
    root = folder / "tiny-imagenet-200"
    write(root / "wnids.txt", "\n".join(CLASSES).encode())
    write(root / "words.txt", b"n01\tgoldfish, Carassius auratus\nn02\ttoad\nn99\tother\n")
    rows = []
    for number, name in enumerate(CLASSES):
        for k in range(4):
            level = 60 * number + 10 * k
            gray = number == 2
            content = encoded(level if gray else (level, 0, 255), mode="L" if gray else "RGB")
            write(root / "train" / name / "images" / f"{name}_{k}.JPEG", content)
        write(root / "val" / "images" / f"val_{number}.JPEG", encoded((0, 60 * number, 0)))
        rows.append(f"val_{number}.JPEG\t{name}\t0\t0\t62\t62")
    write(root / "val" / "val_annotations.txt", "\n".join(reversed(rows)).encode())
    return root


def test_images_classes_and_names(files):
    data = tiny_imagenet()
    assert data.inputs.shape == (12, 3, 64, 64)
    assert data.targets.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.test_targets.tolist() == [2, 1, 0]
    assert data.classes == ("toad", "goldfish", "n03")
    means = data.inputs.mean((2, 3)) * 255
    np.testing.assert_allclose(means[5], [70, 0, 255], atol=4)
    np.testing.assert_allclose(means[9], [130, 130, 130], atol=4)  # gray
    np.testing.assert_allclose(data.test_inputs.mean((2, 3))[0] * 255, [0, 120, 0], atol=4)


def test_a_part_has_every_class_and_decodes_nothing_else(files):
    (files / "train" / "n01" / "images" / "n01_0.JPEG").write_bytes(b"broken")
    seeds = [seed for seed in range(8) if 4 not in _rows(seed)]
    data = tiny_imagenet(size=3, seed=seeds[0])
    assert data.targets.tolist() == [0, 1, 2]
    with pytest.raises(DataUnavailableError, match=r"n01_0\.JPEG must be a JPEG image"):
        tiny_imagenet()


def _rows(seed):
    return stratified_split(torch.arange(12) // 4, (3,), seed)[0].tolist()


def test_damage_is_named(files):
    path = files / "val" / "images" / "val_1.JPEG"
    path.write_bytes(encoded((0, 0, 0), size=32))
    with pytest.raises(DataUnavailableError, match=r"of 64×64 pixels, got 32×32"):
        tiny_imagenet(size=3)
    (files / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn77\n")
    with pytest.raises(DataUnavailableError, match=r"val_annotations\.txt must be a table"):
        tiny_imagenet(size=3)
    for image in (files / "train" / "n03" / "images").iterdir():
        image.unlink()
    with pytest.raises(DataUnavailableError, match="images of all 3 classes, got none of 1"):
        tiny_imagenet(size=3)
