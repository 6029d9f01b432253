"""Charts as data: checked when they are made, kept through JSON, told in words and as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from charts import EVERY

from mindgap.core import (
    Bar,
    Chart,
    Contour,
    Gallery,
    Heatmap,
    Histogram,
    Line,
    Mark,
    MindgapError,
    Points,
    Sample,
    Scatter,
    Series,
    Surface,
    Table,
)
from mindgap.core.chart.text import MOST_ROWS, sparkline
from mindgap.runs import load_results

RESULTS = sorted((Path(__file__).parents[2] / "docs" / "results").glob("*.json"))


@pytest.mark.parametrize("kind", EVERY)
def test_every_kind_survives_json(kind: str) -> None:
    chart = EVERY[kind]
    data = json.loads(json.dumps(chart.to_dict(), allow_nan=False))
    assert data["kind"] == kind
    assert Chart.from_dict(data) == chart


@pytest.mark.parametrize("kind", EVERY)
def test_every_kind_is_told_in_words_and_as_text(kind: str) -> None:
    chart = EVERY[kind]
    assert chart.description.startswith(chart.title)
    assert len(chart.told()) > 10
    head, *lines = str(chart).splitlines()
    assert head == chart.title
    assert lines
    assert all(line.startswith("  ") for line in lines)


def test_charts_are_frozen_plain_data() -> None:
    line = Line(series=[Series(x=torch.tensor([1.0, 2.0]), y=[3, 4])])
    assert line.series[0].x == (1.0, 2.0)
    with pytest.raises(AttributeError):
        line.title = "new"  # type: ignore[misc]
    assert line.to_dict() == {"kind": "line", "series": [{"x": [1.0, 2.0], "y": [3, 4]}]}


def test_given_alt_text_is_kept() -> None:
    assert Line(title="t", alt="A flat line.").description == "A flat line."


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Series(name="a", x=[1, 2], y=[1]), "y of the series 'a' must have as many"),
        (lambda: Series(x=[1], y=[1], low=[0]), "high of the series '' must have as many"),
        (lambda: Points(x=[1], y=[1], weights=[1, 2]), "weights of the points ''"),
        (lambda: Mark(name="m"), "The mark 'm' must have x, y or both"),
        (lambda: Sample(image="http://a/b.png"), "must be a data address"),
        (lambda: Bar(series=[Series(x=["a"], y=[1])], notes=["b", "c"]), "notes of a bar chart"),
        (lambda: Histogram(edges=[1, 1], counts={}), "increasing numbers"),
        (lambda: Histogram(edges=[1, 2], counts={"a": [1, 2]}), "one number per bin"),
        (lambda: Heatmap(x=[1, 2], y=[1], z=[[1]]), "z of a heatmap must hold one row per y"),
        (lambda: Heatmap(x=[1], y=[1], contours=[Contour(name="c")]), "contour 'c' of a heatmap"),
        (lambda: Surface(x=[1, 2], y=[1, 2], z=[[1, 2]]), "z of a surface must hold one row per y"),
        (lambda: Surface(x=[1, 2], y=[1, 2], z=[[None] * 2] * 2), "must hold a finite number"),
        (
            lambda: Surface(x=[1, 2], y=[1, 2], z=[[1, 2]] * 2, marks=[Mark(x=1)]),
            "A mark of a surface must have x and y",
        ),
        (lambda: Line(x_scale="logarithmic"), "x_scale"),
        (lambda: Chart.from_dict({"kind": "lines"}), "line"),
        (lambda: Chart.from_dict({}), "kind of chart"),
        (lambda: Chart.from_dict({"kind": "bar", "color": 1}), "fields that this version knows"),
    ],
)
def test_what_does_not_fit_is_one_sentence(make: Any, message: str) -> None:
    with pytest.raises(MindgapError, match=message):
        make()


def test_the_forms_of_version_0_1_are_read() -> None:
    heat = Chart.from_dict({"kind": "heat", "x": [1], "y": [2], "z": [[3]], "x_scale": "category"})
    assert heat == Heatmap(x=[1], y=[2], z=[[3]], diverging=True)
    points = {"name": "p", "x": [1], "y": [2], "weights": []}
    plane = Chart.from_dict({"kind": "plane", "x": [0, 1], "y": [0, 1], "points": [points]})
    assert plane == Heatmap(x=[0, 1], y=[0, 1], points=[Points(name="p", x=[1], y=[2])])
    image = "data:image/png;base64,AA=="
    for word in ("pictures", "images"):
        gallery = Chart.from_dict({"kind": "gallery", word: [{"address": image, "caption": "c"}]})
        assert gallery == Gallery(samples=[Sample(image=image, caption="c")])


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_saved_results_are_readable(path: Path) -> None:
    table = Table.from_dict(load_results(path)["table"])
    assert all(chart.description and str(chart) for chart in table.charts)
    assert Table.from_dict(table.to_dict()) == table


def test_bars_by_name_keep_the_largest_in_order() -> None:
    chart = Bar.of({"a": 1.0, "b": -5.0, "c": 3.0}, most=2)
    assert chart.names == ("b", "c")
    assert chart.caption == "The 2 largest of 3."
    assert Bar.of({"a": 1.0}, title="t").caption == ""


def test_a_histogram_counts_every_value() -> None:
    values = torch.cat([torch.linspace(0, 1, 999), torch.tensor([1e6])])
    chart = Histogram.of({"a": values, "b": values[:10]}, bins=5)
    assert [sum(counts) for counts in chart.counts.values()] == [1000, 10]
    assert chart.edges[-1] < 2  # the extreme value is counted in the last bin
    assert "beyond" in chart.caption
    constant = Histogram.of({"a": torch.ones(3)}, bins=2)
    assert not constant.caption
    assert (constant.edges[0], constant.edges[-1]) == (0.5, 1.5)


def test_long_charts_stay_a_few_lines() -> None:
    bars = Bar.of({f"tensor {k}": float(k) for k in range(30)})
    assert str(bars).splitlines()[-1] == f"  … {30 - MOST_ROWS} more"
    gallery = Gallery(title="g", samples=[Sample(caption=str(k)) for k in range(30)])
    assert len(str(gallery).splitlines()) == MOST_ROWS + 2
    assert len(sparkline(range(1000))) <= 60


def test_rows_of_a_plane_rise_and_rows_of_a_matrix_fall() -> None:
    plane = Heatmap(title="p", x=[0, 1], y=[0.0, 1.0], z=[[0, 0], [1, 1]])
    matrix = Heatmap(title="m", x=["a", "b"], y=["low", "high"], z=[[0, 0], [1, 1]])
    assert str(plane).splitlines()[1].split() == ["1", "██"]
    assert str(matrix).splitlines()[1].split() == ["low", "░░"]


def test_gaps_do_not_break_words_or_text() -> None:
    line = Line(series=[Series(name="a", x=[1, 2], y=[None, float("nan")])])
    assert "a without values" in line.description
    assert "no values" in str(line)
    scatter = Scatter(points=[Points(x=[], y=[])])
    assert "unknown" in str(scatter)
