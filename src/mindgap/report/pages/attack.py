"""The page of ``mindgap attack``: the verdict, the curve, the checks and broken predictions."""

from typing import Any

from mindgap.report import html
from mindgap.report.draw import draw_all


def attack_page(found: Any) -> str:
    """Return the page as text.

    Args:
        found: What :func:`mindgap.attack` returned.
    """
    return html.render(
        "attack.html",
        found=found,
        verdict=found.verdict,
        curve=draw_all(found.charts[:1], "curve"),
        samples=draw_all(found.charts[1:], "samples"),
    )
