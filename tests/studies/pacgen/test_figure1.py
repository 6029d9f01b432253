"""Figure 1 of Wang et al. 2018: the two optima, the maps, the table and the charts."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest
import torch

from mindgap.core import Chart
from mindgap.core.study import Trial
from mindgap.report.draw import figure_of
from mindgap.studies.pacgen.calculus import derivatives
from mindgap.studies.pacgen.figure1 import COLUMNS, PAIR, PacgenFigure1, _agrees
from mindgap.studies.pacgen.optima import SLIGHTLY, landscape, optima
from mindgap.studies.pacgen.toy import Toy, scores

STUDY = PacgenFigure1(seeds=5, fresh=400, lines=61)


@pytest.fixture(scope="module")
def records() -> list[tuple[Trial, dict[str, Any]]]:
    return [(trial, json.loads(json.dumps(STUDY.run(trial)))) for trial in STUDY.trials()]


def test_the_rule_of_the_two_optima() -> None:
    toy = Toy.draw(100, seed=4)
    found = optima(toy, 121)
    here = derivatives(toy.loss, found.places)
    assert bool((here.slope.abs() < 1e-6).all())
    assert bool((torch.linalg.eigvalsh(here.hessian) > 0).all())
    assert torch.equal(here.value, here.value.sort().values)
    close = here.value <= here.value[0] + SLIGHTLY
    assert found.near == int(close.sum()) - 1
    assert found.flat == int(torch.where(close, here.trace, torch.inf).argmin()) > 0
    others = {tuple(found.other(seed)[0].tolist()) for seed in range(40)}
    assert others == {tuple(place) for place in found.places[1 : 1 + found.near].tolist()}


def test_the_maps_are_the_formulas_at_their_places() -> None:
    toy, pair = Toy.draw(100, seed=4), torch.tensor([[6.0, -4.0], [8.0, -5.0]], dtype=torch.float64)
    found = landscape(toy, pair, 41)
    assert (found.x[0], found.x[-1]) == (pytest.approx(7 - 3.9), pytest.approx(7 + 3.9))
    assert float(found.y.mean()) == pytest.approx(-4.5)
    for row, column in ((0, 0), (12, 30), (40, 3)):
        place = torch.stack([found.x[column], found.y[row]])[None]
        assert float(found.loss[row, column]) == pytest.approx(float(toy.losses(place)))
        alone = scores(toy, place, toy)[0]  # its ρ is searched on another grid of the same box
        assert float(found.psi[row, column]) == pytest.approx(alone["psi"], abs=0.25)
        assert float(found.bound[row, column]) == pytest.approx(alone["bound"], abs=0.01)


def test_records_are_repeatable_and_the_table_adds_up(
    records: list[tuple[Trial, dict[str, Any]]],
) -> None:
    trial, first = records[-1]
    assert json.loads(json.dumps(STUDY.run(trial))) == first
    table = STUDY.summarize(records)
    pairs = [
        record for trial, record in records if trial["part"] == "landscape" and "sharp" in record
    ]
    assert pairs
    drawn = records[0][1]
    assert table.rows[0][2:] == tuple(drawn["sharp"][name] for name in COLUMNS)
    assert drawn["sharp"]["loss"] <= drawn["flat"]["loss"] <= drawn["sharp"]["loss"] + SLIGHTLY
    assert drawn["sharp"]["trace"] > drawn["flat"]["trace"]
    higher = dict(zip(table.columns, table.rows[4], strict=True))
    assert higher["training loss"] == 0
    assert higher["Hessian trace"] == 100
    share = sum(pair["sharp"]["risk"] > pair["flat"]["risk"] for pair in pairs) / len(pairs)
    assert higher["true loss"] == pytest.approx(100 * share)
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_without_any_pair_the_table_says_so(records: list[tuple[Trial, dict[str, Any]]]) -> None:
    lonely = [(trial, {"minima": 1, "lower_at_edge": False}) for trial, _ in records[1:]]
    table = STUDY.summarize(lonely)
    assert table.rows == ()
    assert "In 0 of them" in table.notes[0]


def test_which_number_agrees_with_the_gap() -> None:
    pair = {
        "sharp": {"psi": 2.0, "null": 1.0, "gap": 0.2},
        "flat": {"psi": 1.0, "null": 1.5, "gap": 0.1},
    }
    assert _agrees(pair, "psi")
    assert not _agrees(pair, "null")


def test_the_charts_show_what_was_found(records: list[tuple[Trial, dict[str, Any]]]) -> None:
    found = STUDY.summarize(records).charts
    assert [chart.kind for chart in found] == ["surface", "heatmap", "heatmap"]
    for chart in found:
        go.Figure(figure_of(Chart.from_dict(json.loads(json.dumps(chart.to_dict())))))
    surface, drawn = found[0], records[0][1]
    assert [mark.spot for mark in surface.marks] == [tuple(drawn[which]["place"]) for which in PAIR]
    toy, row, column = Toy.draw(100, drawn["seed"]), 7, 40
    place = torch.tensor([[surface.x[column], surface.y[row]]], dtype=torch.float64)
    assert surface.z[row][column] == pytest.approx(float(toy.losses(place)), rel=1e-3)
    plane = found[1]
    corner = torch.tensor([[plane.x[0], plane.y[5]]], dtype=torch.float64)
    chance = toy.margins(*torch.tensor(drawn["sharp"]["place"]).double()[:, None], corner).sigmoid()
    assert plane.z[5][0] == pytest.approx(float(chance), abs=0.02)
    assert sum(len(group.x) for group in plane.points) == 100
