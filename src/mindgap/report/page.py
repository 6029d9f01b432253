"""Pages: templates filled with a report; one file that asks the network for nothing."""

from __future__ import annotations

import functools
import importlib.resources
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from mindgap.report import charts, figures, formula, terminal, wording

if TYPE_CHECKING:
    from mindgap.report.build import Report


def report_page(report: Report) -> str:
    """The whole report as one HTML file."""
    return render(
        "report.html",
        report=report,
        charts=charts.of_report(report),
        defined=[card for card in report.measures if card.defined],
        undefined=[card for card in report.cards if not card.defined],
        bounds=terminal.tightest_first(report.bounds),
        vague=report.variance.reason if report.variance else "",
        tightest=next((card for card in terminal.tightest_first(report.bounds) if card.guarantees_model), None),
    )


def notebook(report: Report) -> str:
    """The verdict and the tables without charts: small enough to live in a notebook's cell."""
    return _environment().get_template("notebook.html").render(report=report, css=asset("notebook.css"))


def render(template: str, **values: Any) -> str:
    """A page with the style sheet and the scripts inlined."""
    inlined = {"css": asset("page.css"), "script": asset("page.js"), "library": Markup(figures.library())}  # noqa: S704
    return _environment().get_template(template).render(**values, **inlined)


def asset(name: str) -> Markup:
    """A file of ours, to be inlined as it is."""
    text = importlib.resources.files("mindgap.report").joinpath("assets", name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704  (our own file, no user's words)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mindgap.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": wording.number,
        "percent": wording.percent,
        "seconds": wording.seconds,
        "span": wording.span,
        "cell": wording.cell,
        "title_of": wording.title,
        "mathml": lambda latex: Markup(formula.mathml(latex)),  # noqa: S704  (checked to be MathML or escaped)
        "prose": prose,
    }
    environment.globals |= {"wording": wording, "bound_verdict": terminal.bound_verdict}
    return environment


def prose(text: str) -> Markup:
    """A sentence of a docstring: ``double backticks`` become code.

    >>> str(prose("at most ``n`` < 2"))
    'at most <code>n</code> &lt; 2'
    """
    parts = text.split("``")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if k % 2 else Markup.escape(part) for k, part in enumerate(parts)
    )
