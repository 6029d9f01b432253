"""Data sets by name, their options, and what is missing."""

import pytest

from mindgap import data
from mindgap.core.errors import DataUnavailableError, UnknownNameError

OFFLINE = {"digits", "two-moons", "gaussian-mixture", "heteroscedastic", "teacher", "modular"}


@pytest.mark.parametrize("name", data.available())
def test_every_name_loads_or_says_what_is_missing(name):
    if name in OFFLINE:
        assert data.load(name).name == name
    else:
        words = (
            r"must be in .*, got no such file\. Unpack tiny-imagenet-200\.zip .* there\.$"
            if name == "tiny-imagenet"
            else r"must be downloaded from https://.*by hand\.$"
        )
        with pytest.raises(DataUnavailableError, match=words):
            data.load(name)


def test_names_and_options_are_checked():
    with pytest.raises(
        UnknownNameError, match=r"data set must be .* got 'cifar'\. Did you mean 'cifar10'"
    ):
        data.load("cifar")
    with pytest.raises(UnknownNameError, match=r"option of digits .* Did you mean 'seed'"):
        data.load("digits", sead=3)
    with pytest.raises(UnknownNameError, match="option of uci-yacht"):
        data.load("uci-yacht", rows=3)


def test_options_arrive():
    assert len(data.load("two-moons", size=17)) == 17
    assert data.load("modular", modulus=5, operation="*").facts["modulus"] == 5
