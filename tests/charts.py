"""One chart of every kind, for the tests that draw, save or tell them."""

from __future__ import annotations

from mindgap.core import (
    Bar,
    Chart,
    Contour,
    Gallery,
    Heatmap,
    Histogram,
    Line,
    Mark,
    Points,
    Sample,
    Scatter,
    Series,
    Surface,
    Ticks,
)

NASTY = "<b>bold</b> </script><script>alert(1)</script>"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEANl9n"
    "gAAAAABJRU5ErkJggg=="
)
GRID = [[x * x + y for x in (-1.0, 0.0, 1.0)] for y in (0.0, 1.0, 2.0)]

PAIRS = Scatter(
    title="Inputs",
    x_label="a",
    y_label=NASTY,
    more_labels=["c"],
    value_label="weight",
    points=[
        Points(name=NASTY, x=[1, 2], y=[3, 4], more=[[5, 6]], values=[0.5, 1.0]),
        Points(name="new", x=[1], y=[7], more=[[8]], values=[0.25], symbol="square"),
    ],
)

EVERY: dict[str, Chart] = {
    chart.kind: chart
    for chart in (
        Line(
            title="Loss",
            x_label="epoch",
            y_label="loss",
            series=[
                Series(name="train", x=[1, 2, 3], y=[0.9, 0.5, None]),
                Series(name=NASTY, x=[1, 2], y=[1.0, 0.8], low=[0.9, 0.7], high=[1.1, 0.9]),
            ],
            marks=[Mark(name="lowest", x=2), Mark(name="goal", y=0.4)],
            right=[Series(name=f"rate {NASTY}", x=[1, 3], y=[0.1, 0.01])],
            right_label=NASTY,
            ticks=[Ticks(name=f"saved {NASTY}", x=[1, 3])],
        ),
        Bar(
            title="Bounds",
            y_label="error rate",
            series=[
                Series(name="empirical", x=["a", NASTY], y=[0.1, 0.2]),
                Series(name="complexity term", x=["a", NASTY], y=[0.2, 3.0]),
            ],
            stacked=True,
            horizontal=True,
            percent=True,
            muted=[NASTY],
            notes=["30 %", "vacuous"],
            marks=[Mark(name="one", y=1.0)],
            top=1.3,
        ),
        Scatter(
            title="Norm and gap",
            x_label="norm",
            y_label="gap",
            points=[
                Points(name=NASTY, x=[1, 2], y=[0.1, 0.2], weights=[1, 5]),
                Points(name="other", x=[3], y=[0.3], values=[7.0], symbol="cross"),
            ],
            x_scale="log",
        ),
        Histogram(
            title="Losses",
            x_label="loss",
            y_label="share",
            edges=[0, 1, 2, 4],
            counts={"training data": [3, 0, 1], "test data": [1, 1, 2]},
            shares=True,
        ),
        Heatmap(
            title="Local variance",
            x=[-1.0, 0.0, 1.0],
            y=[0.0, 1.0, 2.0],
            z=GRID,
            z_label="variance",
            points=[Points(name="class 0", x=[0.5], y=[0.5])],
            contours=[Contour(name=NASTY, z=[[value - 1 for value in row] for row in GRID])],
            wide=False,
        ),
        Surface(
            title="Loss surface",
            x=[-1.0, 0.0, 1.0],
            y=[0.0, 1.0, 2.0],
            z=GRID,
            z_label="loss",
            marks=[Mark(name=NASTY, x=0.1, y=0.0)],
            paths=[Points(name=NASTY, x=[-1.0, 0.0, 0.5], y=[2.0, 1.0, 0.0], values=[1, None, 0])],
        ),
        Gallery(
            title="Hardest samples",
            samples=[Sample(image=PIXEL, caption=NASTY, facts={"loss": "2.1"}, flag="suspect")],
        ),
    )
}
