"""The page of a sampling: the right image, true counts, and nothing that a user's words can break."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from browser import first_section, needs_browser, seen

from mindgap.core import Chart
from mindgap.report.pages.sampling import counts, sampling_html, sampling_page, settings_in_words
from mindgap.report.pages.sampling_charts import (
    acquisition_of,
    cloud_of,
    densities,
    heat_map,
    sampling_charts,
)
from mindgap.sampling import Box, Proposal, Simplex, TaylorSampler
from mindgap.sampling.proposal import carried

NASTY = "a <b>bold</b> </script><script>alert(1)</script>"


def steep(points: torch.Tensor) -> torch.Tensor:
    return torch.tanh(9 * (points.sum(1) - 0.8 * points.shape[1] / 2))


def ran(dimension: int, **settings: object) -> TaylorSampler:
    sampler = TaylorSampler(steep, Box([0] * dimension, [1] * dimension), initial=20, **settings)
    sampler.run(15)
    return sampler


def drawn(html: str) -> dict:
    found = re.findall(
        r'<script type="application/json" id="plot-points-data">(.*?)</script>', html, re.S
    )
    assert len(found) == 1
    return json.loads(found[0])


def test_one_input() -> None:
    sampler = ran(1, proposal=Proposal(kind="mixture", components=2))
    figure = drawn(sampling_html(sampler, names=["heat"], outputs=["energy"]))
    names = [trace["name"] for trace in figure["data"]]
    assert names == ["energy", "acquisition (Df)", "mixture density", "initial design", "new"]
    values = dict(zip(figure["data"][0]["x"], figure["data"][0]["y"], strict=True))
    assert len(values) == 35
    assert figure["data"][0]["x"] == sorted(figure["data"][0]["x"])
    assert [len(trace["x"]) for trace in figure["data"][3:]] == [20, 15]
    assert figure["layout"]["xaxis"]["title"]["text"] == "heat"
    found, mixture = densities(sampler, sampler.acquisition_values())
    places = torch.tensor(found.x, dtype=torch.float64)[:, None]
    exact = sampler.acquisition.anywhere(steep, places)
    torch.testing.assert_close(
        torch.tensor(found.y).double(), exact / exact.max(), rtol=1e-3, atol=1e-4
    )
    assert max(mixture.y) == 1


def test_two_inputs_show_the_carried_weights() -> None:
    sampler = ran(2, acquisition="neighbors")
    values = sampler.acquisition_values()
    heat = heat_map(sampler, cloud_of(sampler, values), values, ["a", "b"])
    place = torch.tensor([[heat.x[40], heat.y[7]]], dtype=torch.float64)
    expected = carried(sampler.proposal.weights(values), sampler.points, place, sampler.domain)
    assert heat.z[7][40] == pytest.approx(float(expected), rel=1e-3)
    assert [group.name for group in heat.points] == ["initial design", "new"]


def test_outside_the_domain_is_empty() -> None:
    sampler = TaylorSampler(steep, Simplex(2), initial=20)
    sampler.run(5)
    heat = drawn(sampling_html(sampler))["data"][0]
    assert heat["z"][-1][-1] is None
    assert heat["z"][0][0] is not None


@pytest.mark.parametrize(("inputs", "panels"), [(3, 3), (5, 10), (7, 10)])
def test_more_inputs(inputs: int, panels: int) -> None:
    sampler = ran(inputs, acquisition="neighbors")
    html = sampling_html(sampler)
    figure = drawn(html)
    assert len(figure["data"]) == 2 * panels
    assert sum(name.startswith("xaxis") for name in figure["layout"]) == panels
    last = figure["data"][-1]
    rows = sampler.points[sampler.found().new]
    assert last["x"] == pytest.approx(rows[:, min(inputs, 5) - 2].tolist(), rel=1e-4)
    assert last["y"] == pytest.approx(rows[:, min(inputs, 5) - 1].tolist(), rel=1e-4)
    assert ("The first 5 of 7 inputs" in html) == (inputs == 7)


@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_charts_are_told_in_words_and_survive_json(inputs: int) -> None:
    names = ["a", "b", "c"][:inputs]
    sampler = ran(inputs, acquisition="neighbors")
    (chart,) = sampling_charts(sampler, acquisition_of(sampler), names, ["f"])
    assert Chart.from_dict(json.loads(json.dumps(chart.to_dict()))) == chart
    for words in (chart.description, str(chart)):
        assert "initial design" in words
        assert "new" in words
    assert re.search(
        r"20( points)? (initial design|ticks)|initial design: 20 ticks", chart.description
    )


def mixed() -> TaylorSampler:
    sampler = TaylorSampler(None, Box([0, 0], [1, 1]), initial=8)
    sampler.know([[0.1, 0.2], [0.3, 0.4]], [1.0, 2.0])
    for one in sampler.ask(8):
        sampler.tell(one, sum(one.point)) if one.number % 2 else sampler.fail(one, NASTY)
    sampler.ask(3)
    return sampler


def test_counts_and_reasons() -> None:
    sampler = mixed()
    assert counts(sampler) == [
        ("given", 2, 2, 0, 0),
        ("initial design", 8, 4, 4, 0),
        ("new", 3, 0, 0, 3),
    ]
    html = sampling_html(sampler, names=[NASTY, "b"], source=NASTY)
    assert "<b>bold" not in html
    assert "alert(1)</script>" not in html
    assert "4 points" in html
    groups = drawn(html)["data"][1:]
    assert [trace["name"] for trace in groups] == ["given", "initial design", "failed", "pending"]
    # Crosses and rings are drawn by their outline alone, which must not be white on white.
    assert all(trace["marker"]["line"]["color"] != "#ffffff" for trace in groups[2:])


def test_pages_without_values_or_points() -> None:
    for dimension in (1, 2, 3):
        sampler = TaylorSampler(None, Box([0] * dimension, [1] * dimension), initial=3)
        assert "No point was asked yet" in sampling_html(sampler)
        for one in sampler.ask(3):
            sampler.fail(one, "no fuel")
        assert "no fuel" in sampling_html(sampler)


def test_a_session_whose_function_is_not_here() -> None:
    sampler = TaylorSampler(None, Box(0, 1), initial=3, acquisition="derivative")
    for one in sampler.ask(3):
        sampler.tell(one, 1.0)
    assert [trace["name"] for trace in drawn(sampling_html(sampler))["data"]] == [
        "y0",
        "initial design",
    ]


def test_settings_in_words() -> None:
    sampler = TaylorSampler(
        None,
        Simplex(2),
        initial=4,
        initial_design="grid",
        proposal=Proposal(temper=1, cap=1, uniform_share=0.25),
    )
    said = settings_in_words(sampler, ["a", "b"])
    assert said["Domain"] == "simplex: a from 0 to 1, b from 0 to 1"
    assert said["Initial design"] == "4 points, a grid"
    assert "among the 5 nearest points" in said["Acquisition function"]
    assert (
        said["Acquisition values count"].replace("\u00a0", " ")
        == "as it stands; 25 % of the points are uniform"
    )


def test_the_page_asks_the_network_for_nothing(tmp_path: Path) -> None:
    text = sampling_page(ran(2), tmp_path / "page.html").read_text()
    assert text.startswith("<!doctype html>")
    bare = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", bare)


@needs_browser
def test_the_images_are_drawn_in_a_browser(tmp_path: Path) -> None:
    """A curve, a map and a matrix of planes, each below its verdict."""
    pages = [sampling_page(ran(inputs), tmp_path / f"{inputs}.html") for inputs in (1, 2, 4)]
    doms, console = seen(pages, tmp_path)
    assert len(doms) == 3
    for dom in doms:
        assert dom.count('class="plot js-plotly-plot"') == 1
        assert dom.count('class="main-svg"') >= 1
        section, heading = first_section(dom)
        assert section == "verdict"
        assert heading.startswith("15 new points")
    assert not console
