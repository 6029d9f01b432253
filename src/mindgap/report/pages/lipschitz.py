"""The page of ``mindgap lipschitz``: the verdict, certified accuracy, both bounds and the layers."""

from typing import Any

from mindgap.core import Line, Scatter
from mindgap.report import html
from mindgap.report.draw import draw_all


def lipschitz_page(found: Any) -> str:
    """Return the page as text.

    Args:
        found: What :func:`mindgap.lipschitz` returned.
    """
    curve = [chart for chart in found.charts if isinstance(chart, Line)]
    balls = [chart for chart in found.charts if isinstance(chart, Scatter)]
    others = [chart for chart in found.charts if not isinstance(chart, Line | Scatter)]
    return html.render(
        "lipschitz.html",
        found=found,
        verdict=found.verdict,
        curve=draw_all(curve, "curve"),
        bounds=draw_all(others[:1], "bounds"),
        layers=draw_all(others[1:], "layers"),
        local=draw_all(balls, "local"),
    )
