"""Charts on the pages of results, drawn by the renderer of the reports.

Pages with charts load the plotting library from the documentation itself; other pages do not.
"""

from pathlib import Path

from mindgap.core import Gallery
from mindgap.report.draw import draw_all
from mindgap.report.html import asset, fragment, library

SCRIPTS = ("plotly.min.js", "charts.js")


def setup(app):
    """Called by Sphinx."""
    app.connect("builder-inited", write_assets)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_assets(app):
    """Write the scripts and the style sheet of the charts to a folder of static files."""
    folder = Path(app.doctreedir).parent / "charts"
    folder.mkdir(parents=True, exist_ok=True)
    texts = dict(zip(SCRIPTS, (library(), asset("charts.js")), strict=True))
    for name, text in {**texts, "charts.css": asset("chart.css")}.items():
        (folder / name).write_text(text, encoding="utf-8")
    app.config.html_static_path.append(str(folder))
    app.add_css_file("charts.css")


def add_scripts(app, pagename, templatename, context, doctree):  # noqa: ARG001
    """Let pages that hold a chart load the scripts."""
    if 'class="plot"' in context.get("body", ""):
        for name in SCRIPTS:
            app.add_js_file(name, loading_method="defer")


def chart_section(table):
    """Write the charts of a table as a section of Markdown; Markdown tables show galleries."""
    shown = [chart for chart in table.charts if not isinstance(chart, Gallery)]
    if not shown:
        return ""
    return f"## Charts\n\n```{{raw}} html\n{fragment(draw_all(shown, 'chart'))}\n```"
