import math

import plotly.graph_objects as go
import pytest

from mindgap.core.result import Interval, Result
from mindgap.report.pages.study import study_chart
from mindgap.report.parts import Card, Classes, Layers, Spread
from mindgap.report.sections import overview, spread
from mindgap.report.sections.bounds import bounds_chart
from mindgap.report.style import clean


def bound(value, **changes):
    terms = {"empirical": 0.1, "complexity": value - 0.1, "ceiling": 1.0}
    flags = {"valid": True, "vacuous": value >= 1, **changes}
    return Card(
        result=Result(name="b", family="bound", value=value, terms=terms, **flags),
        title="B",
        summary="",
    )


def valid(figure):
    """Plotly's own check of every property, and our own of the labels."""
    go.Figure(figure)
    return figure


def all_charts(report):
    return [chart for section in overview.of_report(report).values() for chart in section]


def test_every_chart_of_a_report_is_a_valid_figure_with_words(report):
    found = {chart.key: chart for chart in all_charts(report)}
    shown = {
        "gap",
        "curve-loss",
        "curve-error",
        "bounds",
        "layers-0",
        "spread",
        "classes",
        "confusion",
        "weights",
    }
    assert set(found) == shown
    for chart in found.values():
        valid(chart.figure)
        assert chart.alt
        assert chart.title
        titles = [
            axis["title"]["text"]
            for axis in (chart.figure["layout"][k] for k in ("xaxis", "yaxis"))
            if "title" in axis
        ]
        assert titles


def test_the_data_cannot_end_its_script_element(report):
    assert all("<" not in chart.data for chart in all_charts(report))


def test_numbers_that_are_not_finite_become_gaps():
    chart = overview.Chart(
        key="k", title="t", caption="", alt="a", figure={"data": [math.nan, math.inf], "layout": {}}
    )
    assert chart.data == '{"data":[null,null],"layout":{}}'


def test_the_gap_has_error_bars(report):
    unseen, seen = overview.gap_bar(report.facts, report.gap)["data"]
    assert unseen["x"][0] == report.gap.value
    assert unseen["x"][0] + unseen["error_x"]["array"][0] == pytest.approx(report.gap.interval.high)
    assert "error_x" not in seen


def test_an_endless_interval_has_no_arms(report):
    endless = Result(
        name="gap", family="measure", value=0.1, interval=Interval(low=-math.inf, high=math.inf)
    )
    assert overview.gap_bar(report.facts, endless)["data"][0]["error_x"]["array"] == [0.0, 0.0]


def test_curves_that_were_not_recorded_are_not_drawn(report):
    assert overview.training_curve((), "loss", report.facts) is None
    assert (
        overview.training_curve(({"epoch": 1.0, "running_loss": 2.0},), "error", report.facts)
        is None
    )


def test_the_curve_of_the_test_error_has_its_interval(report):
    band, *lines = valid(overview.training_curve(report.curves, "error", report.facts))["data"]
    assert [line["name"] for line in lines] == ["train", "test"]
    assert len(band["y"]) == 2 * len(report.curves)


def test_bounds_that_hold_come_first_and_others_are_hatched():
    figure = valid(bounds_chart([bound(0.2, valid=False, reason="x"), bound(1e9), bound(0.5)]))
    assert figure["data"][0]["marker"]["pattern"]["shape"] == ["", "/", "/"]
    texts = [note["text"].replace("\u00a0", " ") for note in figure["layout"]["annotations"]]
    assert texts == ["50 %", "20 % · invalid", "1e+09 · vacuous"]
    assert bounds_chart([]) is None


def test_only_the_largest_of_very_many_tensors_are_drawn():
    many = Layers(
        title="Norm",
        names=tuple(f"layer.{k}.weight" for k in range(99)),
        values=tuple(map(float, range(99))),
    )
    (bars,) = valid(overview.layer_bars(many))["data"]
    assert bars["x"] == [float(k) for k in range(59, 99)]


def test_classes_without_samples_are_left_out_and_the_worst_of_many_are_kept():
    few = Classes(which="test", names=("a", "b"), wrong=(1, 0), total=(4, 0))
    (bars,) = valid(spread.class_errors(few))["data"]
    assert bars["y"] == [0.25]
    assert spread.confusion(few) is None
    many = Classes(
        which="test", names=tuple(map(str, range(50))), wrong=tuple(range(50)), total=(50,) * 50
    )
    (bars,) = spread.class_errors(many)["data"]
    assert bars["text"][0] == "49: 49 of 50 wrong"
    assert len(bars["y"]) == spread.MOST_CLASSES


def test_a_spread_without_test_data_has_one_line():
    (line,) = valid(
        spread.spread_lines(Spread(quantity="loss", edges=(0.0, 1.0, 2.0), train=(1, 3)))
    )["data"]
    assert line["y"] == [0.25, 0.75]
    assert line["error_y"]["array"][0] == pytest.approx(math.sqrt(0.25 * 0.75 / 4))


@pytest.mark.parametrize("kind", ["line", "bar", "unheard of"])
def test_charts_of_a_study(kind):
    series = [
        {"name": "<i>", "x": [1, 2], "y": [3, 4], "low": [2, 3], "high": [4, 5]},
        {"name": "b", "x": [1], "y": [2]},
    ]
    figure = valid(
        study_chart(
            {"kind": kind, "title": "t", "x_label": "width", "y_label": "error", "series": series}
        )
    )
    assert figure["layout"]["xaxis"]["title"]["text"] == "width"
    assert all("<i>" not in trace["name"] for trace in figure["data"])


def test_bars_with_long_names_lie():
    def drawn(names):
        row = {
            "name": "a",
            "x": names,
            "y": [3.0] * len(names),
            "low": [2.5] * len(names),
            "high": [4.0] * len(names),
        }
        return valid(
            study_chart({"kind": "bar", "x_label": "arm", "y_label": "error", "series": [row]})
        )

    short, long = (
        drawn(["a", "b"]),
        drawn([f"a name of many letters, number {k}" for k in range(5)]),
    )
    assert (short["data"][0]["orientation"], long["data"][0]["orientation"]) == ("v", "h")
    assert short["data"][0]["y"] == long["data"][0]["x"][:2] == [3.0, 3.0]
    assert long["data"][0]["error_x"]["array"] == [1.0] * 5
    assert (
        long["layout"]["xaxis"]["title"]["text"]
        == short["layout"]["yaxis"]["title"]["text"]
        == "error"
    )
    assert long["layout"]["yaxis"]["autorange"] == "reversed"  # the first on top


def test_clean_shortens_in_the_middle():
    assert clean("block.1.attention.weight", 12) == "block.…eight"
    assert clean("<a>&") == "&lt;a&gt;&amp;"
