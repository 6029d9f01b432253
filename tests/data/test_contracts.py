"""Every registered data set keeps the contract, so a new one is tested because it exists."""

import importlib.metadata
import inspect
import sys

import pytest
import torch

from mindgap import data
from mindgap.core import registry
from mindgap.core.errors import DataUnavailableError
from mindgap.data import DataSet, catalog
from mindgap.data.dataset import LOADERS

SIZES = {"size": 60, "test_size": 40}


@pytest.fixture
def files(request, monkeypatch):
    """The real files as the user's folder, where there are any."""
    try:
        monkeypatch.setenv("MINDGAP_DATA", str(request.getfixturevalue("shared_folder")))
    except pytest.skip.Exception:
        return


def load(name, **options):
    """Load a few samples of a data set, or skip where its files are missing."""
    known = inspect.signature(catalog.loaders()[name]).parameters
    small = {option: size for option, size in SIZES.items() if option in known}
    try:
        return data.load(name, **small, **options)
    except DataUnavailableError as error:
        pytest.skip(str(error))


def same(one, two):
    """Whether two data sets hold the same numbers."""
    pairs = zip((*one.train, *(one.test or ())), (*two.train, *(two.test or ())), strict=True)
    return all(torch.equal(left, right) for left, right in pairs)


@pytest.mark.parametrize("name", data.available())
def test_documented(name):
    loader = catalog.loaders()[name]
    text = inspect.getdoc(loader) or ""
    assert text, f"{name} must say in its docstring what the data are"
    summary = text.splitlines()[0]
    assert len(summary) < 90
    assert summary.endswith((".", "?"))
    for option in inspect.signature(loader).parameters.values():
        assert option.default is not option.empty, f"{name} must load without options"
        assert f"{option.name}:" in text, f"{name} must document {option.name} under Args:"


@pytest.mark.parametrize("name", data.available())
def test_returns_what_was_registered(files, name):
    found = load(name)
    assert isinstance(found, DataSet)
    assert found.name == name
    assert found.test is not None
    numbers = (found.inputs, found.test_inputs, found.targets, found.test_targets)
    assert all(part.isfinite().all() for part in numbers)
    assert found.inputs.shape[1:] == found.test_inputs.shape[1:]
    if found.task == "regression":
        assert found.targets.dtype == torch.float32
        assert found.targets.ndim == 2
    else:
        assert found.targets.dtype == torch.int64
        assert int(found.targets.min()) >= 0
        assert int(found.targets.max()) < len(found.classes)


@pytest.mark.parametrize("name", data.available())
def test_deterministic_per_seed(files, name):
    one = load(name)
    assert same(one, load(name))
    if "seed" in inspect.signature(catalog.loaders()[name]).parameters:
        assert same(one, load(name, seed=0))
        assert not same(one, load(name, seed=1))


PLUGIN = '''"""Dice."""

import torch

from mindgap.data import DataSet, dataset


@dataset("dice")
def dice(seed: int = 0) -> DataSet:
    """One throw of a die.

    Args:
        seed: Seed of the throw.
    """
    throw = torch.randint(6, (1,), generator=torch.Generator().manual_seed(seed))
    return DataSet("dice", torch.zeros(1, 1), throw)
'''


def test_one_file_of_a_plug_in_is_found(tmp_path, monkeypatch):
    package = tmp_path / "casino"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "dice.py").write_text(PLUGIN)
    entry = importlib.metadata.EntryPoint("casino", "casino", registry.ENTRY_POINTS)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    monkeypatch.syspath_prepend(tmp_path)
    for cached in (registry.load_plugins, catalog._walk):
        cached.cache_clear()
    try:
        assert "dice" in data.available()
        assert data.load("dice", seed=3).name == "dice"
    finally:
        LOADERS.pop("dice", None)
        for name in [name for name in sys.modules if name.split(".")[0] == "casino"]:
            del sys.modules[name]
        for cached in (registry.load_plugins, catalog._walk):
            cached.cache_clear()
