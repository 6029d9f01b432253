"""The page of ``mindgap attack``: the verdict, the curve, the checks and broken predictions."""

from typing import Any

from mindgap.core import Line
from mindgap.report import html
from mindgap.report.draw import draw_all


def attack_page(found: Any) -> str:
    """Return the page as text.

    Args:
        found: What :func:`mindgap.attack` returned.
    """
    lines = [chart for chart in found.charts if isinstance(chart, Line)]
    return html.render(
        "attack.html",
        found=found,
        verdict=found.verdict,
        curve=draw_all(lines, "curve"),
        samples=draw_all(found.charts[len(lines) :], "samples"),
    )
