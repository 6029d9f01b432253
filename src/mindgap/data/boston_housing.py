"""Boston housing, from the csv file that scikit-learn carried until version 1.1."""

from pathlib import Path

import numpy as np

from mindgap.core import validated
from mindgap.data.damage import damaged, reading
from mindgap.data.dataset import DataSet, dataset
from mindgap.data.download import Remote
from mindgap.data.store import obtain
from mindgap.data.tables import Numbers, check_finite, random_mask, regression

FILE = "boston_housing/boston_house_prices.csv"
REMOTE = Remote(
    "https://raw.githubusercontent.com/scikit-learn/scikit-learn/1.1.3/sklearn/datasets/data/boston_house_prices.csv",
    sha256="d98212636026544fc9b9c0f372e5f819872e6fa6fa757ab025efdda22180f2d6",
)
SOURCE = (
    "Harrison and Rubinfeld, Hedonic prices and the demand for clean air (1978). Column B encodes "
    "race; use these data to compare with older papers, not to price houses."
)


@dataset("boston")
@validated
def boston(test_size: int = 102, seed: int = 0) -> DataSet:
    """506 districts of Boston: 13 features, median house value in thousands of dollars.

    Args:
        test_size: Number of samples for testing; the others are for training.
        seed: Seed of the random split.
    """
    path = obtain(FILE, REMOTE)
    names, table = read_boston(path)
    check_finite(path, 506, table)
    test = random_mask(len(table), test_size, seed)
    return regression(
        "boston", table[:, :-1], table[:, -1], test, feature_names=names[:-1], source=SOURCE
    )


def read_boston(path: Path) -> tuple[tuple[str, ...], Numbers]:
    """Read column names and numbers, below one line of counts and one line of names."""
    with reading(path, "a csv file of numbers below two header lines"):
        lines = path.read_text(encoding="utf-8").splitlines()
        rows, features = (int(count) for count in lines[0].split(",")[:2])
        names = tuple(name.strip('"') for name in lines[1].split(","))
        table = np.array(
            [[float(cell) for cell in line.split(",")] for line in lines[2:]], dtype=np.float64
        )
    if table.shape != (rows, features + 1) or len(names) != features + 1:
        raise damaged(
            path, f"a table of {rows} rows and {features + 1} columns, as it says", f"{table.shape}"
        )
    return names, table
