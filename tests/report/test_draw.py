"""The renderer: every kind of chart becomes a figure that Plotly accepts, with words and colors."""

import math
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest
from charts import EVERY, NASTY, PAIRS

from mindgap.core import (
    Bar,
    Contour,
    Gallery,
    Heatmap,
    Histogram,
    InputError,
    Line,
    Mark,
    Points,
    Scatter,
    Series,
)
from mindgap.core.result import Result
from mindgap.report import pages
from mindgap.report.draw import draw, draw_all, figure_of
from mindgap.report.parts import Card
from mindgap.report.sections import bounds_charts, training_charts
from mindgap.report.style import COLORS, Drawn, clean


def valid(chart):
    """The figure, after Plotly's own check of every property."""
    figure = figure_of(chart)
    go.Figure(figure)
    return figure


def bound(value, title="B", **changes):
    terms = {"empirical": 0.1, "complexity": value - 0.1, "ceiling": 1.0}
    flags = {"valid": True, "vacuous": value >= 1, **changes}
    return Card(
        result=Result(name="b", family="bound", value=value, terms=terms, **flags),
        title=title,
        summary="",
    )


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind != "gallery"])
def test_every_kind_is_a_valid_figure_that_stays_in_its_script_element(kind):
    drawn = draw(EVERY[kind], "key")
    go.Figure(drawn.figure)
    assert drawn.alt == EVERY[kind].description
    assert drawn.height >= 150
    assert "<" not in drawn.data
    assert NASTY not in str(drawn.figure)


def test_points_of_three_coordinates_are_drawn_in_every_pair():
    figure = valid(PAIRS)
    assert NASTY not in str(figure)
    panels = [(trace["xaxis"], trace["yaxis"], trace["x"], trace["y"]) for trace in figure["data"]]
    assert [panel for panel in panels if len(panel[2]) == 2] == [
        ("x", "y", [1, 2], [3, 4]),
        ("x2", "y2", [1, 2], [5, 6]),
        ("x3", "y3", [3, 4], [5, 6]),
    ]
    assert sum(trace["showlegend"] for trace in figure["data"]) == 2
    markers = [trace["marker"] for trace in figure["data"]]
    assert [marker.get("showscale", False) for marker in markers] == [True] + [False] * 5
    assert markers[0]["colorbar"]["title"]["text"] == "weight"
    assert {(marker["cmin"], marker["cmax"]) for marker in markers} == {(0.0, 1.0)}
    assert PAIRS.description.startswith(f"Inputs. Scatter plots of every pair of a, {NASTY}, c")
    assert "Color: weight." in PAIRS.description
    assert "a from 1 to 2, <b>" in str(PAIRS)


def test_further_coordinates_need_names():
    with pytest.raises(InputError, match="as many entries as more_labels, 0, got 1"):
        Scatter(points=[Points(name="p", x=[1], y=[2], more=[[3]])])
    with pytest.raises(InputError, match=r"more\[0\] of the points 'p'"):
        Points(name="p", x=[1], y=[2], more=[[3, 4]])


def test_a_second_axis_and_strips_of_ticks_have_axes_of_their_own():
    figure = valid(EVERY["line"])
    axes = [trace.get("yaxis", "y") for trace in figure["data"]]
    assert axes == ["y", "y", "y", "y2", "y3"]
    assert figure["layout"]["yaxis2"]["side"] == "right"
    assert figure["layout"]["yaxis3"]["domain"][1] < figure["layout"]["yaxis"]["domain"][0]
    assert "2 ticks from 1 to 3" in EVERY["line"].description
    assert "0.1 → 0.01" in str(EVERY["line"])


def test_marks_of_bars_with_a_legend_are_named_there():
    figure = valid(EVERY["bar"])
    assert [trace["name"] for trace in figure["data"]][2:] == ["one"]
    assert figure["layout"]["shapes"][0]["label"]["text"] == ""
    alone = valid(Bar(series=[Series(x=["a"], y=[1])], marks=[Mark(name="limit", y=2)]))
    assert alone["layout"]["shapes"][0]["label"]["text"] == "limit"


def test_pages_leave_drawing_to_the_renderer():
    """A figure that a page builds itself has no text form, no alt text and a style of its own."""
    for path in Path(pages.__file__).parent.glob("*.py"):
        taken = re.findall(
            r"from mindgap\.report\.style import (.*?)\n(?=\S|\n)", path.read_text(), re.S
        )
        assert not re.search(r"\b(figure|Figure|Drawn|line|axis)\b", " ".join(taken)), path.name
        assert '"type": "' not in path.read_text(), path.name


def test_a_gallery_is_drawn_without_a_figure():
    drawn = draw(EVERY["gallery"], "key")
    assert drawn.figure is None
    assert drawn.samples == EVERY["gallery"].samples


