"""MNIST from tiny files in the official format, and from damaged ones."""

import gzip
import struct

import numpy as np
import pytest
import torch
from data_files import write

from mindgap.core.errors import DataUnavailableError, InputError
from mindgap.data import mnist
from mindgap.data.mnist import SHA256, read_idx


def idx(array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes())


class TestMnist:
    @pytest.fixture
    def files(self, folder, random):
        arrays = {}
        for part, count in (("train", 40), ("t10k", 20)):
            arrays[part] = random.integers(0, 256, (count, 28, 28)), np.arange(count) % 10
            write(folder / "mnist" / f"{part}-images-idx3-ubyte.gz", idx(arrays[part][0]))
            write(folder / "mnist" / f"{part}-labels-idx1-ubyte.gz", idx(arrays[part][1]))
        return arrays

    def test_round_trip(self, files):
        data = mnist()
        assert data.inputs.shape == (40, 1, 28, 28)
        assert data.inputs.dtype == torch.float32
        assert data.targets.dtype == torch.int64
        np.testing.assert_array_equal((data.inputs[:, 0] * 255).round().numpy(), files["train"][0])
        np.testing.assert_array_equal(data.test_targets.numpy(), files["t10k"][1])
        assert 0 <= float(data.inputs.min()) <= float(data.inputs.max()) <= 1

    def test_sizes_keep_the_classes_shares(self, files):
        data = mnist(size=20, test_size=10, seed=3)
        assert torch.bincount(data.targets).tolist() == [2] * 10
        assert torch.bincount(data.test_targets).tolist() == [1] * 10
        assert torch.equal(data.inputs, mnist(size=20, seed=3).inputs)
        with pytest.raises(
            InputError,
            match=r"size must be an integer from 1 to 40 \(the number of images\), got 41",
        ):
            mnist(size=41)

    @pytest.mark.parametrize(
        ("damage", "text"),
        [
            (lambda b: b[: len(b) // 2], "a whole gzipped idx file of bytes, got a"),
            (lambda b: b[:-4], "a whole gzipped idx file of bytes, got a"),
            (lambda b: b"", "a whole gzipped idx file of bytes, got a"),
            (lambda b: b"<html>not found</html>", "a whole gzipped idx file of bytes, got a"),
            (
                lambda b: b[:100] + bytes([b[100] ^ 255]) + b[101:],
                "a whole gzipped idx file of bytes, got a",
            ),
            (
                lambda b: gzip.compress(gzip.decompress(b)[:-7]),
                "an idx file of 31360 numbers, as its header says",
            ),
            (
                lambda b: gzip.compress(b"\0\0\x0d\x03" + gzip.decompress(b)[4:]),
                "one that starts with 00000d03",
            ),
            (lambda b: gzip.compress(b"\0\0"), "a whole gzipped idx file of bytes"),
            (lambda b: idx(np.zeros((40, 8, 8))), "a file of 28×28 images"),
        ],
    )
    def test_damaged_images(self, files, folder, damage, text):
        path = folder / "mnist" / "train-images-idx3-ubyte.gz"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(DataUnavailableError) as caught:
            mnist()
        assert str(path) in str(caught.value)
        assert text in str(caught.value)
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith("Delete it to fetch it again, or replace it.")

    def test_labels_that_do_not_fit(self, files, folder):
        write(folder / "mnist" / "train-labels-idx1-ubyte.gz", idx(np.zeros(39)))
        with pytest.raises(DataUnavailableError, match="must be a file of 40 labels from 0 to 9"):
            mnist()

    def test_missing_and_offline(self):
        with pytest.raises(DataUnavailableError) as caught:
            mnist()
        assert str(caught.value).startswith(
            "train-images-idx3-ubyte.gz must be downloaded from "
            "https://ossci-datasets.s3.amazonaws.com/mnist/"
            "train-images-idx3-ubyte.gz, got no connection (no internet in tests). Connect"
        )

    def test_idx_of_any_dimension(self, tmp_path, random):
        array = random.integers(0, 256, (2, 3, 4, 5))
        np.testing.assert_array_equal(read_idx(write(tmp_path / "x.gz", idx(array))), array)


def test_checksums_are_whole():
    assert all(len(value) == 64 and int(value, 16) for value in SHA256.values())
