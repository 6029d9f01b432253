"""The verdict on the decay of noise, on made-up values."""

from __future__ import annotations

import pytest

from mindgap.studies.compression.noise_by_layer import NoiseByLayer, _row


@pytest.mark.parametrize(
    ("values", "wanted"),
    [([0.2, 0.3, 0.25], "decays"), ([2.0, 2.2, 2.1], "grows"), ([0.5, 1.5, 1.0], "neither")],
)
def test_noise_decays_if_its_interval_is_below_one(values: list[float], wanted: str) -> None:
    assert _row("true labels", 0, values)[-1] == wanted


def test_tiny_tells_every_layer_of_every_state() -> None:
    study = NoiseByLayer().tiny()
    table = study.summarize([(trial, study.run(trial)) for trial in study.trials()])
    assert len(table.rows) == 6 * 4
    assert sum("true labels minus" in note for note in table.notes) == 4
