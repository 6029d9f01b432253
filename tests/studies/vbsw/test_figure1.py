"""Figure 1: the numbers fit together, and the drawings show what was measured."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest
import torch

from mindgap.core import Chart
from mindgap.core.errors import InputError
from mindgap.core.study import Trial
from mindgap.data import two_moons
from mindgap.ops.variance.local import local_variance
from mindgap.report.draw import figure_of
from mindgap.studies.vbsw.figure1 import ARMS, WHERE, VbswFigure1, _accuracy
from mindgap.training.fit import fit

STUDY = VbswFigure1(splits=2, seeds=3, epochs=15)


@pytest.fixture(scope="module")
def records() -> list[tuple[Trial, dict[str, Any]]]:
    return [(trial, dict(STUDY.run(trial))) for trial in STUDY.trials()]


def test_accuracy_by_place() -> None:
    right = torch.tensor([[[1.0, 0.0, 1.0, 1.0]], [[0.0, 0.0, 1.0, 0.0]]])
    found = _accuracy(right, torch.tensor([True, True, False, False]))
    assert found == {"near the boundary": [50, 0], "elsewhere": [100, 50], "everywhere": [75, 25]}


def test_the_places_make_up_the_whole(records: list[tuple[Trial, dict[str, Any]]]) -> None:
    for _, record in records:
        near = record["near"]
        assert 0 < near <= 0.5
        for arm in range(len(ARMS)):
            close, far, whole = (record["accuracy"][where][arm] for where in WHERE)
            assert near * close + (1 - near) * far == pytest.approx(whole)


def test_the_baseline_is_plain_training(records: list[tuple[Trial, dict[str, Any]]]) -> None:
    recipe = STUDY._recipe(two_moons(300, 1000, 0.1, seed=1))
    errors = [
        fit(recipe, seed=seed, evaluate_every=0).subject().mean_error("test") for seed in range(3)
    ]
    assert records[1][1]["accuracy"]["everywhere"][0] == pytest.approx(
        100 * (1 - sum(errors) / 3), abs=0.11
    )


def test_only_the_first_draw_is_drawn_and_its_points_are_the_samples(
    records: list[tuple[Trial, dict[str, Any]]],
) -> None:
    drawing = records[0][1]["drawing"]
    assert "drawing" not in records[1][1]
    data = two_moons(300, 1000, 0.1, seed=0)
    assert [label for _, label in drawing["points"]] == data.targets.tolist()
    variance = local_variance(data.inputs, data.targets, k=20).variance
    weights = torch.tensor(drawing["weights"])
    assert torch.equal(weights.argsort(stable=True)[-3:], variance.argsort(stable=True)[-3:])
    assert float(weights.mean()) == pytest.approx(1, abs=0.01)


def test_the_table_and_its_charts(records: list[tuple[Trial, dict[str, Any]]]) -> None:
    table = STUDY.summarize(records)
    assert len(table.rows) == 4 * len(WHERE)
    assert all(len(row) == len(table.columns) for row in table.rows)
    values = {(row[0], row[1]): row[2] for row in table.rows}
    differences = {(row[0], row[1], row[4]): row[5] for row in table.rows if row[4]}
    for (where, arm, other), difference in differences.items():
        assert difference == pytest.approx(values[where, arm] - values[where, other])
    assert [chart.kind for chart in table.charts] == ["heatmap", "heatmap"]
    for chart in table.charts:
        go.Figure(figure_of(Chart.from_dict(json.loads(json.dumps(chart.to_dict())))))
    assert [trace["name"] for trace in figure_of(table.charts[1])["data"][:3]][1].startswith(
        "VBSW, mean 1 ("
    )


def test_moons_that_are_far_apart_raise_an_error() -> None:
    with pytest.raises(InputError, match="Raise noise"):
        VbswFigure1(splits=2, seeds=1, epochs=1, noise=0.0).run(Trial(parameters={}, seed=0))
