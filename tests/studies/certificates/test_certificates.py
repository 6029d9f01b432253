"""The study of certificates: its table from records, data that users may lack, and its networks."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mindgap.core.recipe import Recipe
from mindgap.core.study import Trial
from mindgap.data.dataset import DataSet
from mindgap.ops.pac_bayes.per_sample_draws import per_sample_model
from mindgap.ops.pac_bayes.posterior import stochastic_model
from mindgap.studies.certificates.cases import CASES
from mindgap.studies.certificates.certificates import Certificates, _falling, _loaded
from mindgap.studies.certificates.networks import (
    Scaled,
    Shift,
    Warp,
    color_cnn,
    freeze_normalization,
    small_cnn,
    warped_cnn,
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


def test_the_class_of_a_table_is_whether_its_target_is_above(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs, targets = torch.arange(4.0)[:, None], torch.tensor([[3.0], [5.0], [6.0], [8.0]])
    table = DataSet("wine", inputs, targets, inputs[:2], targets[:2], task="regression")
    monkeypatch.setattr("mindgap.studies.certificates.certificates.load", lambda _: table)
    found = _loaded("uci-wine", 5.0)
    assert found is not None
    assert (found[0][1].tolist(), found[1][1].tolist()) == ([0, 0, 1, 1], [0, 0])
    recipe = Recipe(model=CASES["wine"].network, train=blobs(200, 11), test=blobs(50, 11), epochs=1)
    made = Certificates(most_epochs=1)._learned(CASES["wine"], recipe, 0)
    assert made.valid
    assert made.samples == 60
    assert made.settings["prior_share"] == 0.7


def blobs(count: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(count)
    labels = torch.randint(0, 2, (count,), generator=source)
    return torch.randn(count, features, generator=source) + labels[:, None], labels


def test_initial_priors_know_nothing_of_the_data() -> None:
    """No layer of theirs has buffers, and inputs are scaled by constants alone."""
    for case in CASES.values():
        if case.prior == "initial":
            assert not list(case.network().buffers())
    inputs = torch.rand(3, 1, 2, 2)
    assert torch.equal(Scaled()(inputs), (inputs - 0.5) / 0.5)


@pytest.mark.parametrize("layer", [Shift(), Warp()])
def test_images_are_changed_in_training_only(layer: nn.Module) -> None:
    images = torch.rand(50, 1, 6, 6)
    assert torch.equal(layer.eval()(images), images)
    changed = layer.train()(images)
    assert changed.shape == images.shape
    assert not torch.equal(changed, images)


def test_a_warp_of_strength_zero_changes_nothing() -> None:
    layer, images = Warp().train(), torch.rand(3, 1, 6, 8)
    layer.turn = layer.stretch = layer.far = 0.0
    assert torch.allclose(layer(images), images, atol=1e-5)
    layer.far = 2.0  # so far away that hardly anything is left
    assert float(layer(images.repeat(50, 1, 1, 1)).mean()) < 0.3 * float(images.mean())


@pytest.mark.parametrize("turn", [-0.25, 0.25])
def test_a_warp_keeps_a_disc_where_it_is(turn: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turned disc is a disc, and a turned bar is a bar at that angle."""
    place = torch.linspace(-1, 1, 41)
    rows, columns = torch.meshgrid(place, place, indexing="ij")
    images = torch.stack([rows**2 + columns**2 < 0.3, rows.abs() < 0.1]).float()[:, None]
    layer = Warp().train()
    noise = torch.full((6, 2), 0.5)
    noise[0] = (turn / layer.turn + 1) / 2
    monkeypatch.setattr(torch, "rand", lambda *_: noise)
    disc, bar = layer(images)[:, 0]
    assert float((disc - images[0, 0]).abs().mean()) < 0.02
    inside = (rows**2 + columns**2 < 0.5) & (bar > 0.5)
    slope = float((rows * columns)[inside].sum() / columns.square()[inside].sum())
    assert abs(slope) == pytest.approx(math.tan(0.25), rel=0.1)


@pytest.mark.parametrize("make", [small_cnn, warped_cnn, lambda: color_cnn(2)])
def test_every_sample_can_have_its_own_draw(make: Any) -> None:
    network: nn.Module = freeze_normalization(make()).eval()
    shape = (1, 28, 28) if make in (small_cnn, warped_cnn) else (3, 32, 32)
    model = stochastic_model(network, "gaussian", 0.01)
    assert per_sample_model(model, (torch.rand(4, *shape),)) is not None


def test_the_learning_rate_rises_and_falls_to_nearly_zero() -> None:
    factors = [_falling(12)(epoch) for epoch in range(12)]
    assert max(factors) == 1.0
    assert factors[0] == 0.5
    assert 0 < factors[-1] < 0.1
    assert _falling(1)(0) == 1.0