def test_every_chart_of_a_report_is_drawn_with_words(report):
    charts = [
        chart for card in report.cards for chart in draw_all(card.result.charts, card.result.name)
    ]
    charts += draw_all(training_charts(report.curves, report.facts), "curve")
    charts += draw_all(bounds_charts(report.bounds), "bound")
    assert len({chart.key for chart in charts}) == len(charts) >= 9
    for chart in charts:
        assert chart.alt
        assert chart.title
        if chart.figure is not None:
            go.Figure(chart.figure)


def test_numbers_that_are_not_finite_become_gaps():
    chart = Drawn(
        key="k", title="t", caption="", alt="a", figure={"data": [math.nan, math.inf], "layout": {}}
    )
    assert chart.data == '{"data":[null,null],"layout":{}}'


def test_the_same_thing_has_the_same_color_everywhere():
    line = valid(Line(series=[Series(name=name, x=[1], y=[1]) for name in ("test", "train")]))
    bars = valid(Bar(series=[Series(x=["gap", "test"], y=[1, 2])]))
    assert [trace["line"]["color"] for trace in line["data"]] == [COLORS["test"], COLORS["train"]]
    assert bars["data"][0]["marker"]["color"] == [COLORS["gap"], COLORS["test"]]


def test_no_curve_has_the_color_that_belongs_to_another():
    names = ["test", "test, with weight decay", "training", "train", "validation"]
    line = valid(Line(series=[Series(name=name, x=[1], y=[1]) for name in names]))
    colors = [trace["line"]["color"] for trace in line["data"]]
    assert len(set(colors)) == len(names)
    assert [colors[k] for k in (0, 3, 4)] == [COLORS[names[k]] for k in (0, 3, 4)]


def test_the_gap_has_whiskers_where_it_is_uncertain(report):
    (bars,) = valid(report.gap.charts[0])["data"]
    assert bars["x"][2] == report.gap.value
    assert bars["x"][2] + bars["error_x"]["array"][2] == pytest.approx(report.gap.interval.high)
    assert bars["error_x"]["array"][0] is None


def test_an_endless_interval_has_no_whiskers():
    row = Series(x=["a"], y=[0.1], low=[-math.inf], high=[math.inf])
    assert valid(Bar(series=[row]))["data"][0]["error_y"]["array"] == [None]


def test_curves_that_were_not_recorded_are_not_drawn(report):
    assert training_charts((), report.facts) == ()
    assert training_charts(({"epoch": 1.0, "running_loss": 2.0},), report.facts) == ()


def test_the_curve_of_the_test_error_has_its_interval(report):
    loss, error = training_charts(report.curves, report.facts)
    assert [row.name for row in error.series] == ["train", "test"]
    train, test = error.series
    assert not train.low
    assert all(low <= y <= high for low, y, high in zip(test.low, test.y, test.high, strict=True))
    assert not any(row.low for row in loss.series)
    first, band, last = valid(error)["data"]
    assert (first["name"], last["name"]) == ("train", "test")
    assert band["fill"] == "toself"
    assert len(band["y"]) == 2 * len(report.curves)


def test_bounds_that_hold_come_first_and_others_are_hatched():
    (chart,) = bounds_charts(
        [bound(0.2, "A", valid=False, reason="x"), bound(1e9, "B"), bound(0.5, "C")]
    )
    figure = valid(chart)
    assert chart.names == ("C", "A", "B")
    assert figure["data"][0]["marker"]["pattern"]["shape"] == ["", "/", "/"]
    texts = [note["text"].replace("\u00a0", " ") for note in figure["layout"]["annotations"]]
    assert texts == ["50 %", "20 % · invalid", "1e+09 · vacuous"]
    assert bounds_charts([]) == ()


def test_a_bound_is_never_rounded_in_its_favor():
    (chart,) = bounds_charts([bound(0.1311)])
    assert chart.notes[0].replace("\u00a0", " ") == "13.2 %"


def test_a_histogram_of_shares_has_standard_errors():
    (steps,) = valid(Histogram(edges=[0, 1, 2], counts={"train": [1, 3]}, shares=True))["data"]
    assert steps["y"] == [0.25, 0.75]
    assert steps["error_y"]["array"][0] == pytest.approx(math.sqrt(0.25 * 0.75 / 4))


def test_a_histogram_of_counts_leaves_empty_bins_out():
    chart = Histogram(edges=[0, 1, 2, 3], counts={"a": [5, 0, 1], "b": [1, 0, 0]}, y_scale="log")
    first, second = valid(chart)["data"]
    assert first["y"] == [5, None, 1]
    assert (first["width"], second["x"]) == ([1, 1, 1], [0.5, 1.5, 2.5])


