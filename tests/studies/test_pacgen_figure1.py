"""Figure 1 of Wang et al. 2018: the toy is the network it says, its numbers are the formulas', its table adds up."""

from __future__ import annotations

import json
import math
from typing import Any

import plotly.graph_objects as go
import pytest
import torch
from torch import Tensor, nn

from mindgap.core import Chart
from mindgap.core.study import Trial
from mindgap.ops.pac_bayes.hessian import lemma3
from mindgap.report.draw import figure_of
from mindgap.studies.pacgen.calculus import derivatives
from mindgap.studies.pacgen.figure1 import COLUMNS, PAIR, PacgenFigure1, _agrees
from mindgap.studies.pacgen.optima import SLIGHTLY, landscape, optima
from mindgap.studies.pacgen.toy import DELTA, ETA, Toy, bound8, noisy_loss, scores

STUDY = PacgenFigure1(seeds=5, fresh=400, lines=61)


@pytest.fixture(scope="module")
def records() -> list[tuple[Trial, dict[str, Any]]]:
    return [(trial, json.loads(json.dumps(STUDY.run(trial)))) for trial in STUDY.trials()]


def network(toy: Toy, place: Tensor) -> nn.Sequential:
    """The same network, plainly: one linear layer used five times."""
    layer = nn.Linear(2, 2, bias=False).double()
    matrix = torch.diag(toy.fixed)
    matrix[0, 1], matrix[1, 0] = place
    layer.weight = nn.Parameter(matrix)
    return nn.Sequential(*(part for _ in range(4) for part in (layer, nn.Sigmoid())), layer)


def test_the_toy_is_a_five_layer_network_with_one_matrix() -> None:
    toy = Toy.draw(50, seed=3)
    places = 5 * torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss, error = toy.losses(places), toy.error(places)
    for k, place in enumerate(places):
        logits = network(toy, place)(toy.inputs).detach()
        assert float(loss[k]) == pytest.approx(
            float(nn.functional.cross_entropy(logits, toy.labels)), rel=1e-8
        )
        wrong = logits.argmax(1) != toy.labels
        assert float(error[k]) == pytest.approx(float(wrong.double().mean()))


def test_samples_are_seeded_and_come_from_three_clouds() -> None:
    toy, truth = Toy.draw(100, seed=1), Toy.draw(100, seed=1).fresh(30_000, seed=5)
    assert torch.equal(toy.inputs, Toy.draw(100, seed=1).inputs)
    assert not torch.equal(toy.inputs[:50], truth.inputs[:50])
    assert float(truth.labels.double().mean()) == pytest.approx(1 / 3, abs=0.01)
    assert torch.allclose(truth.inputs[truth.labels == 1].mean(0), toy.means[2], atol=0.03)
    assert torch.allclose(truth.inputs[truth.labels == 0].mean(0), toy.means[:2].mean(0), atol=0.1)


def test_the_bound_is_lemma_3_where_that_applies() -> None:
    weights = torch.tensor([[2.0, -5.0], [0.3, 9.0]], dtype=torch.float64)
    bend, rho = (
        torch.tensor([[3.0, 0.2], [0.0, 40.0]], dtype=torch.float64),
        torch.tensor([0.5, 20.0]).double(),
    )
    found = bound8(torch.tensor([0.2, 0.4], dtype=torch.float64), weights, bend, rho, samples=100)
    for k, loss in enumerate((0.2, 0.4)):
        radius = 0.1 * weights[k].abs() + 0.1
        limit = weights[k].abs() + radius
        same = {"lipschitz": float(rho[k]), "eta": ETA, "samples": 100, "delta": DELTA}
        wanted = lemma3(loss, weights[k], bend[k], radius, limit, **same)
        assert float(found.bound[k]) == pytest.approx(wanted.bound, rel=1e-9)
        assert torch.allclose(found.scales[k], wanted.scales)


def test_where_the_curvature_is_negative_the_noise_is_as_wide_as_it_may() -> None:
    weights = torch.tensor([[2.0, -5.0]], dtype=torch.float64)
    found = bound8(torch.zeros(1), weights, torch.full((1, 2), -9.0), torch.zeros(1), samples=100)
    assert found.scales.tolist() == [pytest.approx([0.3, 0.6])]


def test_scores_are_the_papers_formulas() -> None:
    toy = Toy.draw(100, seed=3)
    places = torch.tensor([[4.0, -3.0], [10.0, 1.0]], dtype=torch.float64)
    found = scores(toy, places, toy.fresh(1000, 7))
    for row, place in zip(found, places, strict=True):
        assert row["rho"] > 0
        diagonal = derivatives(toy.loss, place[None]).diagonal[0]
        radius = 0.1 * place.abs() + 0.1
        psi = 0.0
        for weight, bend, kappa in zip(
            place.tolist(), diagonal.tolist(), radius.tolist(), strict=True
        ):
            root = math.sqrt(max(0.0, bend + row["rho"] * math.sqrt(2) * kappa))
            psi += math.log((abs(weight) + kappa) * max(root, 1 / kappa))
        assert row["psi"] == pytest.approx(psi)
        assert row["psi"] >= row["psi_without_rho"] >= row["null"]
        assert row["gap"] == pytest.approx(row["risk"] - row["loss"])
        assert row["trace"] == pytest.approx(float(diagonal.sum()))


def test_rho_bounds_the_change_of_the_hessian_nearby() -> None:
    toy, place = Toy.draw(100, seed=4), torch.tensor([[6.0, -4.0]], dtype=torch.float64)
    rho = scores(toy, place, toy)[0]["rho"]
    step = (
        torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    )
    step *= 0.1 * place.abs() + 0.1
    change = derivatives(toy.loss, place + step).hessian - derivatives(toy.loss, place).hessian
    assert float((torch.linalg.matrix_norm(change, 2) / step.norm(dim=1)).max()) <= rho * 1.02


def test_the_noisy_loss_is_an_average() -> None:
    toy = Toy.draw(100, seed=4)
    places, scales = torch.tensor([[6.0, -4.0]]).double(), torch.tensor([[0.3, 0.2]]).double()
    noise = (
        torch.rand(20_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
        - 1
    )
    values = toy.losses(places + noise * scales)
    error = float(values.std()) / math.sqrt(len(values))
    assert float(noisy_loss(toy, places, scales)) == pytest.approx(
        float(values.mean()), abs=5 * error
    )


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
