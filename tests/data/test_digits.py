"""The digits are those of scikit-learn, split fairly."""

import pytest
import torch
from sklearn.datasets import load_digits

from mindgap.core.errors import InputError
from mindgap.data import digits


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
