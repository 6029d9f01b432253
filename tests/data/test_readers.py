"""Readers against tiny files in the official formats, and against damaged ones."""

import gzip
import struct

import numpy as np
import pytest
import torch

from mindgap.core.errors import DataUnavailableError, InputError
from mindgap.data import boston, california, cifar, cifar10, mnist, uci
from mindgap.data.boston_housing import read_boston
from mindgap.data.california_housing import read_california
from mindgap.data.cifar import read_cifar
from mindgap.data.mnist import SHA256, read_idx


def idx(array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINDGAP_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def random():
    return np.random.default_rng(0)


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


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
        assert str(caught.value).endswith("Delete it, so that it is fetched anew, or replace it.")

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


class TestCifar:
    @pytest.fixture
    def files(self, folder, random, monkeypatch):
        monkeypatch.setattr(cifar, "RECORDS", 20)
        tables = []
        for name in cifar.FILES:
            labels = (np.arange(20) % 10)[:, None]
            tables.append(np.hstack([labels, random.integers(0, 256, (20, 3072))]).astype(np.uint8))
            write(folder / name, tables[-1].tobytes())
        return tables

    def test_round_trip(self, files):
        data = cifar10()
        assert data.inputs.shape == (100, 3, 32, 32)
        assert data.test_inputs.shape == (20, 3, 32, 32)
        whole = np.concatenate(files[:5])
        np.testing.assert_array_equal(
            (data.inputs.reshape(100, -1) * 255).round().numpy(), whole[:, 1:]
        )
        np.testing.assert_array_equal(data.targets.numpy(), whole[:, 0])
        # byte 1 + 1024 · channel + 32 · row + column
        assert float(data.inputs[3, 2, 5, 7] * 255) == pytest.approx(
            whole[3, 1 + 2048 + 5 * 32 + 7]
        )
        assert data.classes[3] == "cat"

    def test_subset(self, files):
        assert torch.bincount(cifar10(size=50, test_size=10).targets).tolist() == [5] * 10

    @pytest.mark.parametrize("length", [0, 100, 3073 * 19, 3073 * 20 - 1])
    def test_truncated(self, files, folder, length):
        path = folder / cifar.FILES[2]
        path.write_bytes(path.read_bytes()[:length])
        with pytest.raises(
            DataUnavailableError,
            match=rf"data_batch_3.bin must be .* 61460 bytes .*, got {length}\.",
        ):
            cifar10()

    def test_labels_out_of_range(self, tmp_path):
        with pytest.raises(DataUnavailableError, match="with labels from 0 to 9, got the label 10"):
            read_cifar(write(tmp_path / "x.bin", bytes([10]) + bytes(3072)))

    def test_a_single_file_of_any_length(self, tmp_path):
        pixels, labels = read_cifar(write(tmp_path / "x.bin", (bytes([7]) + bytes(3072)) * 3))
        assert pixels.shape == (3, 3, 32, 32)
        assert labels.tolist() == [7, 7, 7]
        with pytest.raises(
            DataUnavailableError, match="must be a CIFAR-10 binary file of 3073 bytes"
        ):
            read_cifar(write(tmp_path / "empty.bin", b""))


class TestBoston:
    NAMES = (
        '"CRIM","ZN","INDUS","CHAS","NOX","RM","AGE","DIS","RAD","TAX","PTRATIO","B","LSTAT","MEDV"'
    )

    def csv(self, table):
        rows = "\n".join(",".join(repr(float(cell)) for cell in row) for row in table)
        return f"{len(table)},13,,,,,,,,,,,,\n{self.NAMES}\n{rows}\n".encode()

    def test_round_trip(self, folder, random):
        table = random.normal(size=(506, 14))
        write(folder / "boston_housing" / "boston_house_prices.csv", self.csv(table))
        data = boston(test_size=102, seed=1)
        assert data.inputs.shape == (404, 13)
        assert data.targets.shape == (404, 1)
        assert data.feature_names[0] == "CRIM"
        both = torch.cat([torch.cat(data.train, dim=1), torch.cat(data.test, dim=1)])
        expected = torch.from_numpy(table).float()
        assert torch.equal(both[both[:, 0].argsort()], expected[expected[:, 0].argsort()])

    def test_damaged(self, folder, tmp_path, random):
        content = self.csv(random.normal(size=(506, 14)))
        path = folder / "boston_housing" / "boston_house_prices.csv"
        for broken in (
            b"",
            b"<html>",
            content[:5000],
            content + b"1,2\n",
            content.replace(b".", b"x", 3),
            b"\xff" * 9,
        ):
            write(path, broken)
            with pytest.raises(DataUnavailableError, match=r"boston_house_prices\.csv must be"):
                boston()
        short = write(tmp_path / "short.csv", self.csv(random.normal(size=(5, 14))))
        assert read_boston(short)[1].shape == (5, 14)
        write(path, short.read_bytes())
        with pytest.raises(DataUnavailableError, match=r"must be a table of 506 rows, got 5\."):
            boston()

    def test_not_a_number(self, folder, random):
        table = random.normal(size=(506, 14))
        table[3, 4] = np.nan
        write(folder / "boston_housing" / "boston_house_prices.csv", self.csv(table))
        with pytest.raises(DataUnavailableError, match="must be a table of finite numbers"):
            boston()


class TestUci:
    def arrays(self, random):
        x, y = random.normal(size=(308, 6)), random.normal(size=308)
        masks = np.zeros((20, 308), dtype=bool)
        for mask in masks:
            mask[random.permutation(308)[:31]] = True
        return x, y, masks

    def test_npz(self, folder, random):
        x, y, masks = self.arrays(random)
        (folder / "tabular" / "gal_uci").mkdir(parents=True)
        np.savez(folder / "tabular" / "gal_uci" / "yacht.npz", x=x, y=y, test_mask=masks)
        self.compare(x, y, masks)

    def test_official_text_files(self, host, random, monkeypatch, cache):
        x, y, masks = self.arrays(random)
        base = "UCI_Datasets/yacht/data/"
        text = {
            "data": np.hstack([x, y[:, None]]),
            "index_features": np.arange(6),
            "index_target": np.array([6]),
        }
        text |= {f"index_test_{split}": np.flatnonzero(mask) for split, mask in enumerate(masks)}
        for name, array in text.items():
            rows = array if array.ndim == 2 else array[:, None].astype(float)
            lines = [" ".join(f"{cell:.17e}" for cell in row) for row in rows]
            host.files[f"{base}{name}.txt"] = ("\n".join(lines) + "\n").encode()
        monkeypatch.setattr("mindgap.data.uci_tables.BASE", host.url)
        self.compare(x, y, masks)
        assert (cache / base / "data.txt").exists()

    def compare(self, x, y, masks):
        for split in (0, 7):
            data = uci("yacht", split)
            np.testing.assert_array_equal(data.inputs.numpy(), x[~masks[split]].astype(np.float32))
            np.testing.assert_array_equal(
                data.test_targets[:, 0].numpy(), y[masks[split]].astype(np.float32)
            )

    def test_split_out_of_range(self):
        with pytest.raises(
            InputError,
            match=r"split must be an integer from 0 to 4 \(the last published split\), got 5",
        ):
            uci("protein", 5)

    @pytest.mark.parametrize(
        "damage", ["empty", "text", "cut", "pickle", "missing", "short", "npy"]
    )
    def test_damaged(self, folder, random, damage):
        x, y, masks = self.arrays(random)
        path = folder / "tabular" / "gal_uci" / "yacht.npz"
        path.parent.mkdir(parents=True)
        if damage == "pickle":
            np.savez(path, x=np.array([object()]), y=y, test_mask=masks)
        elif damage == "missing":
            np.savez(path, x=x, y=y)
        elif damage == "short":
            np.savez(path, x=x[:300], y=y[:300], test_mask=masks[:, :300])
        elif damage == "npy":
            with path.open("wb") as file:
                np.save(file, x)
        else:
            np.savez(path, x=x, y=y, test_mask=masks)
            whole = path.read_bytes()
            path.write_bytes(
                {"empty": b"", "text": b"hello", "cut": whole[: len(whole) // 2]}[damage]
            )
        with pytest.raises(DataUnavailableError, match=r"yacht\.npz must be"):
            uci("yacht")


class TestCalifornia:
    def raw(self, random):
        return np.abs(random.normal(size=(20, 9))) + 0.5

    def test_official_columns(self, tmp_path, random):
        raw = self.raw(random)
        path = tmp_path / "cal_housing.data"
        np.savetxt(path, raw, delimiter=",", fmt="%.17e")
        inputs, targets = read_california(path)
        np.testing.assert_allclose(targets, raw[:, 8] / 1e5)
        np.testing.assert_allclose(inputs[:, 0], raw[:, 7])  # income
        np.testing.assert_allclose(inputs[:, 2], raw[:, 3] / raw[:, 6])  # rooms per household
        np.testing.assert_allclose(inputs[:, 6:], raw[:, [1, 0]])  # latitude, longitude

    def test_damaged(self, tmp_path, folder):
        path = write(tmp_path / "cal_housing.data", b"1,2,3\n")
        with pytest.raises(DataUnavailableError, match="must be a csv file of nine columns"):
            read_california(path)
        write(folder / "tabular" / "california_housing" / "california_housing.npz", b"PK")
        with pytest.raises(
            DataUnavailableError,
            match=r"california_housing\.npz must be an npz file with the arrays",
        ):
            california()


def test_checksums_are_whole():
    assert all(len(value) == 64 and int(value, 16) for value in SHA256.values())
    assert len(cifar.ARCHIVE.md5) == 32
