"""The page of ``mindgap decompose``: the verdict, the terms and the curves."""

from typing import Any

from mindgap.report import html
from mindgap.report.draw import draw_all


def decompose_page(found: Any) -> str:
    """Return the page as text.

    Args:
        found: What :func:`mindgap.decompose` returned.
    """
    return html.render(
        "decompose.html",
        found=found,
        verdict=found.verdict,
        terms=draw_all(found.charts[:2], "terms"),
        curves=draw_all(found.charts[2:], "curves"),
    )
