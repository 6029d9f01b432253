import pickle

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.data import DataSet, digits, heteroscedastic, standardize


def test_digits_are_scikit_learns():
    data, reference = digits(), load_digits()
    ours = torch.cat([data.inputs, data.test_inputs]).reshape(-1, 64) * 16
    rows = sorted(
        (int(y), *x.int().tolist())
        for x, y in zip(ours, torch.cat([data.targets, data.test_targets]), strict=True)
    )
    assert rows == sorted(
        (int(y), *map(int, x)) for x, y in zip(reference.data, reference.target, strict=True)
    )
    assert float(data.inputs.max()) == 1


def test_digits_split_is_fixed_and_fair():
    data = digits()
    assert data.inputs.shape == (1297, 1, 8, 8)
    assert data.test_inputs.shape == (500, 1, 8, 8)
    assert torch.equal(data.test_targets, digits(seed=0).test_targets)
    assert not torch.equal(data.inputs, digits(seed=1).inputs)
    whole = torch.bincount(torch.cat([data.targets, data.test_targets]))
    assert ((torch.bincount(data.test_targets) - whole * 500 / 1797).abs() <= 1).all()
    with pytest.raises(InputError, match="test_size must be an integer from 1 to 1796"):
        digits(test_size=1797)


def test_parts():
    data = DataSet("x", torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
    assert data.test is None
    assert data.train[0] is data.inputs
    assert digits().test[1].shape == (500,)


def test_subset_and_select():
    data = digits()
    part = data.subset(100, seed=1)
    assert torch.bincount(part.targets).tolist() == pytest.approx([10] * 10, abs=1)
    assert part.test_inputs is data.test_inputs
    assert torch.equal(part.inputs, data.subset(100, seed=1).inputs)
    assert len(data.select(data.targets == 3)) == int((data.targets == 3).sum())
    with pytest.raises(
        InputError,
        match=r"size must be an integer from 1 to 1297 \(the number of training samples\)",
    ):
        data.subset(1298)


def test_select_keeps_texts_with_their_samples():
    texts = tuple((f"text {i}",) for i in range(4))
    data = DataSet("x", torch.arange(4)[:, None], torch.tensor([0, 1, 0, 1]), texts=texts)
    assert data.select(torch.tensor([3, 0])).texts == (("text 3",), ("text 0",))
    assert data.select(torch.tensor([False, True, True, False])).texts == (("text 1",), ("text 2",))


def test_standardized():
    data = heteroscedastic().standardized()
    for values in data.train:
        assert float(values.mean()) == pytest.approx(0, abs=1e-6)
        assert float(values.std(correction=0)) == pytest.approx(1, abs=1e-6)
    back = data.facts["target_mean"] + data.facts["target_scale"] * data.test_targets
    assert torch.allclose(back, heteroscedastic().test_targets, atol=1e-5)
    assert torch.equal(digits().standardized().targets, digits().targets)


def test_pickles():
    data = pickle.loads(pickle.dumps(digits()))
    assert torch.equal(data.inputs, digits().inputs)


def test_bad_data_sets():
    with pytest.raises(
        InputError, match=r"inputs and their targets must have the same length, got 4 and 3\."
    ):
        DataSet("x", torch.zeros(4, 2), torch.zeros(3))
    with pytest.raises(InputError, match="test_inputs and test_targets must come together"):
        DataSet("x", torch.zeros(4, 2), torch.zeros(4), test_inputs=torch.zeros(1, 2))
    with pytest.raises(UnknownNameError, match="Did you mean 'regression'"):
        DataSet("x", torch.zeros(4, 2), torch.zeros(4), task="regresion")


def test_standardize_is_scikit_learns():
    random = np.random.default_rng(0)
    train, test = random.normal(3, [1, 10, 0.1], (50, 3)), random.normal(3, 2, (20, 3))
    scaler = StandardScaler().fit(train)
    ours = standardize(torch.from_numpy(train), torch.from_numpy(test))
    for mine, table in zip(ours, (train, test), strict=True):
        np.testing.assert_allclose(mine.numpy(), scaler.transform(table), atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8, -7.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constant_columns_become_zero(value, dtype):
    train = torch.stack([torch.full((30,), value, dtype=dtype), torch.arange(30).to(dtype)], dim=1)
    scaled, other = standardize(train, train + 1)
    assert scaled[:, 0].abs().max() <= 1e-7 * max(1, abs(value))
    assert torch.allclose(other[:, 0], (train + 1 - train)[:, 0], atol=1e-6 * max(1.0, abs(value)))
    assert scaled.dtype == dtype


def test_standardize_checks():
    with pytest.raises(InputError, match=r"floating point numbers, got torch\.int64"):
        standardize(torch.arange(3))
    with pytest.raises(InputError, match=r"the columns of train, \(2,\), got \(3,\)"):
        standardize(torch.zeros(2, 2), torch.zeros(2, 3))
    with pytest.raises(InputError, match="at least one sample"):
        standardize(torch.zeros(0, 2))
