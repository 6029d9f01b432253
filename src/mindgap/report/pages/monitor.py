"""The page of ``mindgap monitor``: the verdict, the course, every layer and all units."""

from typing import Any

from mindgap.report import html
from mindgap.report.draw import draw_all


def monitor_page(found: Any) -> str:
    """Return the page as text.

    Args:
        found: What :func:`mindgap.monitor` returned.
    """
    return html.render(
        "monitor.html",
        found=found,
        verdict=found.verdict,
        charts=draw_all(found.charts, "chart"),
    )
