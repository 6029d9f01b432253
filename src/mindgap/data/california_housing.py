"""California housing, from scikit-learn's file or from the official archive."""

from pathlib import Path

import numpy as np

from mindgap.core import validated
from mindgap.data.damage import reading
from mindgap.data.dataset import DataSet, dataset
from mindgap.data.download import Remote
from mindgap.data.store import find, obtain_from_archive
from mindgap.data.tables import Numbers, check_finite, random_mask, read_npz, regression

NPZ = "tabular/california_housing/california_housing.npz"
OFFICIAL = "CaliforniaHousing/cal_housing.data"
# The copy of the StatLib archive that scikit-learn downloads, with the checksum that scikit-learn
# records.
ARCHIVE = Remote(
    "https://ndownloader.figshare.com/files/5976036",
    sha256="aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681",
    name="cal_housing.tgz",
)
NAMES = (
    "MedInc",
    "HouseAge",
    "AveRooms",
    "AveBedrms",
    "Population",
    "AveOccup",
    "Latitude",
    "Longitude",
)
SOURCE = "Pace and Barry, Sparse spatial autoregressions (1997)."
ROWS = 20_640


@dataset("california")
@validated
def california(test_size: int = 4128, seed: int = 0) -> DataSet:
    """20,640 districts of California: 8 features, median house value in 100,000 dollars.

    Args:
        test_size: Number of samples for testing; the others are for training.
        seed: Seed of the random split.
    """
    inputs, targets = _tables()
    test = random_mask(len(inputs), test_size, seed)
    return regression("california", inputs, targets, test, feature_names=NAMES, source=SOURCE)


def _tables() -> tuple[Numbers, Numbers]:
    packed = find(NPZ)
    path = packed if packed is not None else obtain_from_archive([OFFICIAL], ARCHIVE)[0]
    inputs, targets = _read_packed(path) if packed is not None else read_california(path)
    check_finite(path, ROWS, inputs, targets)
    return inputs, targets


def _read_packed(path: Path) -> tuple[Numbers, Numbers]:
    data, target = read_npz(path, "data", "target")
    with reading(path, "an npz file of numbers"):
        return data.astype(np.float64), target.astype(np.float64)


def read_california(path: Path) -> tuple[Numbers, Numbers]:
    """Read features and targets, computed from the official columns as scikit-learn does.

    The official columns are longitude, latitude, age, rooms, bedrooms, population, households,
    income and value; rooms, bedrooms and population are divided by the number of households.
    """
    with reading(path, "a csv file of nine columns of numbers"):
        raw = np.loadtxt(path, delimiter=",", dtype=np.float64, ndmin=2)
        longitude, latitude, age, rooms, bedrooms, population, households, income, value = raw.T
    means = rooms / households, bedrooms / households, population / households
    inputs = np.stack(
        [income, age, means[0], means[1], population, means[2], latitude, longitude], axis=1
    )
    return inputs, value / 100_000
