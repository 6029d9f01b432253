"""The charts of where labels vary, with their captions."""

from __future__ import annotations

from mindgap.report import wording
from mindgap.report.chart import Chart
from mindgap.report.variance_figures import plane_map, weight_bars
from mindgap.report.variance_parts import Variance


def variance_charts(variance: Variance) -> list[Chart]:
    """The histogram of the weights and, for two features, the plane."""
    if not variance.defined:
        return []
    return [_weights(variance), *([_plane(variance)] if variance.plane else [])]


def _weights(variance: Variance) -> Chart:
    ends = f"from {wording.number(variance.edges[0], 3)} to {wording.number(variance.largest, 3)}"
    suspects = f" Orange: suspects, which carry {variance.suspected}." if variance.suspects else ""
    return Chart(
        key="weights",
        title="Weights of all samples",
        caption=f"Weights {ends}, mean {wording.number(variance.mean, 3)}.{suspects}",
        alt=f"Histogram of the weights of {wording.count(variance.samples, 'sample')}, {ends}.",
        figure=weight_bars(variance),
        wide=True,
    )


def _plane(variance: Variance) -> Chart:
    assert variance.plane is not None
    drawn = (
        f"{len(variance.plane.points):,} of the {variance.samples:,} samples are drawn"
        if (len(variance.plane.points) < variance.samples)
        else "The samples lie on top"
    )
    boundary = "; the black line is where the model changes its answer" if variance.plane.margins else ""
    return Chart(
        key="plane",
        title="Local variance over the plane",
        caption=f"Colour: variance of the labels of the {variance.k} samples nearest to a place. {drawn}, larger where "
        f"heavier{boundary}.",
        alt="Heat map of the local variance of the labels over the plane of both features, with the samples.",
        figure=plane_map(variance.plane),
        wide=True,
    )
