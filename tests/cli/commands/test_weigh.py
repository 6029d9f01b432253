"""`mindgap weigh`: the weights of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Out = Callable[..., str]


def test_weights_of_a_file(tmp_path: Path, out: Out) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 3)), random.integers(0, 3, 60)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    words = ("weigh", str(tmp_path / "data.npz"), "--k", "5", "--max-weight", "8", "-q")
    text = out(*words, "-o", str(tmp_path / "weights.npy"))
    near = np.argsort(((x[:, None] - x) ** 2).sum(2), axis=1)[:, :5]
    variance = np.eye(3)[y][near].var(axis=1, ddof=1).sum(1)
    expected = 1 + 7 * variance / variance.max()
    assert np.allclose(np.load(tmp_path / "weights.npy"), expected, atol=1e-10)
    assert "60 samples" in text
    facts = json.loads(out(*words, "--json"))
    assert facts["heaviest"][0]["weight"] == pytest.approx(8)
    assert facts["mean"] == pytest.approx(expected.mean())
