"""The real files, where they are next to the repository, and their well-known figures."""

import gzip
import hashlib

import numpy as np
import pytest
import torch

from mindgap.data import boston, california, load, mnist, uci
from mindgap.data.boston_housing import REMOTE
from mindgap.data.california_housing import read_california
from mindgap.data.download import file_digest
from mindgap.data.glue import MRPC, RTE, STSB, read_tsv
from mindgap.data.mnist import SHA256
from mindgap.data.uci_tables import TABLES

pytestmark = pytest.mark.shared

# As published by the mirrors of MNIST, e.g. in torchvision.
MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


def test_mnist_files_are_the_official_ones(shared):
    for name, md5 in MNIST_MD5.items():
        assert hashlib.md5((shared / "mnist" / name).read_bytes()).hexdigest() == md5
        assert file_digest(shared / "mnist" / name) == SHA256[name]


def test_mnist(shared):
    data = mnist()
    assert data.inputs.shape == (60_000, 1, 28, 28)
    assert data.test_inputs.shape == (10_000, 1, 28, 28)
    assert torch.bincount(data.targets).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    assert float(data.inputs.mean()) == pytest.approx(0.1307, abs=1e-4)
    assert float(data.inputs.std()) == pytest.approx(0.3081, abs=1e-4)


def test_boston(shared):
    data = boston()
    assert file_digest(shared / "boston_housing" / "boston_house_prices.csv") == REMOTE.sha256
    prices = torch.cat([data.targets, data.test_targets])
    assert len(prices) == 506
    assert float(prices.mean()) == pytest.approx(22.5328, abs=1e-3)


def test_california(shared, tmp_path):
    data = california()
    assert (len(data), len(data.test_inputs)) == (16_512, 4_128)
    packed = np.load(
        shared / "tabular/california_housing/california_housing.npz", allow_pickle=False
    )
    np.savetxt(tmp_path / "cal_housing.data", packed["raw"][:200], delimiter=",", fmt="%.6f")
    inputs, targets = read_california(tmp_path / "cal_housing.data")
    np.testing.assert_allclose(inputs, packed["data"][:200], rtol=1e-9)
    np.testing.assert_allclose(targets, packed["target"][:200], rtol=1e-9)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_uci(shared, table):
    _, rows, features, splits = TABLES[table]
    first, last = uci(table), uci(table, splits - 1)
    assert len(first) + len(first.test_inputs) == rows
    assert first.inputs.shape[1] == features
    assert len(first.test_inputs) == pytest.approx(rows / 10, abs=1)
    assert not torch.equal(first.test_inputs, last.test_inputs)


def test_uci_boston_is_the_same_table(shared):
    one, two = boston(), uci("boston")
    rows = [torch.cat([data.inputs, data.test_inputs]) for data in (one, two)]
    assert torch.allclose(rows[0].sort(dim=0).values, rows[1].sort(dim=0).values)


@pytest.mark.parametrize("task", [RTE, MRPC, STSB], ids=lambda task: task.name)
def test_glue(shared, tmp_path, monkeypatch, task):
    for part in ("train", "dev"):
        target = tmp_path / "glue" / task.folder / f"{part}.tsv"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(
            gzip.decompress((shared / "glue" / task.folder / f"{part}.tsv.gz").read_bytes())
        )
    monkeypatch.setenv("MINDGAP_DATA", str(tmp_path))
    data = load(task.name)
    assert (len(data), len(data.test_inputs)) == (task.rows, task.dev_rows)
    counts = {"rte": [1249, 1241], "mrpc": [1194, 2474]}
    if task.classes:
        assert torch.bincount(data.targets).tolist() == counts[task.name]
    else:
        assert 0 <= float(data.targets.min()) <= float(data.targets.max()) <= 5
    assert (
        read_tsv(tmp_path / "glue" / task.folder / "dev.tsv", task.sentences)[0]
        == data.test_texts[0]
    )
