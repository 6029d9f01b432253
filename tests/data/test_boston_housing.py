"""Boston housing from a csv file in the official format, and from damaged ones."""

import numpy as np
import pytest
import torch
from data_files import write

from mindgap.core.errors import DataUnavailableError
from mindgap.data import boston
from mindgap.data.boston_housing import read_boston


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
