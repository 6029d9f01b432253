"""The study of Elman's network: what counts as a spike, and the rows of its table."""

from __future__ import annotations

import pytest

from mindgap.core import Trial
from mindgap.studies import ElmanStability
from mindgap.studies.stability.elman import ARMS, _gradients
from mindgap.training.monitor.monitor import Monitor


def test_spikes_are_counted_against_the_steps_before() -> None:
    monitor = Monitor()
    norms = [1.0] * 30 + [4.9, 5.1, 50.0] + [1.0] * 10 + [float("nan")]
    monitor.lines.append({"gradient": norms})
    found = _gradients(monitor)
    assert (found["steps"], found["spikes"], found["broken"]) == (44, 2, 1)
    assert found["largest"] == 50.0


def test_rows_compare_with_the_plain_network() -> None:
    def record(accuracy: float, spikes: int) -> dict[str, object]:
        rest = {"steps": 100, "largest": 2.0, "broken": 0, "rate": 0.9, "left": 0.1}
        return {**rest, "accuracy": accuracy, "spikes": spikes, "diverged": False}

    study = ElmanStability(seeds=2)
    records = [
        (
            Trial(parameters={"arm": arm}, seed=seed),
            record(0.5 + 0.2 * place + 0.1 * seed, 4 - place),
        )
        for place, arm in enumerate(list(ARMS)[:2])
        for seed in range(2)
    ]
    table = study.summarize(records)
    assert [row[0] for row in table.rows] == list(ARMS)[:2]
    assert table.rows[0][1:4] == ("55.0 %", "7.1 points", "—")
    assert table.rows[1][3] == "+20.0 points"
    assert table.rows[1][5] == pytest.approx(30)
    assert "fewer spikes than Elman's own: Elman, clipped" in table.notes[-1]
