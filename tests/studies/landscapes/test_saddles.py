"""Escapes against closed forms; critical points against their definition."""

from __future__ import annotations

import math

import pytest
import torch

from mindgap.core import Trial
from mindgap.studies.landscapes import saddles
from mindgap.studies.landscapes.saddles import (
    NOISE,
    OPTIMIZERS,
    RATE,
    Saddles,
    critical_points,
    steps_to_escape,
)


@pytest.mark.parametrize("start", [0.5, 1e-2, 1e-7])
def test_plain_descent_grows_by_one_factor_per_step(start: float) -> None:
    expected = math.ceil(math.log(1 / start) / math.log(1 + RATE))
    assert steps_to_escape(OPTIMIZERS["SGD"], start) == [expected]


def test_momentum_and_adam_are_faster_and_noise_leaves_the_ridge() -> None:
    plain, momentum, adam = (
        steps_to_escape(OPTIMIZERS[name], 1e-6)[0] for name in ("SGD", "momentum", "Adam")
    )
    assert adam < momentum < plain
    assert steps_to_escape(OPTIMIZERS["SGD"], 0.0) == [None]
    assert None not in steps_to_escape(OPTIMIZERS["SGD"], 0.0, NOISE, 3)


def test_critical_points_have_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    searched = saddles._searched
    monkeypatch.setattr(
        saddles, "_searched", lambda *given: kept.append(searched(*given)) or kept[-1]
    )
    found = critical_points(0, starts=16, descent=100, iterations=120)
    loss = saddles._small_loss(0)
    places = [p for p in kept[0] if float(torch.func.grad(loss)(p).norm()) < 1e-7]
    assert len(places) == len(found["losses"]) > 0
    for place, value, index in zip(places, found["losses"], found["index"], strict=True):
        assert float(loss(place)) == pytest.approx(value)
        values = torch.linalg.eigvalsh(torch.func.jacrev(torch.func.grad(loss))(place))
        assert float((values < -1e-6 * values.abs().max()).double().mean()) == pytest.approx(index)


def test_the_table_has_three_parts() -> None:
    study = Saddles().tiny()
    records = [
        (trial, {"losses": [1.0, 2.0, 3.0], "index": [0.0, 0.1, 0.2], "starts": 4})
        if trial["part"] == "index"
        else (trial, study.run(trial))
        for trial in study.trials()
    ]
    table = study.summarize(records)
    rows = {(row[0], row[2]): row[3] for row in table.rows}
    assert rows["index", "rank correlation of index and loss"] == pytest.approx(1)
    assert rows["index", "share of searches that found a point"] == 0.75
    assert rows["index", "share of the points that are saddles"] == pytest.approx(2 / 3)
    assert {row[0] for row in table.rows} == {"escape", "index", "spread"}
    assert len(table.charts) == 3
    assert study.summarize([(Trial(parameters={"part": "spread", "width": 2}), {"losses": [1, 2]})])
