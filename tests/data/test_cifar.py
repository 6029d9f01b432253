"""CIFAR-10 from tiny files in the official format, and from damaged ones."""

import numpy as np
import pytest
import torch
from data_files import write

from mindgap.core.errors import DataUnavailableError
from mindgap.data import cifar, cifar10, cifar100
from mindgap.data.cifar import read_cifar


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


class TestCifar100:
    @pytest.fixture
    def files(self, folder, random, monkeypatch):
        monkeypatch.setattr(cifar, "FINE_RECORDS", (200, 100))
        tables = []
        for name, count in zip(cifar.FINE_FILES[:2], (200, 100), strict=True):
            fine = np.arange(count) % 100
            table = np.column_stack([fine // 5, fine, random.integers(0, 256, (count, 3072))])
            tables.append(table.astype(np.uint8))
            write(folder / name, tables[-1].tobytes())
        names = "".join(f"thing{k}\n" for k in range(100))
        write(folder / cifar.FINE_FILES[2], names.encode())
        return tables

    def test_the_fine_label_counts(self, files):
        data = cifar100()
        np.testing.assert_array_equal(data.targets.numpy(), files[0][:, 1])
        np.testing.assert_array_equal(data.test_targets.numpy(), files[1][:, 1])
        pixels = (data.test_inputs.reshape(100, -1) * 255).round().numpy()
        np.testing.assert_array_equal(pixels, files[1][:, 2:])
        assert data.classes[37] == "thing37"
        assert torch.bincount(cifar100(size=100).targets).tolist() == [1] * 100

    def test_damaged_files_are_named(self, files, folder):
        path = folder / cifar.FINE_FILES[0]
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(
            DataUnavailableError, match=r"train\.bin must be a CIFAR-100 .* 614800 "
        ):
            cifar100()
