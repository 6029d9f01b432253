"""DataSet: its parts, subsets and scaling."""

import pickle

import pytest
import torch

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.data import DataSet, digits, heteroscedastic


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
