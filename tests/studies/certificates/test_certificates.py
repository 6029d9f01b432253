"""The study of certificates: its table from records, data that users may lack, and its networks."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mindgap.core.study import Trial
from mindgap.ops.pac_bayes.per_sample_draws import per_sample_model
from mindgap.ops.pac_bayes.posterior import stochastic_model
from mindgap.studies.certificates.certificates import CASES, Certificates, _falling, _loaded
from mindgap.studies.certificates.networks import (
    Scaled,
    Shift,
    color_cnn,
    freeze_normalization,
    small_cnn,
)


def record(**changes: Any) -> dict[str, Any]:
    common = {
        "bound": 0.1,
        "error": 0.02,
        "error_limit": 0.03,
        "kl": 2000.0,
        "samples": 60_000,
        "paid": {"scales": 30.0, "tried": 2.0},
        "delta": 0.05,
        "draws": 100,
        "test_error": 0.02,
        "prior_error": None,
        "prior_bound": None,
        "verdict": "valid",
        "cpu_minutes": 3.0,
    }
    return {**common, **changes}


def test_rows_are_means_over_seeds_rounded_up() -> None:
    found = [record(bound=bound, cpu_minutes=4 * bound) for bound in (0.09, 0.1, 0.1111111)]
    trials = [Trial(parameters={"case": "short"}, seed=seed) for seed in range(3)]
    table = Certificates().summarize(list(zip(trials, found, strict=True)))
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["seeds"], row["least"], row["paid"]) == (3, 0.09, 32.0)
    assert row["certificate"] == 0.1004  # the mean is 0.10037
    assert row["largest"] == 0.1112
    assert row["CPU minutes"] == 0.45
    (line,) = [chart for chart in table.charts if chart.kind == "line"]
    assert line.series[0].low == (0.09,)  # type: ignore[attr-defined]
    assert any("inside 3 of 3" in note for note in table.notes)


def test_a_test_error_above_its_certificate_is_counted() -> None:
    rows = [(Trial(parameters={"case": "short"}), record(test_error=0.2))]
    assert any("inside 0 of 1" in note for note in Certificates().summarize(rows).notes)


def test_what_is_skipped_is_told() -> None:
    rows = [
        (Trial(parameters={"case": "short"}), record()),
        (Trial(parameters={"case": "clothes"}), {"skipped": "the reason"}),
    ]
    table = Certificates().summarize(rows)
    assert len(table.rows) == 1
    assert "Skipped the reason." in table.notes


def idx(values: np.ndarray) -> bytes:
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return gzip.compress(head + values.astype(np.uint8).tobytes())


def test_a_folder_of_the_user_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINDGAP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert _loaded("fashion-mnist") is None
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    for part, count in (("train", 5), ("t10k", 2)):
        pixels = np.full((count, 28, 28), 255)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(pixels))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(count)))
    found = _loaded("fashion-mnist")
    assert found is not None
    (inputs, targets), (_, test) = found
    assert inputs.shape == (5, 1, 28, 28)
    assert float(inputs.min()) == 1.0
    assert (targets.tolist(), test.tolist()) == ([0, 1, 2, 3, 4], [0, 1])


def test_initial_priors_know_nothing_of_the_data() -> None:
    """No layer of theirs has buffers, and inputs are scaled by constants alone."""
    for case in CASES.values():
        if case.prior == "initial":
            assert not list(case.network().buffers())
    inputs = torch.rand(3, 1, 2, 2)
    assert torch.equal(Scaled()(inputs), (inputs - 0.5) / 0.5)


def test_images_are_shifted_in_training_only() -> None:
    layer, images = Shift(), torch.rand(50, 1, 6, 6)
    assert torch.equal(layer.eval()(images), images)
    shifted = layer.train()(images)
    assert shifted.shape == images.shape
    assert not torch.equal(shifted, images)


@pytest.mark.parametrize("make", [small_cnn, lambda: color_cnn(2)])
def test_every_sample_can_have_its_own_draw(make: Any) -> None:
    network: nn.Module = freeze_normalization(make()).eval()
    shape = (1, 28, 28) if make is small_cnn else (3, 32, 32)
    model = stochastic_model(network, "gaussian", 0.01)
    assert per_sample_model(model, (torch.rand(4, *shape),)) is not None


def test_the_learning_rate_rises_and_falls_to_nearly_zero() -> None:
    factors = [_falling(12)(epoch) for epoch in range(12)]
    assert max(factors) == 1.0
    assert factors[0] == 0.5
    assert 0 < factors[-1] < 0.1
    assert _falling(1)(0) == 1.0
