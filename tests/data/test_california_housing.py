"""California housing from the official columns, and from damaged files."""

import numpy as np
import pytest
from data_files import write

from mindgap.core.errors import DataUnavailableError
from mindgap.data import california
from mindgap.data.california_housing import read_california


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
