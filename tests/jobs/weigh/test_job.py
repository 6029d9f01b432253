"""The job `weigh` from Python: arrays and files give the same weights, which can be saved."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mindgap import VarianceWeights, weigh
from mindgap.core.errors import InputError
from mindgap.jobs.weigh.job import Weighing

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.random((60, 3)), RANDOM.integers(0, 3, 60)


def test_weights_are_those_of_the_estimator() -> None:
    found = weigh(X, Y, k=8, max_weight=10, normalize="mean", standardize=True)
    alike = VarianceWeights(k=8, max_weight=10, normalize="mean", standardize=True).fit(X, Y)
    np.testing.assert_array_equal(found.weights.numpy(), alike.weights_)


def test_a_file_gives_what_its_arrays_give(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    assert torch.equal(weigh(tmp_path / "data.npz", k=8).weights, weigh(X, Y, k=8).weights)


def test_summary_lists_the_heaviest(tmp_path: Path) -> None:
    found: Weighing = weigh(X, Y, k=8, noise="cap")
    facts = found.to_dict(heaviest=3)
    heaviest = found.weights.argsort(descending=True, stable=True)[:3]
    assert [row["index"] for row in facts["heaviest"]] == heaviest.tolist()
    assert facts["suspects"] == int(found.suspects.sum())
    assert found.text(3).splitlines()[-3].split()[0] == str(int(heaviest[0]))
    assert weigh(X, Y, k=8).to_dict()["suspects"] == len(found.suspect_rows()) == facts["suspects"]


def test_weights_and_page_are_saved(tmp_path: Path) -> None:
    found = weigh(X, Y, k=8)
    saved = found.save(tmp_path / "weights.npy")
    np.testing.assert_array_equal(np.load(saved), found.weights.numpy())
    page = found.save(tmp_path / "weights.html", saved=str(saved))
    assert "weights.npy" in page.read_text(encoding="utf-8")


def test_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="labels must come with an array"):
        weigh(X)
    with pytest.raises(InputError, match="must hold as many samples each, got 60 and 59"):
        weigh(X, Y[:-1])
    with pytest.raises(InputError, match=r"existing \.npz file"):
        weigh(tmp_path / "none.npz")