@pytest.mark.parametrize(
    ("counts", "scale", "drawn"),
    [
        ([900, 3, 2, 4], "", "log"),
        ([90, 30, 20, 40], "", None),
        ([900, 3, 2, 4], "linear", "linear"),
        ([900, 0, 0, 0], "", None),
    ],
)
def test_a_bin_that_towers_over_the_others_makes_the_scale_logarithmic(counts, scale, drawn):
    for shares in (False, True):
        chart = Histogram(edges=range(5), counts={"a": counts}, shares=shares, y_scale=scale)
        axis = valid(chart)["layout"]["yaxis"]
        assert axis.get("type") == drawn
        assert ("log scale" in axis["title"]["text"]) == (drawn == "log")


def test_the_line_of_equal_coordinates_spans_all_points():
    points = [Points(x=[0, 3], y=[1, 2]), Points(name="b", x=[1], y=[7])]
    line, *groups = valid(Scatter(points=points, diagonal=True))["data"]
    assert (line["x"], line["y"]) == ([0, 7], [0, 7])
    assert len(groups) == 2
    assert len(valid(Scatter(points=points))["data"]) == 2
    assert len(valid(Scatter(points=[Points()], diagonal=True))["data"]) == 1
    assert Scatter(points=points, diagonal=True).description.endswith("where both are equal.")


def test_numbers_of_a_matrix_below_one_differ_in_color():
    chart = Heatmap(x=["a", "b"], y=["c", "d"], z=[[0.05, 0.1], [0.02, 0.0]])
    assert valid(chart)["data"][0]["zmax"] == 0.1


def test_names_below_bars_are_broken_between_words():
    row = Series(x=["initial scale of weights 0.5", *"abcdefghi"], y=[1.0] * 10)
    drawn = valid(Bar(horizontal=False, series=[row]))["layout"]["xaxis"]["ticktext"]
    assert drawn[:2] == ["initial scale<br>of weights 0.5", "a"]


def test_bars_with_long_names_lie():
    def drawn(names):
        row = Series(
            name="a", x=names, y=[3.0] * len(names), low=[2.5] * len(names), high=[4.0] * len(names)
        )
        return valid(Bar(x_label="arm", y_label="error", series=[row]))

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


def test_equal_names_do_not_fall_together():
    (bars,) = valid(Bar(series=[Series(x=["a", "a"], y=[1, 2])]))["data"]
    assert bars["x"] == [0, 1]
    first, second = valid(
        Bar(series=[Series(name="p", x=["a"], y=[1]), Series(name="q", x=["b", "a"], y=[2, 3])])
    )["data"]
    assert (first["x"], second["x"]) == ([0], [1, 0])


def test_a_matrix_has_its_first_row_on_top_and_leaves_zeros_blank():
    figure = valid(Heatmap(x=["a", "b"], y=["a", "b"], z=[[None, 0], [2, None]]))
    assert figure["data"][0]["z"] == [[None, None], [2, None]]
    assert figure["layout"]["yaxis"]["range"] == [1.5, -0.5]


def test_a_diverging_map_is_centered_on_zero():
    (heat,) = valid(Heatmap(x=[1, 2], y=[1, 2], z=[[-1, 1], [2, 0]], diverging=True))["data"]
    assert heat["zmid"] == 0


def test_lines_and_points_of_a_plane_have_names_and_colors_of_their_own():
    table = [[-1.0, 1.0], [-1.0, 1.0]]
    chart = Heatmap(
        x=[0, 1],
        y=[0, 1],
        contours=[Contour(name=name, z=table) for name in ("<a>", "b", "b")],
        points=[Points(name="p", x=[0.5], y=[0.5])],
    )
    first, second, third, dots = go.Figure(figure_of(chart)).data
    assert first.name == "&lt;a&gt;"
    assert (second.showlegend, third.showlegend) == (True, False)
    assert len({first.line.color, second.line.color, dots.marker.color}) == 3


def test_marks_are_lines_across():
    shapes = valid(Line(marks=[Mark(name="here", x=2.0), Mark(name="there", y=3.0)]))["layout"][
        "shapes"
    ]
    assert (shapes[0]["x0"], shapes[0]["x1"]) == (2.0, 2.0)
    assert (shapes[1]["y0"], shapes[1]["y1"]) == (3.0, 3.0)
    lying = valid(Bar(series=[Series(x=["a"], y=[1])], marks=[Mark(y=0.5)], horizontal=True))
    assert lying["layout"]["shapes"][0]["x0"] == 0.5


def test_a_notebook_shows_a_chart_with_everything_it_needs():
    text = EVERY["line"]._repr_html_()
    assert text.startswith("<iframe srcdoc=")
    assert "plot-chart-data" in text
    assert NASTY not in text
    assert "Gallery" not in Gallery(title="g", samples=EVERY["gallery"].samples)._repr_html_()[:99]


def test_clean_shortens_in_the_middle():
    assert clean("block.1.attention.weight", 12) == "block.…eight"
    assert clean("<a>&") == "&lt;a&gt;&amp;"
